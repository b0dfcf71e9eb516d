//! A client that outlives the daemon. When the link is lost it checks the rows on disk, restarts
//! the daemon and repeats the unanswered call with its idempotency key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use abide::wire::error::WireError;
use serde_json::{Value, json};

use super::book::StoreRows;
use super::client::{Link, Spawned, is_quiet, kind_of, with_agent};
use super::daemon::Daemon;
use super::place::Place;
use crate::invariants::{self, Moment};

/// Failpoint orders for one daemon process.
#[derive(Clone, Debug)]
pub(crate) struct ArmedFailpoints {
    /// The number of the process, counted from 0.
    pub(crate) boot_index: usize,
    /// The value of `ABIDE_FAILPOINTS`.
    pub(crate) orders: String,
}

impl ArmedFailpoints {
    /// Orders for the daemon process number `life`.
    pub(crate) fn new(life: usize, orders: &str) -> ArmedFailpoints {
        ArmedFailpoints {
            boot_index: life,
            orders: orders.to_owned(),
        }
    }
}

/// What the client knows: accepted calls, and the outcomes that were reported to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Calls that create runs, with the answer if there was one.
    pub(crate) run_calls: Vec<RunCreatingCall>,
    /// Runs whose ids the client chose, without an idempotency key.
    pub(crate) chosen: Vec<String>,
    /// By run: the first answer that reported its end.
    pub(crate) ends: BTreeMap<String, Value>,
    /// Announces whose acknowledgement was answered.
    pub(crate) acked: Vec<String>,
    /// The state that each kill left.
    pub(crate) kills: Vec<Kill>,
    /// The rows after the latest kill.
    pub(crate) latest: Option<StoreRows>,
    /// Number of runs that an editor or a webhook has asked for, each with its own key.
    pub(crate) prompts: usize,
    /// Steps of which a user has decided that they have not happened, once per decision.
    pub(crate) not_done: Vec<String>,
}

/// The state that a kill left. A step is identified by its run and its position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kill {
    /// Steps that were open and held by a task.
    pub(crate) held: BTreeSet<(String, i64)>,
    /// Steps that had an outcome.
    pub(crate) ended: BTreeSet<(String, i64)>,
    /// Number of model calls, by rule and index of the answer.
    pub(crate) model_calls: BTreeMap<(String, usize), usize>,
}

