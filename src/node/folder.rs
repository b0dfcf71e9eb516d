//! The folders of the gateways that this machine serves, `<configuration>/node/<name>/`, with mode
//! 0700. Each contains:
//!
//! | File | Content |
//! |---|---|
//! | `key` | the node's Ed25519 key for this gateway (PKCS #8, hexadecimal) |
//! | `token` | the token that the gateway gave it |
//! | `gateway.toml` | the pinned gateway and the node's name there |
//! | `node.toml` | what is offered; the owner of the machine edits it |
//! | `allow.toml` | which programs may run; the owner edits it |
//! | `calls/` | the journal of calls |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::NodeError;
use super::identity::NodeKey;
use super::settings::{NodeSettings, PinnedGateway};
use crate::clock::Clock;
use crate::config::{self, SecretFileRule, Unusable, read_secret};
use crate::file_work::sync_folder;
use crate::kernel::secret::Secret;

const KEY: &str = "key";
const TOKEN: &str = "token";
const GATEWAY: &str = "gateway.toml";
const SETTINGS: &str = "node.toml";
const ALLOW: &str = "allow.toml";
const CALLS: &str = "calls";
const LOCK: &str = "lock";

/// How long a start waits for another process that may be about to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(3);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The folder of all gateways.
#[derive(Clone, Debug)]
pub struct NodeFolders(PathBuf);

impl NodeFolders {
    /// `node` in the configuration folder of this user.
    pub fn usual() -> Result<NodeFolders, NodeError> {
        let folder = config::folder().ok_or_else(|| {
            NodeError::Settings(
                "the configuration folder is unknown: neither HOME nor XDG_CONFIG_HOME is set"
                    .to_owned(),
            )
        })?;
        Ok(NodeFolders(folder.join("node")))
    }

