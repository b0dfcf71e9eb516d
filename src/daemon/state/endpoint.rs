//! `endpoint.json`: how local clients find a daemon that is ready.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{read_small, refused};
use crate::daemon::DaemonFailure;
use crate::kernel::ids::BootId;
use crate::kernel::time::Timestamp;
use crate::tls::{Fingerprint, ServerIdentity};

const FILE: &str = "endpoint.json";
/// Retry interval after a full disk.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

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
    /// The fingerprint of its certificate, if it speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Fingerprint>,
    /// When the daemon was started.
    pub started_at: Timestamp,
}

impl Endpoint {
    /// Once this returns, clients find this daemon. The file is replaced atomically.
    fn write(&self, folder: &Path) -> Result<(), DaemonFailure> {
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
        let url = self.url.strip_prefix("https://");
        let address = url.or_else(|| self.url.strip_prefix("http://"))?;
        address.parse().ok()
    }
}

/// The published `endpoint.json`; the file is removed when this is dropped.
pub struct Published {
    folder: PathBuf,
    writing: Option<AbortOnDropHandle<()>>,
}

impl Published {
    /// Once this returns, local clients find the daemon, or will as soon as a full disk has space.
    /// The file follows `identity`, the certificate in force.
    pub fn new(
        endpoint: &Endpoint,
        folder: &Path,
        identity: Option<watch::Receiver<Arc<ServerIdentity>>>,
    ) -> Result<Published, DaemonFailure> {
        let is_written = match endpoint.write(folder) {
            Err(DaemonFailure::NoRoom(path)) => {
                tracing::warn!(
                    path = %path.display(),
                    "the disk is full: no endpoint.json; clients need the socket path or address"
                );
                false
            }
            written => written.map(|()| true)?,
        };
        let writing = (!is_written || identity.is_some()).then(|| {
            let keeping = keep_written(endpoint.clone(), folder.to_owned(), is_written, identity);
            AbortOnDropHandle::new(tokio::spawn(keeping))
        });
        Ok(Published {
            folder: folder.to_owned(),
            writing,
        })
    }
}

/// Writes the file when there is space for it, and again at each new certificate.
async fn keep_written(
    mut endpoint: Endpoint,
    folder: PathBuf,
    mut is_written: bool,
    identity: Option<watch::Receiver<Arc<ServerIdentity>>>,
) {
    let mut identity = identity;
    loop {
        while !is_written {
            tokio::time::sleep(ROOM_AGAIN).await;
            is_written = endpoint.write(&folder).is_ok();
        }
        let Some(identity) = &mut identity else {
            return;
        };
        if identity.changed().await.is_err() {
            return;
        }
        let fingerprint = identity.borrow_and_update().facts.fingerprint;
        endpoint.certificate = Some(fingerprint);
        is_written = endpoint.write(&folder).is_ok();
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        drop(self.writing.take());
        // A file left behind by a kill is recognized by its process id.
        if let Err(fault) = fs::remove_file(self.folder.join(FILE))
            && fault.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%fault, "endpoint.json could not be removed");
        }
    }
}
