//! A client that outlives the daemon. When the link is lost it looks at what is on disk,
//! starts the daemon again and repeats the call that had no answer, with the key that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide::wire::error::WireError;
use serde_json::{Value, json};

use super::book::Book;
use super::client::{Link, Spawned, is_quiet, kind_of, with_agent};
use super::daemon::Daemon;
use super::place::Place;
use crate::invariants::{self, Moment};

/// What the daemon's life of this number (the first is 0) is told.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    /// Which life.
    pub(crate) life: usize,
    /// `ABIDE_FAILPOINTS`.
    pub(crate) orders: String,
}

impl Arm {
    /// These orders for this life.
    pub(crate) fn new(life: usize, orders: &str) -> Arm {
        Arm {
            life,
            orders: orders.to_owned(),
        }
    }
}

/// What the client knows: what it was promised, and what it was told of ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Calls that make runs, with the answer once there was one.
    pub(crate) promises: Vec<Promise>,
    /// Runs whose ids the client chose, without a key.
    pub(crate) chosen: Vec<String>,
    /// By run: the first answer that said how it ended.
    pub(crate) ends: BTreeMap<String, Value>,
    /// Announces whose acknowledgement was answered.
    pub(crate) acked: Vec<String>,
    /// What each kill found.
    pub(crate) kills: Vec<Kill>,
    /// The rows as the latest kill left them.
    pub(crate) latest: Option<Book>,
}

/// What a kill found. A step is named by its run and its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kill {
    /// Steps that were open and in the hands of a task.
    pub(crate) held: BTreeSet<(String, i64)>,
    /// Steps that had an outcome.
    pub(crate) ended: BTreeSet<(String, i64)>,
    /// How often the model had been asked, by rule and number of the answer.
    pub(crate) asked: BTreeMap<(String, usize), usize>,
}

impl Kill {
    pub(super) fn of(book: &Book, asked: BTreeMap<(String, usize), usize>) -> Kill {
        let mut kill = Kill {
            asked,
            ..Kill::default()
        };
        for (place, step) in &book.steps {
            let run = &book.runs[&step.run];
            if !step.is_open() {
                kill.ended.insert(place.clone());
            } else if run.state == "running" && run.cancel_by.is_none() && step.waits.is_none() {
                kill.held.insert(place.clone());
            }
        }
        kill
    }
}

/// A call that makes a run.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// `sessions.spawn` or `agent.run`.
    pub(crate) method: &'static str,
    /// With an idempotency key.
    pub(crate) params: Value,
    /// Once it was answered.
    pub(crate) answer: Option<Value>,
}

/// Kills at random instants: each life is killed after a time that `next` gives, until there
/// were enough.
pub(crate) struct Hunt {
    /// How many kills are to come.
    pub(crate) left: usize,
    /// How long the next life may last.
    pub(crate) next: Box<dyn FnMut() -> Duration>,
}

/// A client that outlives the daemon.
pub(crate) struct Caller {
    pub(super) place: Place,
    pub(super) daemon: Option<Daemon>,
    pub(super) link: Option<Link>,
    pub(super) arm: Option<Arm>,
    pub(super) traced: bool,
    pub(super) lives: usize,
    pub(super) ordered_kill: bool,
    pub(super) hunt: Option<Hunt>,
    pub(crate) history: History,
}

impl Caller {
    /// Starts the first life. With `traced`, each life's passes of failpoints are noted
    /// ([`Caller::passes`]).
    pub(crate) async fn begin(place: Place, arm: Option<Arm>, traced: bool) -> Caller {
        let mut caller = Caller {
            place,
            daemon: None,
            link: None,
            arm,
            traced,
            lives: 0,
            ordered_kill: false,
            hunt: None,
            history: History::default(),
        };
        caller.start().await;
        caller
    }

    /// The daemon's folder.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// What the client knows, and the folder.
    pub(crate) fn into_parts(self) -> (History, Place) {
        (self.history, self.place)
    }

    /// Did the kill come that was ordered?
    pub(crate) fn was_killed_as_ordered(&self) -> bool {
        self.ordered_kill
    }

