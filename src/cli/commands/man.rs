//! `abide man`: writes the manual pages. Hidden, because only packages need it.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::cli::common::failure::Failure;
use crate::cli::manual::manual;
use crate::clock::Clock;

/// Write the manual pages of all commands into a folder
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// Folder for the pages, which is created
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Date of the pages, such as 2026-11-30 [default: today]
    #[arg(long, value_name = "DATE", value_parser = date)]
    date: Option<String>,
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let date = self.date.unwrap_or_else(today);
        fs::create_dir_all(&self.out).map_err(|error| Failure::local(self.out.display(), error))?;
        for page in manual(&date) {
            let file = self.out.join(format!("{}.1", page.name));
            fs::write(&file, page.source).map_err(|error| Failure::local(file.display(), error))?;
        }
        Ok(0)
    }
}

/// Today in UTC.
fn today() -> String {
    let now = Clock::system().now().to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Checks the form of a date.
fn date(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &&str| part.chars().all(|digit| digit.is_ascii_digit());
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match lengths == [4, 2, 2] && parts.iter().all(is_number) {
        true => Ok(text.to_owned()),
        false => Err("write it as 2026-11-30".to_owned()),
    }
}
