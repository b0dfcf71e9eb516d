//! The demo's daemon: a real process of this program with its own state folder, which can be
//! started, killed and stopped.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::cli::common::failure::Failure;
use crate::cli::link::discover::Where;
use crate::cli::link::start::{Plan, Started};
use crate::cli::link::{Link, start};
use crate::clock::Clock;
use crate::wire::gateway::{Drain, Draining, Then};

/// Configuration with the built-in search model, slow enough to watch. Independent of the
/// terminal's variables, and writes nothing to the user's own folders.
fn config(folder: &Path) -> String {
    let work = folder.join("work");
    format!(
        "[defaults]\nagent = \"explore\"\nmodel = \"offline/search\"\n\n[runner]\npace = \"1s\"\n\n\
         [workspace]\nroot = {work:?}\n"
    )
}

/// The demo's daemon and its folder.
pub(super) struct Stage {
    /// Contains the state folder and the sample.
    folder: PathBuf,
    plan: Plan,
    running: Option<Started>,
    keep: bool,
}

impl Stage {
    /// Creates the folder.
    pub(super) fn new(clock: &Clock) -> Result<Stage, Failure> {
        // Hidden, so that a search of the parent folder does not find the demo's own state.
        let id = clock.new_id().simple().to_string();
        let folder = std::env::temp_dir().join(format!(".abide-demo-{}", &id[20..]));
        let config = folder.join("abide.toml");
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .and_then(|()| fs::write(&config, self::config(&folder)))
            .map_err(|error| Failure::local(folder.display(), error))?;
        Ok(Stage {
            plan: Plan {
                state_dir: folder.join("state"),
                config: Some(config),
                listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
                socket: None,
                without_env: true,
            },
            folder,
            running: None,
            keep: false,
        })
    }

    /// The demo's folder, outside the daemon's state.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the folder after the demo.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// The daemon is ready once this returns; returns its process id, its URL and a connection.
    pub(super) async fn start(&mut self) -> Result<(u32, String, Link), Failure> {
        let started = start::start(&self.plan).await?;
        let (pid, url) = (started.endpoint.pid, started.endpoint.url.clone());
        self.running = Some(started);
        Ok((
            pid,
            url,
            Link::open(&Where::folder(&self.plan.state_dir)).await?,
        ))
    }

    /// Kills the daemon with SIGKILL, so that nothing in it can clean up.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(mut started) = self.running.take() {
            started
                .process
                .kill()
                .and_then(|()| started.process.wait())
                .map_err(|error| Failure::local("the daemon cannot be killed", error))?;
        }
        Ok(())
    }

    /// Stops the daemon gracefully and returns its exit code.
    pub(super) async fn stop(&mut self, link: Link) -> Result<Option<i32>, Failure> {
        let _: Draining = link
            .ask(&Drain {
                then: Then::Stop,
                timeout: None,
            })
            .await?;
        drop(link);
        let Some(mut started) = self.running.take() else {
            return Ok(None);
        };
        let status = tokio::task::spawn_blocking(move || started.process.wait())
            .await
            .map_err(|error| Failure::local("waiting for the daemon", error))?
            .map_err(|error| Failure::local("waiting for the daemon", error))?;
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

impl Drop for Stage {
    fn drop(&mut self) {
        // However the demo ended: no process stays, and no folder unless `keep` is set.
        let _ = self.kill();
        if !self.keep {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