    /// How often each life has passed each failpoint.
    pub(crate) fn passes(&self) -> Vec<BTreeMap<String, usize>> {
        (0..self.lives)
            .map(|life| {
                let trace = std::fs::read_to_string(self.trace(life)).unwrap_or_default();
                let mut passes = BTreeMap::new();
                for name in trace.lines() {
                    *passes.entry(name.to_owned()).or_default() += 1;
                }
                passes
            })
            .collect()
    }

    pub(super) fn trace(&self, life: usize) -> std::path::PathBuf {
        self.place.path().join(format!("trace-{life}"))
    }

    /// Makes one call, however often the daemon dies of it.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        match self.attempt(method, &params).await {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {params}: {error} {:?}", error.data),
        }
    }

    /// As [`Caller::call`]; a refusal is an answer too. After a kill the call is repeated, and
    /// may find that it was carried out already.
    pub(crate) async fn attempt(
        &mut self,
        method: &str,
        params: &Value,
    ) -> Result<Value, WireError> {
        loop {
            let Some(link) = &self.link else {
                self.revive().await;
                continue;
            };
            match link.attempt(method, params).await {
                Ok(answer) => return Ok(answer),
                Err(Some(error)) => return Err(error),
                Err(None) => self.link = None,
            }
        }
    }

    /// Makes a call that is refused as `kind` where it was carried out before.
    pub(crate) async fn once(&mut self, method: &str, params: Value, kind: &str) -> Option<Value> {
        match self.attempt(method, &params).await {
            Ok(answer) => Some(answer),
            Err(error) if kind_of(&error) == kind => None,
            Err(error) => panic!("{method} {params}: {error} {:?}", error.data),
        }
    }

    /// `sessions.spawn` without a key, under an id of the client's own.
    pub(crate) async fn spawn_chosen(&mut self, params: Value) -> String {
        let id = abide::clock::Clock::system().new_id().to_string();
        let mut params = with_agent(params);
        params["runId"] = json!(id);
        self.history.chosen.push(id.clone());
        self.once("sessions.spawn", params, "conflict").await;
        id
    }

    /// `runs.retry`.
    pub(crate) async fn retry(&mut self, run: &str) -> Spawned {
        self.promised("runs.retry", json!({ "runId": run })).await
    }

    /// `sessions.compact`.
    pub(crate) async fn compact(&mut self, session: &str) -> Spawned {
        let params = json!({ "sessionKey": session });
        self.promised("sessions.compact", params).await
    }

    /// Makes a call that makes a run.
    async fn promised(&mut self, method: &'static str, mut params: Value) -> Spawned {
        let key = format!("key-{}", self.history.promises.len());
        params["idempotencyKey"] = json!(key);
        self.history.promises.push(Promise {
            method,
            params: params.clone(),
            answer: None,
        });
        let at = self.history.promises.len() - 1;
        let answer = self.call(method, params).await;
        let accepted = Spawned::of(&answer);
        self.history.promises[at].answer = Some(answer);
        accepted
    }

    /// `sessions.spawn` of agent explore, unless the parameters say otherwise.
    pub(crate) async fn spawn(&mut self, params: Value) -> Spawned {
        self.promised("sessions.spawn", with_agent(params)).await
    }

    /// `sessions.send`.
    pub(crate) async fn send(&mut self, params: Value) -> Spawned {
        self.promised("sessions.send", params).await
    }

    /// `agent.run`.
    pub(crate) async fn turn(&mut self, session: &str, message: &str) -> Spawned {
        let params = json!({ "sessionKey": session, "message": message });
        self.promised("agent.run", params).await
    }

    /// The root session with this owner and key.
    pub(crate) async fn session(&mut self, owner: &str, key: &str) -> String {
        let params = json!({ "owner": owner, "key": key, "label": key });
        let made = self.call("sessions.create", params).await;
        made["session"]["key"].as_str().unwrap().to_owned()
    }

    /// The run as `runs.get` shows it.
    pub(crate) async fn run(&mut self, id: &str) -> Value {
        self.call("runs.get", json!({ "runId": id })).await
    }

    /// Waits until the run has ended; the run. What is told then stays told.
    pub(crate) async fn ended(&mut self, id: &str) -> Value {
        let params = json!({ "runId": id, "waitTimeout": 240 });
        let waited = self.call("agent.wait", params).await;
        assert_eq!(waited["cause"], "ended", "{waited}");
        let run = waited["runs"][0].clone();
        invariants::same_end(
            self.history
                .ends
                .entry(id.to_owned())
                .or_insert(run.clone()),
            &run,
        );
        run
    }

    /// Waits until the run is in this state.
    pub(crate) async fn in_state(&mut self, id: &str, state: &str) {
        self.until(&format!("run {id} {state}"), async |caller: &mut Caller| {
            (caller.run(id).await["state"] == state).then_some(())
        })
        .await;
    }

    /// Acknowledges what stands in the session's inbox; what each announce says.
    pub(crate) async fn ack_all(&mut self, session: &str) -> Vec<Value> {
        let inbox = self
            .call("sessions.inbox", json!({ "sessionKey": session }))
            .await;
        let announces = inbox["announces"].as_array().unwrap().clone();
        let ids: Vec<&Value> = announces.iter().map(|one| &one["announceId"]).collect();
        if !ids.is_empty() {
            let params = json!({ "sessionKey": session, "announceIds": ids });
            let acked = self.call("sessions.ack", params).await;
            assert_eq!(acked["announceIds"], json!(ids));
            let ids = ids.iter().map(|id| id.as_str().unwrap().to_owned());
            self.history.acked.extend(ids);
        }
        announces
    }

    /// Acknowledges what stands in the session's inbox, but for the end of this run.
    pub(crate) async fn ack_all_but(&mut self, session: &str, run: &str) {
        let inbox = self
            .call("sessions.inbox", json!({ "sessionKey": session }))
            .await;
        let announces = inbox["announces"].as_array().unwrap().iter();
        for announce in announces.filter(|one| one["runId"] != run) {
            let id = &announce["announceId"];
            let params = json!({ "sessionKey": session, "announceIds": [id] });
            // It may have been acknowledged by a call without an answer, and removed since.
            self.once("sessions.ack", params, "not_found").await;
        }
    }

    /// Waits until nothing is open and nothing waits to be told.
    pub(crate) async fn quiet(&mut self) {
        self.until("quiet", async |caller: &mut Caller| {
            is_quiet(&caller.call("gateway.status", json!({})).await)
        })
        .await;
    }

    /// Asks again and again until there is an answer.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&mut Caller) -> Option<T>,
    ) -> T {
        let clock = abide::clock::Clock::system();
        loop {
            if let Some(found) = look(self).await {
                return found;
            }
            assert!(
                clock.monotonic() < super::PATIENCE,
                "{what}: not within {:?}; {}",
                super::PATIENCE,
                self.place.log()
            );
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Waits until the model was asked for this answer.
    pub(crate) async fn until_asked(&mut self, rule: &str, index: usize) {
        let call = (rule.to_owned(), index);
        self.until(&format!("call {call:?}"), async |caller: &mut Caller| {
            // A daemon that died on the way must be noticed.
            caller.call("gateway.ping", json!({})).await;
            caller.place.asked().contains_key(&call).then_some(())
        })
        .await;
    }

    /// Every call and wait is repeated and gets the answer that it had, the daemon stops, and
    /// the rows are checked; gives the rows.
    pub(crate) async fn finish(&mut self) -> Book {
        if self.daemon.is_none() {
            self.start().await;
        }
        self.quiet().await;
        self.repeat_everything().await;
        // What deleted sessions left is taken away behind the answers.
        self.until("all taken away", async |caller: &mut Caller| {
            caller.call("gateway.ping", json!({})).await;
            caller.place.has_nothing_to_purge().then_some(())
        })
        .await;
        self.stop().await;
        let book = self.place.book();
        invariants::check(&book, Moment::Finished, &self.history, &self.place);
        book
    }

    /// Every call gets the answer that it got before, and every wait.
    async fn repeat_everything(&mut self) {
        for promise in self.history.promises.clone() {
            let again = self.call(promise.method, promise.params.clone()).await;
            let first = promise.answer.unwrap();
            if promise.method == "sessions.send" {
                // How far the message has come is told as it is now.
                for name in ["runId", "sessionKey"] {
                    assert_eq!(again[name], first[name], "{}", promise.params);
                }
                continue;
            }
            // Whether the session was made by the call is part of the first answer too.
            assert_eq!(again, first, "{}", promise.params);
        }
        for id in self.history.ends.keys().cloned().collect::<Vec<_>>() {
            self.ended(&id).await;
        }
    }
}
