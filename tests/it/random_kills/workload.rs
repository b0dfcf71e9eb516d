//! The busy, mixed workload of one client, against a model whose answers are known.

use serde_json::{Value, json};

use crate::harness::{Caller, Place, Script, Spawned, calls, says};

/// Maximum number of open runs of one client.
const OPEN: usize = 16;

/// A small random number generator (splitmix64), so that a failure can be reproduced.
pub(super) struct RandomGenerator(pub(super) u64);

impl RandomGenerator {
    /// A number below `below`.
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

fn task(number: usize) -> String {
    format!("[t{number:06}]")
}

/// Each task reads in two or three rounds of parallel calls, at a pace that spends most of its time
/// inside steps.
pub(super) fn place(dice: &mut RandomGenerator, tasks: usize) -> Place {
    let mut script = Script::new().on_announce("*", [says("heard").after_ms(20)]);
    for number in 0..tasks {
        let mut pace = || 20 + dice.roll(60);
        let look = calls("grep", json!({ "pattern": "alpha" }))
            .and("read", json!({ "path": "notes.txt" }))
            .after_ms(pace());
        let again = calls("list", json!({ "path": "src" }))
            .and("glob", json!({ "pattern": "**/*.rs" }))
            .and("read", json!({ "path": "missing" }))
            .after_ms(pace());
        let answer = says(&format!("{} is done", task(number))).after_ms(pace());
        let rounds = match number % 3 {
            0 => vec![answer],
            1 => vec![look, answer],
            _ => vec![look, again, answer],
        };
        script = script.on(&task(number), rounds);
    }
    Place::new(script)
        .with("lanes.main", "3")
        .with("lanes.subagent", "4")
}

/// The workload of one client.
pub(super) struct Workload {
    parents: Vec<String>,
    inboxes: Vec<String>,
    open: Vec<(usize, Spawned)>,
    tasks: usize,
    script: usize,
}

impl Workload {
    /// Creates its sessions. The script has `script` tasks.
    pub(super) async fn prepare(caller: &mut Caller, script: usize) -> Workload {
        let mut inboxes = Vec::new();
        for number in 0..3 {
            inboxes.push(caller.session("client", &format!("bot:{number}")).await);
        }
        let mut parents = inboxes.clone();
        for number in 0..2 {
            parents.push(
                caller
                    .session("agent", &format!("agent:build:parent{number}"))
                    .await,
            );
        }
        Workload {
            parents,
            inboxes,
            open: Vec::new(),
            tasks: 0,
            script,
        }
    }

    /// Tasks that were given so far.
    pub(super) fn given(&self) -> usize {
        self.tasks
    }

    /// Starts something new, or reads existing state.
    pub(super) async fn go_on(&mut self, caller: &mut Caller, dice: &mut RandomGenerator) {
        match dice.roll(8) {
            0..=4 if self.open.len() < OPEN => self.ask(caller, dice).await,
            5 => {
                let inbox = usize::try_from(dice.roll(self.inboxes.len() as u64)).unwrap();
                caller.ack_all(&self.inboxes[inbox]).await;
            }
            6 => {
                let params = json!({ "states": ["queued", "running", "settling"] });
                caller.call("runs.list", params).await;
            }
            _ => self.take_what_ended(caller).await,
        }
    }

    /// A spawn with or without a parent, or a turn.
    async fn ask(&mut self, caller: &mut Caller, dice: &mut RandomGenerator) {
        let number = self.tasks;
        self.tasks += 1;
        assert!(number < self.script, "the script has no more tasks");
        let task = task(number);
        let choice = usize::try_from(dice.roll(self.parents.len() as u64 + 2)).unwrap();
        let run = match self.parents.get(choice) {
            Some(parent) => {
                caller
                    .spawn(json!({ "task": task, "parent": parent, "label": task }))
                    .await
            }
            None if choice == self.parents.len() => caller.spawn(json!({ "task": task })).await,
            None => {
                let talk = format!("agent:build:talk{}", dice.roll(4));
                caller.turn(&talk, &task).await
            }
        };
        self.open.push((number, run));
    }

    /// Waits briefly for one of the open runs.
    async fn take_what_ended(&mut self, caller: &mut Caller) {
        if self.open.is_empty() {
            return;
        }
        let ids: Vec<&str> = self.open.iter().map(|(_, run)| run.id.as_str()).collect();
        let params = json!({ "runIds": ids, "mode": "any", "waitTimeout": 0.05 });
        let waited = caller.call("agent.wait", params).await;
        let ended: Vec<Value> = waited["runs"].as_array().unwrap().clone();
        for run in ended.iter().filter(|run| run["status"] != "pending") {
            let at = self
                .open
                .iter()
                .position(|(_, open)| run["runId"] == open.id.as_str());
            let (number, open) = self.open.swap_remove(at.unwrap());
            assert_eq!(run["result"], format!("{} is done", task(number)), "{run}");
            caller.ended(&open.id).await;
        }
    }

    /// Checks that everything ends as expected.
    pub(super) async fn end(&mut self, caller: &mut Caller) {
        for (number, run) in std::mem::take(&mut self.open) {
            let ended = caller.ended(&run.id).await;
            assert_eq!(
                ended["result"],
                format!("{} is done", task(number)),
                "{ended}"
            );
        }
        caller.quiet().await;
        for inbox in &self.inboxes {
            caller.ack_all(inbox).await;
        }
    }
}
