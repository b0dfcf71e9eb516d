//! `abide node pair`: pairs this machine with a gateway.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::failure;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::output::print;
use crate::cli::output::print::{DIM, GOOD, HEAD, styled};
use crate::cli::output::text::clean;
use crate::failpoint;
use crate::kernel::node::{NodeCommand, Offer};
use crate::node::folder::NodeFolders;
use crate::node::pairing::{self, Pairing, PairingProgress, is_open_to_others};

/// Pair this machine with a gateway
///
/// Shows a code by which an operator of the gateway admits this machine (abide nodes approve CODE),
/// and waits. With a setup code (abide nodes invite) no approval is needed.
#[derive(Debug, Args)]
#[command(
    after_help = "abide node pair --gateway ws://127.0.0.1:7777 --root ~/src
abide node pair --gateway wss://gateway.lan:7777 --code 7KQ2-MX4P"
)]
pub(crate) struct PairArgs {
    /// Address of the gateway: ws:// or wss://, host and port
    #[arg(long, value_name = "URL")]
    gateway: String,

    /// Name of this machine at the gateway [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The setup code of an invitation
    #[arg(long, value_name = "CODE")]
    code: Option<String>,

    /// A folder below which the gateway may list and read files; may be repeated
    #[arg(long, value_name = "DIR")]
    root: Vec<PathBuf>,

    /// Do not offer to run programs
    #[arg(long)]
    no_run: bool,

    /// Offer to run programs again, after --no-run
    #[arg(long, conflicts_with = "no_run")]
    run: bool,

    /// Pair again with a gateway that is known: to offer more, or to get a new token
    #[arg(long)]
    again: bool,

    /// Connect without encryption to another machine; others in the network can read everything
    #[arg(long)]
    insecure: bool,
}

impl PairArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let started = failpoint::configure_from_env();
        started.map_err(|why| Failure::new(exit::CONFIG, "config", why))?;
        let is_open = is_open_to_others(&self.gateway).map_err(|error| failure(&error.into()))?;
        if is_open && !self.insecure {
            return Err(Failure::usage(format!(
                "{} is another machine, and ws:// is not encrypted: its token and all output could \
                 be read",
                clean(&self.gateway)
            ))
            .hint("use wss:// (on the gateway: abide tls new); or accept it: --insecure"));
        }
        let mut roots = Vec::new();
        for root in self.root {
            let real = root.canonicalize().and_then(|real| match real.is_dir() {
                true => Ok(real),
                false => Err(std::io::Error::from(std::io::ErrorKind::NotADirectory)),
            });
            roots.push(real.map_err(|error| Failure::local(root.display(), error))?);
        }
        let request = Pairing {
            url: self.gateway,
            name: self.name,
            code: self.code,
            roots,
            run: match (self.run, self.no_run) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            again: self.again,
        };
        let folders = NodeFolders::usual().map_err(|error| failure(&error))?;
        let json = common.json;
        let paired = pairing::pair(&folders, &request, |progress| shown(&progress, json)).await;
        let paired = paired.map_err(|error| failure(&error))?;
        let gateway = paired.folder.name();
        if json {
            print::object(&json!({ "paired": {
                "gateway": gateway,
                "node": paired.gateway.name,
                "id": paired.gateway.node,
                "approved": paired.approved,
                "folder": paired.folder.path(),
            } }))?;
            return Ok(0);
        }
        print::answer(&format!(
            "{} paired: this machine is {} at the gateway {}",
            styled(GOOD, "✓"),
            clean(&paired.gateway.name),
            clean(&gateway)
        ))?;
        print::note(&format!("  approved  {}", offered(&paired.approved)));
        print::note(&format!(
            "  programs  {}",
            paired.folder.allow_file().display()
        ));
        print::note(&styled(DIM, "  connect it: abide node run"));
        Ok(0)
    }
}

/// Shows what happens. Notes are optional; the code is part of the answer.
fn shown(progress: &PairingProgress, json: bool) {
    match progress {
        PairingProgress::Met {
            key,
            certificate,
            is_new,
            offer,
        } => {
            if json {
                return;
            }
            let known = if *is_new { "new" } else { "known" };
            print::note(&format!("gateway     {known}, key {key}"));
            if let Some(certificate) = certificate {
                print::note(&format!("certificate {}", clean(certificate)));
            }
            print::note(&format!("offers      {}", offered(offer)));
        }
        // A closed pipe ends nothing: the machine may still be admitted.
        PairingProgress::Waiting { code, valid_for } if json => {
            let waiting = json!({ "waiting": {
                "code": code,
                "expiresInMs": u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX),
            } });
            let _ = print::object(&waiting);
        }
        PairingProgress::Waiting { code, valid_for } => {
            let _ = print::answer(&format!("code        {}", styled(HEAD, clean(code))));
            let minutes = valid_for.as_secs().div_ceil(60);
            print::note(&format!(
                "waiting {minutes} minutes for an operator of the gateway: abide nodes approve {}",
                clean(code)
            ));
        }
        PairingProgress::Lost { why, again_in } => {
            let seconds = again_in.as_secs_f32();
            print::note(&format!("{}; again in {seconds:.1} s", clean(why)));
        }
    }
}

/// An offer on one line.
pub(super) fn offered(offer: &Offer) -> String {
    let commands = offer.commands.iter().map(NodeCommand::to_string);
    let roots = offer
        .roots
        .iter()
        .map(|root| format!("below {}", clean(root)));
    let skills = offer.skills.then(|| "skills".to_owned());
    let all: Vec<String> = commands.chain(roots).chain(skills).collect();
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    }
}
