//! `abide rpc --client`: writes a client of the protocol as one file of source.

mod document;
mod lines;
mod python;
mod typescript;

use std::io::Write;
use std::path::Path;

use clap::ValueEnum;
use serde_json::Value;

use self::document::Document;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::daemon;

/// The address in the document; clients are given theirs when they are made.
const URL: &str = "http://127.0.0.1:7777/";

/// A language that clients are written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Language {
    // For Python 3.9 or later, with the standard library alone. Comments for the documentation would
    // make the page of --help another than that of -h.
    Python,
    // For Node 20 or later and browsers.
    Typescript,
}

/// Writes the client for the protocol of this program to `output`, else to standard output.
pub(super) fn write(language: Language, output: Option<&Path>) -> Result<u8, Failure> {
    let source = source(language, &daemon::openrpc(URL))
        .map_err(|why| Failure::new(exit::FAILED, "internal", format!("no client: {why}")))?;
    match output {
        Some(file) => {
            std::fs::write(file, source).map_err(|error| Failure::local(file.display(), error))?
        }
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(source.as_bytes())
                .and_then(|()| out.flush())
                .map_err(print::failed)?;
        }
    }
    Ok(0)
}

/// The source of the client for an OpenRPC document.
fn source(language: Language, document: &str) -> Result<String, String> {
    let document: Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
    let document = Document::read(&document)?;
    Ok(match language {
        Language::Python => python::write(&document),
        Language::Typescript => typescript::write(&document),
    })
}
