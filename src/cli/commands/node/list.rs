//! `abide node list` and `abide node forget`: the gateways that this machine serves.

use clap::Args;
use serde_json::json;

use super::failure;
use super::pair::offered;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, clean};
use crate::node::folder::{GatewayFolder, NodeFolders};
use crate::node::pairing::fingerprint;
use crate::node::{NodeError, NodeSettings, PinnedGateway};

/// List the gateways that this machine is paired with
#[derive(Debug, Args)]
pub(crate) struct NodeList {}

/// Remove the key, token and settings for a gateway
///
/// The gateway still lists the machine until an operator removes it there: abide nodes remove.
#[derive(Debug, Args)]
#[command(after_help = "abide node forget gateway.lan_7777")]
pub(crate) struct Forget {
    /// The gateway, by its name in abide node list
    #[arg(value_name = "NAME")]
    name: String,
}

/// A gateway of this machine.
struct KnownGateway {
    folder: GatewayFolder,
    pinned: PinnedGateway,
    settings: Result<NodeSettings, NodeError>,
    is_paired: bool,
}

impl KnownGateway {
    fn read(folder: GatewayFolder) -> Result<KnownGateway, NodeError> {
        Ok(KnownGateway {
            pinned: folder.pinned()?,
            settings: folder.settings(),
            is_paired: folder.token()?.is_some(),
            folder,
        })
    }

    fn state(&self) -> &'static str {
        match (&self.settings, self.is_paired) {
            (Err(_), _) => "invalid settings",
            (Ok(_), true) => "paired",
            (Ok(_), false) => "not paired",
        }
    }

    fn offers(&self) -> String {
        match &self.settings {
            Ok(settings) => offered(&settings.offer()),
            Err(why) => clean(&why.to_string()),
        }
    }
}

impl NodeList {
    pub(crate) fn run(self, common: &Common) -> Result<u8, Failure> {
        let known = known().map_err(|error| failure(&error))?;
        if common.json {
            let gateways: Vec<_> = known
                .iter()
                .map(|one| {
                    json!({
                        "name": one.folder.name(),
                        "url": one.pinned.url,
                        "key": fingerprint(&one.pinned.public_key),
                        "node": one.pinned.name,
                        "state": one.state(),
                        "offer": one.settings.as_ref().ok().map(NodeSettings::offer),
                        "folder": one.folder.path(),
                    })
                })
                .collect();
            print::object(&json!({ "gateways": gateways }))?;
            return Ok(0);
        }
        if known.is_empty() {
            print::note(
                "this machine is not paired with any gateway; pair it: abide node pair --gateway URL",
            );
            return Ok(0);
        }
        let mut table = TextTable::new(&["GATEWAY", "STATE", "NODE", "ADDRESS", "OFFERS"]);
        for one in &known {
            table.row(vec![
                one.folder.name(),
                one.state().to_owned(),
                one.pinned.name.clone(),
                one.pinned.url.clone(),
                one.offers(),
            ]);
        }
        print::answer(&table.lines().join("\n"))?;
        Ok(0)
    }
}

fn known() -> Result<Vec<KnownGateway>, NodeError> {
    let folders = NodeFolders::usual()?.list()?;
    folders.into_iter().map(KnownGateway::read).collect()
}

impl Forget {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let folder = NodeFolders::usual().and_then(|all| all.named(&self.name));
        let folder = folder.map_err(|error| failure(&error))?;
        // A process that serves it would go on with what is gone.
        let lock = folder.lock().await.map_err(|error| {
            failure(&error).hint("stop abide node run first; nothing was removed")
        })?;
        folder.remove().map_err(|error| failure(&error))?;
        drop(lock);
        if common.json {
            print::object(&json!({ "forgotten": self.name }))?;
        } else {
            print::answer(&format!("{} is forgotten", clean(&self.name)))?;
            print::note("the gateway still lists this machine: abide nodes remove NAME there");
        }
        Ok(0)
    }
}
