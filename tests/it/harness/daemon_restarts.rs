//! How a [`Caller`] starts, loses and stops its daemon processes, and checks what a kill has left.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use abide::client::{Client, ClientError};
use serde_json::{Value, json};

use super::caller::{Caller, Kill, RandomKills};
use super::eventually;
use super::place::{Faults, Place};
use crate::invariants::{self, Moment};

impl Caller {
    /// From the next start on, kills the daemon at random instants.
    pub(crate) fn kill_randomly(&mut self, hunt: RandomKills) {
        self.hunt = Some(hunt);
    }

    /// From the next start on, no daemon is killed.
    pub(crate) fn stop_killing(&mut self) {
        if let Some(hunt) = &mut self.hunt {
            hunt.left = 0;
        }
    }

    /// The daemon's metrics by series.
    pub(crate) fn metrics(&self) -> std::collections::BTreeMap<String, f64> {
        crate::metrics::numbers(self.daemon.as_ref().unwrap())
    }

    /// Are more kills to come?
    pub(crate) fn has_kills_left(&self) -> bool {
        self.hunt.as_ref().is_some_and(|hunt| hunt.left > 0)
    }

    /// Whether the daemon accepts a call with this token; `None` if it does not answer.
    pub(crate) async fn accepts(&self, token: &str) -> Option<bool> {
        let url = self.daemon.as_ref()?.url();
        match Client::connect(url, Some(token)).await {
            Ok(client) => match client.call::<_, Value>("gateway.ping", json!({})).await {
                Ok(_) => Some(true),
                Err(_) => None,
            },
            Err(ClientError::Unauthorized { .. }) => Some(false),
            Err(_) => None,
        }
    }

    /// Kills the daemon now and restarts it.
    pub(crate) async fn kill_once(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            if let Some(status) = daemon.has_ended() {
                self.took(status);
            } else {
                daemon.kill().await;
                self.look();
            }
        }
        self.link = None;
        self.start().await;
    }

    /// Asks the daemon to stop, releases the answer held by `hold` once the drain has begun, and
    /// restarts the daemon when it has exited.
    pub(crate) async fn restart_once(&mut self, hold: &str) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.terminate();
            eventually("the drain", || {
                let ready = daemon.get("/ready");
                async move {
                    ready
                        .is_none_or(|(_, body)| body.contains("draining"))
                        .then_some(())
                }
            })
            .await;
            self.place.let_go(hold);
            let status = daemon.ended().await;
            self.took(status);
        }
        self.link = None;
        self.start().await;
    }

    /// Stops the daemon cleanly, applies `done` to its folder, and restarts it.
    pub(crate) async fn restart_after(&mut self, done: impl FnOnce(&Place)) {
        if self.daemon.is_none() {
            self.start().await;
            self.quiet().await;
        }
        self.stop().await;
        done(&self.place);
        self.start().await;
    }

    /// Waits for the exit of the process whose link was lost, and restarts it.
    pub(super) async fn revive(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let status = daemon.ended().await;
            assert_ne!(
                status.code(),
                Some(0),
                "it stopped by itself: {}",
                self.place.log()
            );
            self.took(status);
        }
        self.start().await;
    }

    /// Accepts a clean exit, or the kill that was ordered for this process.
    fn took(&mut self, status: ExitStatus) {
        if status.code() == Some(0) {
            return;
        }
        let armed = self
            .arm
            .as_ref()
            .is_some_and(|arm| arm.boot_index + 1 == self.boot_count);
        let killed = status.signal() == Some(9) && (armed || self.hunt.is_some());
        assert!(killed, "{status}: {}", self.place.log());
        self.ordered_kill = true;
        self.look();
    }

    /// Checks what a kill has left, before a restart repairs it.
    fn look(&mut self) {
        if self.place.is_being_repaired() {
            // Only the next start can read the store.
            return;
        }
        let book = self.place.book();
        invariants::check(&book, Moment::Killed, &self.history, &self.place);
        self.history
            .kills
            .push(Kill::of(&book, self.place.model_calls()));
        self.history.latest = Some(book);
    }

    pub(super) async fn start(&mut self) {
        loop {
            let life = self.boot_count;
            self.boot_count += 1;
            let orders = self.arm.as_ref().filter(|arm| arm.boot_index == life);
            let faults = Faults {
                orders: orders.map(|arm| arm.orders.clone()),
                trace: self.traced.then(|| self.trace(life)),
            };
            match self.place.start_with(&faults).await {
                Ok(daemon) => {
                    if let Some(hunt) = self.hunt.as_mut().filter(|hunt| hunt.left > 0) {
                        hunt.left -= 1;
                        daemon.kill_after((hunt.next)());
                    }
                    self.link = daemon.connect().await;
                    self.daemon = Some(daemon);
                    return;
                }
                Err(status) => {
                    assert_ne!(status.code(), Some(0), "{}", self.place.log());
                    self.took(status);
                }
            }
        }
    }

    /// Stops the daemon. If it is killed meanwhile, it is started again first.
    pub(super) async fn stop(&mut self) {
        loop {
            let mut daemon = self.daemon.take().unwrap();
            self.link = None;
            daemon.terminate();
            let status = daemon.ended().await;
            self.took(status);
            if status.code() == Some(0) {
                return;
            }
            self.start().await;
            self.quiet().await;
        }
    }
}
