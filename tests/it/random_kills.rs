//! Kills at random instants under a busy, mixed workload. The test does not control where the kills
//! happen; the checker must pass after each of them and at the end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Caller, Place, RandomKills, Script, Spawned, calls, run, says};

/// Number of daemons that are killed repeatedly in parallel, each in its own folder.
const PACKS: u64 = 4;
/// Number of kills of each daemon.
const KILLS: usize = 27;
/// Maximum number of open runs of one client.
const OPEN: usize = 16;
/// Number of tasks in the script. A client that needs more indicates a defect.
const TASKS: usize = 1000;

/// A small random number generator (splitmix64), so that a failure can be reproduced.
struct RandomGenerator(u64);

impl RandomGenerator {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// `ABIDE_TEST_SEED`, or a different seed each time.
fn seed() -> u64 {
    if let Ok(seed) = std::env::var("ABIDE_TEST_SEED") {
        return seed.parse().unwrap();
    }
    getrandom::u64().unwrap() % 1_000_000
}

/// Takes some 15 s: four daemons in parallel, 27 kills each, every one during work.
#[test]
fn more_than_a_hundred_kills_at_random_instants_lose_and_double_nothing() {
    let seed = seed();
    println!("ABIDE_TEST_SEED={seed}");
    let hits: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let packs: Vec<_> = (0..PACKS)
            .map(|pack| scope.spawn(move || run(hunt(seed + pack))))
            .collect();
        packs.into_iter().map(|pack| pack.join().unwrap()).collect()
    });
    let kills: usize = hits.iter().map(|(kills, _)| kills).sum();
    let middle: usize = hits.iter().map(|(_, middle)| middle).sum();
    println!("{kills} kills, {middle} of them in the middle of a step");
    assert!(kills >= 100, "{kills}");
    assert!(
        middle * 2 > kills,
        "only {middle} of {kills} hit a run in the middle of a step"
    );
}

fn task(number: usize) -> String {
    format!("[t{number:04}]")
}

/// Each task reads in two or three rounds of parallel calls, at a pace that spends most of its time
/// inside steps.
fn place(dice: &mut RandomGenerator) -> Place {
    let mut script = Script::new().on_announce("*", [says("heard").after_ms(20)]);
    for number in 0..TASKS {
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

/// One client and its daemon; returns the number of kills, and of those that found a run in the
/// middle of a step.
async fn hunt(seed: u64) -> (usize, usize) {
    let mut dice = RandomGenerator(seed);
    let place = place(&mut dice);
    let mut caller = Caller::begin(place, None, false).await;
    let mut client = Workload::prepare(&mut caller).await;
    let mut lives = RandomGenerator(seed ^ 0xabcd);
    caller.kill_randomly(RandomKills {
        left: KILLS,
        next: Box::new(move || Duration::from_millis(60 + lives.roll(450))),
    });
    caller.kill_once().await;
    while caller.has_kills_left() {
        client.go_on(&mut caller, &mut dice).await;
    }
    client.end(&mut caller).await;
    caller.finish().await;
    let kills = &caller.history.kills;
    let middle = kills.iter().filter(|kill| !kill.held.is_empty()).count();
    (kills.len(), middle)
}

/// The workload of one client.
struct Workload {
    parents: Vec<String>,
    inboxes: Vec<String>,
    open: Vec<(usize, Spawned)>,
    tasks: usize,
}

impl Workload {
    async fn prepare(caller: &mut Caller) -> Workload {
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
        }
    }

    /// Starts something new, or reads existing state.
    async fn go_on(&mut self, caller: &mut Caller, dice: &mut RandomGenerator) {
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
        assert!(number < TASKS, "the script has no more tasks");
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
    async fn end(&mut self, caller: &mut Caller) {
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