impl Kill {
    pub(super) fn of(book: &StoreRows, asked: BTreeMap<(String, usize), usize>) -> Kill {
        let mut kill = Kill {
            model_calls: asked,
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

/// A call that creates a run.
#[derive(Clone, Debug)]
pub(crate) struct RunCreatingCall {
    /// The method, such as `sessions.spawn` or `agent.run`.
    pub(crate) method: &'static str,
    /// Parameters, including an idempotency key.
    pub(crate) params: Value,
    /// The answer, once there was one.
    pub(crate) answer: Option<Value>,
}

/// Kills at random instants: each daemon process is killed after a time that `next` gives, while
/// `left` is positive.
pub(crate) struct RandomKills {
    /// Number of kills still to come.
    pub(crate) left: usize,
    /// Gives the time until the next process is killed.
    pub(crate) next: Box<dyn FnMut() -> Duration>,
}

/// A client that outlives the daemon.
pub(crate) struct Caller {
    pub(super) place: Place,
    pub(super) daemon: Option<Daemon>,
    pub(super) link: Option<Link>,
    pub(super) arm: Option<ArmedFailpoints>,
    pub(super) traced: bool,
    pub(super) boot_count: usize,
    pub(super) ordered_kill: bool,
    pub(super) hunt: Option<RandomKills>,
    pub(crate) history: History,
}

impl Caller {
    /// Starts the first daemon process. With `traced`, the failpoints that each process passes are
    /// recorded ([`Caller::passes`]).
    pub(crate) async fn begin(place: Place, arm: Option<ArmedFailpoints>, traced: bool) -> Caller {
        let mut caller = Caller {
            place,
            daemon: None,
            link: None,
            arm,
            traced,
            boot_count: 0,
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

    /// The client's knowledge and the daemon's folder.
    pub(crate) fn into_parts(self) -> (History, Place) {
        (self.history, self.place)
    }

    /// Did the ordered kill happen?
    pub(crate) fn was_killed_as_ordered(&self) -> bool {
        self.ordered_kill
    }

    /// For each process, the number of passes of each failpoint.
    pub(crate) fn passes(&self) -> Vec<BTreeMap<String, usize>> {
        (0..self.boot_count)
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

    /// Makes one call and repeats it until it is answered, whenever the daemon is killed.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        match self.attempt(method, &params).await {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {params}: {error} {:?}", error.data),
        }
    }

    /// As [`Caller::call`], but a refusal is returned too. After a kill the call is repeated, and
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

    /// Makes a call whose repeat is refused as `kind` if it was carried out before; `None` then.
    pub(crate) async fn once(&mut self, method: &str, params: Value, kind: &str) -> Option<Value> {
        match self.attempt(method, &params).await {
            Ok(answer) => Some(answer),
            Err(error) if kind_of(&error) == kind => None,
            Err(error) => panic!("{method} {params}: {error} {:?}", error.data),
        }
    }

    /// Calls `sessions.spawn` without a key, with a run id that the client chose.
    pub(crate) async fn spawn_chosen(&mut self, params: Value) -> String {
        let id = abide::clock::Clock::system().new_id().to_string();
        let mut params = with_agent(params);
        params["runId"] = json!(id);
        self.history.chosen.push(id.clone());
        self.once("sessions.spawn", params, "conflict").await;
        id
    }

    /// An editor or a webhook asks for a run.
    pub(crate) fn prompted(&mut self) {
        self.history.prompts += 1;
    }

    /// Calls `runs.retry`.
    pub(crate) async fn retry(&mut self, run: &str) -> Spawned {
        self.call_creating_run("runs.retry", json!({ "runId": run }))
            .await
    }

    /// Calls `sessions.compact`.
    pub(crate) async fn compact(&mut self, session: &str) -> Spawned {
        let params = json!({ "sessionKey": session });
        self.call_creating_run("sessions.compact", params).await
    }

    /// Makes a call that creates a run, with an idempotency key.
    async fn call_creating_run(&mut self, method: &'static str, mut params: Value) -> Spawned {
        let key = format!("key-{}", self.history.run_calls.len());
        params["idempotencyKey"] = json!(key);
        self.history.run_calls.push(RunCreatingCall {
            method,
            params: params.clone(),
            answer: None,
        });
        let at = self.history.run_calls.len() - 1;
        let answer = self.call(method, params).await;
        let accepted = Spawned::of(&answer);
        self.history.run_calls[at].answer = Some(answer);
        accepted
    }

    /// Calls `sessions.spawn` for agent explore, unless the parameters name another.
    pub(crate) async fn spawn(&mut self, params: Value) -> Spawned {
        self.call_creating_run("sessions.spawn", with_agent(params))
            .await
    }

    /// Calls `sessions.send`.
    pub(crate) async fn send(&mut self, params: Value) -> Spawned {
        self.call_creating_run("sessions.send", params).await
    }

    /// Calls `agent.run`.
    pub(crate) async fn turn(&mut self, session: &str, message: &str) -> Spawned {
        let params = json!({ "sessionKey": session, "message": message });
        self.call_creating_run("agent.run", params).await
    }

    /// Creates or finds the root session with this owner and key; returns the key.
    pub(crate) async fn session(&mut self, owner: &str, key: &str) -> String {
        let params = json!({ "owner": owner, "key": key, "label": key });
        let made = self.call("sessions.create", params).await;
        made["session"]["key"].as_str().unwrap().to_owned()
    }

    /// The run as `runs.get` shows it.
    pub(crate) async fn run(&mut self, id: &str) -> Value {
        self.call("runs.get", json!({ "runId": id })).await
    }

    /// Waits until the run has ended and returns it. Later answers must report the same end.
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

    /// Acknowledges everything in the session's inbox; returns the content of each announce.
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

    /// Acknowledges everything in the session's inbox except the end of this run.
    pub(crate) async fn ack_all_but(&mut self, session: &str, run: &str) {
        let inbox = self
            .call("sessions.inbox", json!({ "sessionKey": session }))
            .await;
        let announces = inbox["announces"].as_array().unwrap().iter();
        for announce in announces.filter(|one| one["runId"] != run) {
            let id = &announce["announceId"];
            let params = json!({ "sessionKey": session, "announceIds": [id] });
            // It may have been acknowledged by an unanswered call, and removed since.
            self.once("sessions.ack", params, "not_found").await;
        }
    }

    /// Waits until no run is open and no announce is pending.
    pub(crate) async fn quiet(&mut self) {
        self.until("quiet", async |caller: &mut Caller| {
            is_quiet(&caller.call("gateway.status", json!({})).await)
        })
        .await;
    }

    /// Polls until there is an answer.
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
                clock.monotonic() < super::TEST_TIMEOUT,
                "{what}: not within {:?}; {}",
                super::TEST_TIMEOUT,
                self.place.log()
            );
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Waits until the model was asked for this answer.
    pub(crate) async fn until_model_called(&mut self, rule: &str, index: usize) {
        let call = (rule.to_owned(), index);
        self.until(&format!("call {call:?}"), async |caller: &mut Caller| {
            // Detects a daemon that was killed meanwhile.
            caller.call("gateway.ping", json!({})).await;
            caller.place.model_calls().contains_key(&call).then_some(())
        })
        .await;
    }

    /// Repeats every call and wait, expects the earlier answers, stops the daemon, checks the rows
    /// and returns them.
    pub(crate) async fn finish(&mut self) -> StoreRows {
        if self.daemon.is_none() {
            self.start().await;
        }
        self.quiet().await;
        self.repeat_everything().await;
        // Rows of deleted sessions are removed after the answers.
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

    /// Expects the earlier answer to every call and every wait.
    async fn repeat_everything(&mut self) {
        for promise in self.history.run_calls.clone() {
            let again = self.call(promise.method, promise.params.clone()).await;
            let first = promise.answer.unwrap();
            if promise.method == "sessions.send" {
                // The state of the message is reported as it is now.
                for name in ["runId", "sessionKey"] {
                    assert_eq!(again[name], first[name], "{}", promise.params);
                }
                continue;
            }
            // The first answer also includes whether the call created the session.
            assert_eq!(again, first, "{}", promise.params);
        }
        for id in self.history.ends.keys().cloned().collect::<Vec<_>>() {
            self.ended(&id).await;
        }
    }
}
