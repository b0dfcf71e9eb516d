//! What several commands share: names that a user types, failures, exit codes, signals.

pub(crate) mod ask;
pub(crate) mod budget;
pub(crate) mod failure;
pub(crate) mod ids;
pub(crate) mod origin;
pub(crate) mod signals;
pub(crate) mod skew;
pub(crate) mod turn;
pub(crate) mod under_way;

use std::time::Duration;

use crate::cli::link::discover::Where;

/// Options that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// Print JSON, one object per line
    #[arg(long, global = true, display_order = 900)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: Where,
}

/// Parses a duration: `90s`, `10m`, or a number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 90s or 10m"))
}
