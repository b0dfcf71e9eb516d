//! `endpoint.json`: how local clients find a daemon that is ready.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Failure;
use super::folder::{read_small, refused};
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;

const FILE: &str = "endpoint.json";

/// The contents of `endpoint.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// The program's version.
    pub version: String,
    /// The protocol version it speaks.
    pub protocol: u32,
    /// The process id.
    pub pid: u32,
    /// The id of this boot.
    pub boot_id: BootId,
    /// The HTTP base URL it listens on.
    pub url: String,
    /// The path of its Unix socket, if there is one and it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// When the daemon was started.
    pub started_at: Timestamp,
}

impl Endpoint {
    /// Once this returns, clients find this daemon. The file is replaced atomically.
    pub fn write(&self, folder: &Path) -> Result<(), Failure> {
        let path = folder.join(FILE);
        let aside = folder.join(".endpoint.new");
        // Strings and numbers only, so it always has a JSON form.
        let text = serde_json::to_string_pretty(self).expect("an endpoint is plain data");
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&aside)
            .and_then(|mut file| writeln!(file, "{text}"))
            .and_then(|()| fs::rename(&aside, &path))
            .map_err(|fault| refused(&path, fault))
    }

    /// The endpoint in this state folder; `None` if the file is missing or unreadable.
    pub fn read(folder: &Path) -> Option<Endpoint> {
        serde_json::from_str(&read_small(&folder.join(FILE))?).ok()
    }

    /// The TCP address it listens on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.url.strip_prefix("http://")?.parse().ok()
    }

    /// Removes the file. A file left behind is recognized by its process id.
    pub fn remove(folder: &Path) {
        if let Err(fault) = fs::remove_file(folder.join(FILE))
            && fault.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%fault, "endpoint.json could not be removed");
        }
    }
}