    /// The gateways, by name; those that wait to be paired, too.
    pub fn list(&self) -> Result<Vec<GatewayFolder>, NodeError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(fault) => return Err(NodeError::file(&self.0, fault)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry
                .map_err(|fault| NodeError::file(&self.0, fault))?
                .path();
            if path.join(GATEWAY).is_file() {
                found.push(GatewayFolder(path));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// The gateway with this name.
    pub fn named(&self, name: &str) -> Result<GatewayFolder, NodeError> {
        let all = self.list()?;
        let names: Vec<String> = all.iter().map(GatewayFolder::name).collect();
        let found = all.into_iter().find(|folder| folder.name() == name);
        found.ok_or_else(|| {
            NodeError::NotFound(match names.is_empty() {
                true => "this machine is not paired with any gateway".to_owned(),
                false => format!(
                    "no gateway has the name {name:?}; there is: {}",
                    names.join(", ")
                ),
            })
        })
    }

    /// The only gateway, or the one that is named.
    pub fn one(&self, name: Option<&str>) -> Result<GatewayFolder, NodeError> {
        if let Some(name) = name {
            return self.named(name);
        }
        let mut all = self.list()?;
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(NodeError::NotFound(
                "this machine is not paired with any gateway".to_owned(),
            )),
            (Some(last), _) => {
                all.push(last);
                let names: Vec<String> = all.iter().map(GatewayFolder::name).collect();
                Err(NodeError::NotFound(format!(
                    "this machine serves several gateways, so one must be named: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The folder of the gateway with this id, or of this address; `None` if there is none.
    pub(super) fn of(&self, id: &str, url: &str) -> Result<Option<GatewayFolder>, NodeError> {
        let mut by_address = None;
        for folder in self.list()? {
            let pinned = folder.pinned()?;
            if pinned.id == id {
                return Ok(Some(folder));
            }
            if pinned.url == url {
                by_address = Some(folder);
            }
        }
        Ok(by_address)
    }

    /// Creates the folder of a gateway at this address; its name follows from host and port.
    pub(super) fn create(&self, authority: &str) -> Result<GatewayFolder, NodeError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let plain: String = authority
            .chars()
            .map(|c| if is_plain(c) { c } else { '_' })
            .collect();
        let plain = plain.trim_matches(['_', '.']);
        make_private(&self.0)?;
        // The folder of another gateway may have the same name.
        for number in 1.. {
            let name = match number {
                1 => plain.to_owned(),
                _ => format!("{plain}-{number}"),
            };
            let folder = GatewayFolder(self.0.join(name));
            if !folder.0.join(GATEWAY).exists() {
                make_private(&folder.0)?;
                return Ok(folder);
            }
        }
        Err(NodeError::Local("no name is free".to_owned()))
    }
}

/// The folder of one gateway.
#[derive(Clone, Debug)]
pub struct GatewayFolder(PathBuf);

impl GatewayFolder {
    /// The name of the gateway on this machine.
    pub fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The allow-list file.
    pub fn allow_file(&self) -> PathBuf {
        self.0.join(ALLOW)
    }

    /// The settings file.
    pub fn settings_file(&self) -> PathBuf {
        self.0.join(SETTINGS)
    }

    pub(super) fn calls(&self) -> PathBuf {
        self.0.join(CALLS)
    }

    /// The pinned gateway.
    pub fn pinned(&self) -> Result<PinnedGateway, NodeError> {
        read_toml(&self.0.join(GATEWAY))
    }

    /// Once this returns, the gateway is pinned.
    pub(super) fn pin(&self, pinned: &PinnedGateway) -> Result<(), NodeError> {
        write_toml(&self.0.join(GATEWAY), "", pinned)
    }

    /// What is offered to this gateway.
    pub fn settings(&self) -> Result<NodeSettings, NodeError> {
        let settings: NodeSettings = read_toml(&self.settings_file())?;
        let checked = settings.check();
        checked.map_err(|why| {
            NodeError::Settings(format!("{}: {why}", self.settings_file().display()))
        })?;
        Ok(settings)
    }

    pub(super) fn store_settings(&self, settings: &NodeSettings) -> Result<(), NodeError> {
        write_toml(&self.settings_file(), super::settings::HEAD, settings)
    }

    /// Writes a new allow-list if there is none.
    pub(super) fn start_allow_list(&self) -> Result<(), NodeError> {
        let file = self.allow_file();
        if file.exists() {
            return Ok(());
        }
        write_private(&file, super::allow::NEW_FILE.as_bytes())
            .map_err(|fault| NodeError::file(&file, fault))
    }

    /// The node's key; `None` if there is none yet.
    pub(super) fn key(&self) -> Result<Option<NodeKey>, NodeError> {
        let path = self.0.join(KEY);
        match secret(&path)? {
            Some(text) => NodeKey::read(text.expose())
                .map(Some)
                .map_err(|why| NodeError::Settings(format!("{}: {why}", path.display()))),
            None => Ok(None),
        }
    }

    /// The node's key, which is made and stored if there is none.
    pub(super) fn key_or_new(&self) -> Result<NodeKey, NodeError> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let (key, text) = NodeKey::generate()?;
        let path = self.0.join(KEY);
        write_private(&path, text.expose().as_bytes())
            .map_err(|fault| NodeError::file(&path, fault))?;
        Ok(key)
    }

    /// The node's token; `None` until it is paired.
    pub fn token(&self) -> Result<Option<Secret>, NodeError> {
        secret(&self.0.join(TOKEN))
    }

    /// Once this returns, the token is stored.
    pub(super) fn store_token(&self, token: &str) -> Result<(), NodeError> {
        let path = self.0.join(TOKEN);
        write_private(&path, token.as_bytes()).map_err(|fault| NodeError::file(&path, fault))
    }

    /// Removes everything about the gateway.
    pub fn remove(&self) -> Result<(), NodeError> {
        fs::remove_dir_all(&self.0).map_err(|fault| NodeError::file(&self.0, fault))
    }

    /// Takes the lock of the one process that serves this gateway, until the file is dropped.
    pub async fn lock(&self) -> Result<File, NodeError> {
        let path = self.0.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|fault| NodeError::file(&path, fault))?;
        let clock = Clock::system();
        while let Err(fault) = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            if !matches!(fault, rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) {
                return Err(NodeError::file(&path, fault));
            }
            if clock.monotonic() >= LOCK_TIMEOUT {
                return Err(NodeError::Held(format!(
                    "another process of this machine serves the gateway {}",
                    self.name()
                )));
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
        Ok(file)
    }
}

fn secret(path: &Path) -> Result<Option<Secret>, NodeError> {
    match read_secret(path, SecretFileRule::Own) {
        Ok(text) => Ok(Some(Secret::new(text))),
        Err(Unusable::Missing) => Ok(None),
        Err(why) => Err(NodeError::Settings(format!("{}: {why}", path.display()))),
    }
}

fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T, NodeError> {
    let text = fs::read_to_string(path)
        .map_err(|fault| NodeError::Settings(format!("{}: {fault}", path.display())))?;
    toml::from_str(&text)
        .map_err(|fault| NodeError::Settings(format!("{}: {}", path.display(), fault.message())))
}

fn write_toml(path: &Path, head: &str, value: &impl Serialize) -> Result<(), NodeError> {
    let text = toml::to_string(value).map_err(|fault| NodeError::file(path, fault))?;
    write_private(path, format!("{head}{text}").as_bytes())
        .map_err(|fault| NodeError::file(path, fault))
}

/// Creates a folder and missing ones above it, readable by this user alone.
pub(super) fn make_private(folder: &Path) -> Result<(), NodeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|fault| NodeError::file(folder, fault))
}

/// Once this returns, the file has this content, also after a power failure; before, it has the
/// earlier content or none.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.new"));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, path));
    if let Err(fault) = written {
        // What remains is a new file that is not used; a failure to remove it changes nothing.
        let _ = fs::remove_file(&new);
        return Err(fault);
    }
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_have_names_of_their_address_and_are_private() {
        let home = tempfile::tempdir().unwrap();
        let folders = NodeFolders(home.path().join("abide/node"));
        assert!(folders.list().unwrap().is_empty());
        assert!(folders.one(None).is_err());
        let pinned = |id: &str, url: &str| PinnedGateway {
            url: url.to_owned(),
            id: id.to_owned(),
            public_key: "00".to_owned(),
            ..PinnedGateway::default()
        };
        let first = folders.create("[::1]:7777").unwrap();
        assert_eq!(
            first.name(),
            "::1]_7777".replace([':', ']'], "_").trim_matches('_')
        );
        first.pin(&pinned("a", "ws://[::1]:7777")).unwrap();
        assert_eq!(folders.one(None).unwrap().name(), first.name());
        let second = folders.create("[::1]:7777").unwrap();
        assert_ne!(first.name(), second.name());
        second.pin(&pinned("b", "ws://x")).unwrap();
        assert!(folders.one(None).is_err());
        assert_eq!(folders.list().unwrap().len(), 2);
        let of = |id: &str, url: &str| folders.of(id, url).unwrap().map(|one| one.name());
        assert_eq!(of("b", "ws://[::1]:7777"), Some(second.name()));
        assert_eq!(of("c", "ws://[::1]:7777"), Some(first.name()));
        assert_eq!(of("c", "ws://y"), None);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(first.path()), 0o700);
        let key = first.key_or_new().unwrap();
        assert_eq!(first.key_or_new().unwrap().public(), key.public());
        assert_eq!(mode(&first.path().join(KEY)), 0o600);
        first.store_token("0123456789abcdef").unwrap();
        assert_eq!(first.token().unwrap().unwrap().expose(), "0123456789abcdef");
        first.remove().unwrap();
        assert!(folders.named(&first.name()).is_err());
    }
}
