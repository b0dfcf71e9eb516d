//! The demo's daemon: a real process of this program with a state folder of its own, which
//! can be started, killed and stopped.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::cli::discover::Where;
use crate::cli::failure::Failure;
use crate::cli::link::Link;
use crate::cli::start::{self, Plan, Started};
use crate::clock::Clock;
use crate::wire::gateway::{Drain, Draining, Then};

/// Always the built-in search, slow enough to watch. No variable of the terminal's changes it, and
/// nothing is made in the person's own folders.
fn config(folder: &Path) -> String {
    let work = folder.join("work");
    format!(
        "[defaults]\nagent = \"explore\"\nmodel = \"offline/search\"\n\n[runner]\npace = \"1s\"\n\n\
         [workspace]\nroot = {work:?}\n"
    )
}

/// The demo's daemon and its folder.
pub(super) struct Stage {
    /// Holds the state folder and, beside it, the sample.
    folder: PathBuf,
    plan: Plan,
    running: Option<Started>,
    keep: bool,
}

impl Stage {
    /// Makes the folder.
    pub(super) fn new(clock: &Clock) -> Result<Stage, Failure> {
        // Hidden, so that a search of the folder above does not find the search's own state.
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
                alone: true,
            },
            folder,
            running: None,
            keep: false,
        })
    }

    /// A folder of the demo's own, apart from the daemon's state.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves the folder behind.
    pub(super) fn keep(&mut self) {
        self.keep = true;
    }

    /// Starts the daemon; it is ready when this returns. Gives its process, its address
    /// and a link.
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

    /// Kills the daemon with SIGKILL: nothing in it gets a chance to put anything away.
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

    /// Stops the daemon in an orderly way and gives its exit code.
    pub(super) async fn stop(&mut self, link: Link) -> Result<Option<i32>, Failure> {
        let _: Draining = link
            .ask(
                "gateway.drain",
                Drain {
                    then: Then::Stop,
                    timeout: None,
                },
            )
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

    /// How to look at the state that is left.
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
        // Whatever ended the demo: no process stays behind, and no folder that was not wanted.
        let _ = self.kill();
        if !self.keep {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
