//! The demo's daemon: a real process of this program with its own state folder, which can be
//! started, killed and stopped.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::cli::common::failure::Failure;
use crate::cli::link::discover::Where;
use crate::cli::link::start::{StartOptions, StartedDaemon};
use crate::cli::link::{DaemonLink, start};
use crate::clock::Clock;
use crate::contract::control::Then;
use crate::wire::gateway::Drain;

/// The demo's daemon and its folder.
pub(super) struct Daemon {
    /// Contains the state folder and the sample.
    pub(super) folder: PathBuf,
    /// Keeps the folder after the demo.
    pub(super) keep: bool,
    plan: StartOptions,
    running: Option<StartedDaemon>,
}

impl Daemon {
    /// Creates the folder. Starts nothing.
    pub(super) fn new(clock: &Clock, keep: bool) -> Result<Daemon, Failure> {
        // Hidden, so that a search of the parent folder does not find the demo's own state.
        let id = clock.new_id().simple().to_string();
        let folder = std::env::temp_dir().join(format!(".abide-demo-{}", &id[20..]));
        let config = folder.join("abide.toml");
        // The built-in search model, slow enough to watch, and no file in the user's own folders.
        let settings = format!(
            "[defaults]\nagent = \"explore\"\nmodel = \"offline/search\"\n\n[runner]\npace = \
             \"1s\"\n\n[workspace]\nroot = {:?}\n",
            folder.join("work")
        );
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .and_then(|()| fs::write(&config, settings))
            .map_err(|error| Failure::local(folder.display(), error))?;
        Ok(Daemon {
            plan: StartOptions {
                state_dir: folder.join("state"),
                config: Some(config),
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
                socket: None,
                without_env: true,
            },
            folder,
            keep,
            running: None,
        })
    }

    /// The daemon is ready once this returns; returns its process id, its URL and a connection.
    pub(super) async fn start(&mut self) -> Result<(u32, String, DaemonLink), Failure> {
        let started = start::start(&self.plan).await?;
        let (pid, url) = (started.endpoint.pid, started.endpoint.url.clone());
        self.running = Some(started);
        let link = DaemonLink::open(&Where::folder(&self.plan.state_dir)).await?;
        Ok((pid, url, link))
    }

    /// Kills the daemon with SIGKILL, so that nothing in it can clean up.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut started) = self.running.take() else {
            return Ok(());
        };
        let killed = started.process.kill();
        let waited = killed.and_then(|()| started.process.wait().map(drop));
        waited.map_err(|error| Failure::local("the daemon cannot be killed", error))
    }

    /// Stops the daemon gracefully and returns its exit code.
    pub(super) async fn stop(&mut self, link: DaemonLink) -> Result<Option<i32>, Failure> {
        let then = Then::Stop;
        link.ask(&Drain {
            then,
            timeout: None,
        })
        .await?;
        drop(link);
        let Some(mut started) = self.running.take() else {
            return Ok(None);
        };
        let ended = tokio::task::spawn_blocking(move || started.process.wait()).await;
        let ended = ended.map_err(std::io::Error::from).flatten();
        let status = ended.map_err(|error| Failure::local("waiting for the daemon", error))?;
        Ok(status.code())
    }

    /// How to inspect the kept state.
    pub(super) fn how_to_look(&self) -> String {
        let folder = self.plan.state_dir.display();
        format!(
            "state kept in {folder}\n  \
             abide serve --detach --listen 127.0.0.1:0 --state-dir {folder}\n  \
             abide ps --all --state-dir {folder}"
        )
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // However the demo ended: no process stays, and no folder unless `keep` is set.
        let _ = self.kill();
        if !self.keep {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
