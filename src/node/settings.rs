//! The two files about a gateway beside key and token: the pinned gateway, which pairing writes,
//! and the settings, which the owner of the machine edits.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kernel::node::{NodeCommand, Offer};
use crate::tls::Fingerprint;

/// The comment at the head of a new settings file.
pub(super) const HEAD: &str = "\
# What this machine offers to the gateway. Changes are noticed while it is connected; what goes
# beyond what the gateway's operator has approved needs a new approval there.

";

/// The gateway that was met at pairing; a change of its key is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedGateway {
    /// Its address, `ws://` or `wss://`.
    pub url: String,
    /// The id of its store.
    pub id: String,
    /// Its Ed25519 public key, hexadecimal.
    pub public_key: String,
    /// Fingerprint of its certificate, for `wss://`, if no authority that this system trusts has
    /// signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Fingerprint>,
    /// The node's name there; empty until it is paired.
    #[serde(default)]
    pub name: String,
    /// The node's id there; empty until it is paired.
    #[serde(default)]
    pub node: String,
}

/// What this machine offers to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSettings {
    /// Whether programs may run here at all; which ones, the allow-list decides.
    #[serde(default = "yes")]
    pub run: bool,
    /// The folders below which files may be listed and read.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// The working folder of programs that name none; the home folder if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Maximum number of programs that run at the same time.
    #[serde(default = "eight")]
    pub programs: usize,
    /// A folder of skills to publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

fn eight() -> usize {
    8
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            run: true,
            roots: Vec::new(),
            folder: None,
            programs: eight(),
            skills: None,
        }
    }
}

impl NodeSettings {
    /// What they offer.
    pub fn offer(&self) -> Offer {
        let mut commands = BTreeSet::from([NodeCommand::Which, NodeCommand::Describe]);
        if self.run {
            commands.insert(NodeCommand::Run);
        }
        if !self.roots.is_empty() {
            commands.extend([NodeCommand::List, NodeCommand::Read]);
        }
        let roots = self.roots.iter().filter_map(|root| root.to_str());
        Offer {
            commands,
            roots: roots.map(str::to_owned).collect(),
            skills: self.skills.is_some(),
        }
    }

    /// The error names the setting that is not valid.
    pub(super) fn check(&self) -> Result<(), String> {
        let folders = self.roots.iter().map(|root| ("roots", root));
        let folders = folders
            .chain(self.folder.iter().map(|one| ("folder", one)))
            .chain(self.skills.iter().map(|one| ("skills", one)));
        for (name, folder) in folders {
            let is_plain = |part: Component| part != Component::ParentDir;
            if !folder.is_absolute() || !folder.components().all(is_plain) {
                return Err(format!(
                    "{name}: {} is not an absolute path",
                    folder.display()
                ));
            }
        }
        match self.programs {
            1..=64 => Ok(()),
            count => Err(format!("programs: {count} is not between 1 and 64")),
        }
    }

    /// The working folder of programs that name none.
    pub(super) fn working_folder(&self) -> PathBuf {
        let home = || std::env::home_dir().filter(|home| home.is_absolute());
        let folder = self.folder.clone().or_else(home);
        folder.unwrap_or_else(|| Path::new("/").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_settings_name_is_offered() {
        let none = NodeSettings {
            run: false,
            ..NodeSettings::default()
        };
        let offered = none.offer();
        assert_eq!(offered.commands.len(), 2);
        assert!(offered.roots.is_empty() && !offered.skills);
        let all = NodeSettings {
            roots: vec!["/srv".into()],
            skills: Some("/skills".into()),
            ..NodeSettings::default()
        };
        let offered = all.offer();
        assert_eq!(offered.commands.len(), NodeCommand::ALL.len());
        assert!(offered.skills);
    }

    #[test]
    fn settings_without_sense_are_refused() {
        let read = |text: &str| {
            let settings: NodeSettings = toml::from_str(text).map_err(|fault| fault.to_string())?;
            settings.check().map(|()| settings)
        };
        assert_eq!(read("").unwrap(), NodeSettings::default());
        assert!(read("run = false\nroots = [\"/srv\"]\nprograms = 2").is_ok());
        for bad in [
            "roots = [\"srv\"]",
            "roots = [\"/srv/../etc\"]",
            "programs = 0",
            "folder = \"~\"",
            "unknown = 1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
