//! `abide rpc`: direct access to the protocol, for one call, as a pipe for editors, or
//! as a client in source.

mod bridge;
mod client;
mod frames;
mod open;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::{DaemonLink, start};
use crate::cli::output::print;
use crate::client::ClientError;

/// Call a method, open a pipe for editors, or write a client
///
/// With a method it makes one call and prints the result as JSON; a JSON-RPC error is printed to
/// standard error. With --stdio it carries messages between standard input and output and the
/// daemon, one JSON per line or each behind Content-Length headers, whichever the first message
/// uses. With --client it writes a client of the protocol of this program as one file of source; no
/// daemon is needed.
#[derive(Debug, Args)]
#[command(after_help = r#"abide rpc gateway.status
abide rpc runs.get '{"runId": "01936f0e-0000-7000-8000-00004f2a91c3"}'
abide rpc --stdio --start
abide rpc --client python --output abide_client.py"#)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["method", "stdio", "client"]))]
pub(crate) struct Rpc {
    /// The method, such as gateway.status
    method: Option<String>,

    /// Its parameters, a JSON object; - reads them from standard input
    #[arg(value_name = "JSON", requires = "method")]
    params: Option<String>,

    /// Carry messages between standard input and output and the daemon
    #[arg(long)]
    stdio: bool,

    /// Write a typed client in this language
    #[arg(long, value_name = "LANGUAGE")]
    client: Option<client::Language>,

    /// The file for the client, replaced if it exists [default: standard output]
    #[arg(long, value_name = "FILE", requires = "client")]
    output: Option<PathBuf>,

    /// Start a daemon in the background if none is running; it keeps running afterwards
    #[arg(long, conflicts_with = "client")]
    start: bool,
}

impl Rpc {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        if let Some(language) = self.client {
            return client::write(language, self.output.as_deref());
        }
        if self.start {
            start::if_none(&common.place).await?;
        }
        match self.method {
            Some(method) => call(common, &method, self.params).await,
            None => Ok(bridge::run(&common.place).await),
        }
    }
}

async fn call(common: &Common, method: &str, params: Option<String>) -> Result<u8, Failure> {
    let params = match params.as_deref() {
        None => Value::Object(serde_json::Map::new()),
        Some("-") => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::local("standard input", error))?;
            object(&text)?
        }
        Some(text) => object(text)?,
    };
    let link = DaemonLink::open(&common.place).await?;
    match link.call(method, params).await {
        Ok(result) if !common.json && std::io::stdout().is_terminal() => {
            print::answer(&format!("{result:#}"))?;
            Ok(0)
        }
        Ok(result) => {
            print::object(&result)?;
            Ok(0)
        }
        Err(ClientError::Rpc(error)) => {
            let text = serde_json::to_string(&error)
                .map_err(|fault| Failure::local("the error cannot be written", fault))?;
            print::note(&text);
            Ok(error.exit())
        }
        Err(error) => Err(link.failure(error)),
    }
}

fn object(text: &str) -> Result<Value, Failure> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Failure::usage("the parameters must be a JSON object")
            .hint("such as '{\"runId\": \"…\"}'")),
        Err(error) => Err(Failure::usage(format!(
            "the parameters are not JSON: {error}"
        ))),
    }
}
