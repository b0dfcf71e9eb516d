//! `abide status`: which daemon is there and what it does.

use clap::Args;

use super::args::Common;
use super::failure::Failure;
use super::link::{self, Link};
use super::print;
use super::text::{clean, span};
use crate::wire::gateway::{NoParams, Status as Answer};

/// Show which daemon is there and what it does
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let raw = link.raw("gateway.status", NoParams {}).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let status: Answer = link::read(&raw)?;
        let counts = status.counts;
        let mut lines = vec![
            format!(
                "abide {} ({}), process {}, up {}",
                status.version,
                status.phase,
                status.pid,
                span(status.uptime_ms)
            ),
            format!("  address  {}", status.url),
            format!("  state    {}", common.place.state_dir()?.display()),
            format!("  agent    {} with {}", status.default_agent, status.model),
            format!(
                "  runs     {} running, {} queued, {} paused, {} settling",
                counts.running, counts.queued, counts.paused, counts.settling
            ),
            format!(
                "  announces waiting to be delivered: {}",
                counts.pending_announces
            ),
        ];
        if let Some(socket) = &status.socket {
            lines.insert(2, format!("  socket   {socket}"));
        }
        if let Some(salvaged) = &status.salvaged {
            let least = if salvaged.more { "at least " } else { "" };
            lines.push(format!(
                "  damage   the store was found damaged at {}: {} rows were kept, {least}{} lost",
                salvaged.at, salvaged.kept, salvaged.lost
            ));
            lines.push(format!("           it lies in {}", salvaged.set_aside));
            lines.push("           more: abide doctor".to_owned());
        }
        print::answer(&clean(&lines.join("\n")))?;
        let own = env!("CARGO_PKG_VERSION");
        if status.version != own {
            print::note(&format!(
                "this program is version {own}; to run that: abide stop && abide serve --detach"
            ));
        }
        Ok(0)
    }
}
