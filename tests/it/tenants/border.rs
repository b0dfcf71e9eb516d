//! The border between orgs, for every method: objects of each kind exist in one org, and another org
//! calls each method with their ids, keys, labels and names. The answer must be the one for an object
//! that exists nowhere, and nothing may change. A method without an entry in [`probes`] fails.

use std::collections::{BTreeMap, BTreeSet};

use abide::wire::method::{Concerns, Effect, MethodRow};
use abide::wire::methods::METHODS;
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};

use super::{ALL, user_of};
use crate::harness::{
    Daemon, FakeLink, HonestNode, Link, Place, Script, calls, eventually, kind_of, run, says,
};

/// In every text of the first org's objects, and in no other.
const MARK: &str = "zanzibar";
/// An id that nothing has.
const NOWHERE: &str = "01936f0e-0000-7000-8000-0000000000ff";

/// Another one, for parameters beside the probed one.
const ELSEWHERE: &str = "01936f0e-0000-7000-8000-0000000000fe";

/// Methods that create objects of given names.
const CREATING: &[&str] = &[
    "sessions.create",
    "sessions.spawn",
    "agent.run",
    "agents.create",
    "tokens.create",
    "nodes.invite",
];

fn place() -> Place {
    let memory = json!({"text": format!("{MARK} ships on fridays")});
    let question = json!({"question": format!("which {MARK}?"), "choices": ["a", "b"]});
    let long = "x".repeat(60_000);
    let place = Place::new(
        Script::new()
            .on("[say]", [says(&format!("{MARK} said"))])
            .on(
                "[look]",
                [calls("read", json!({"path": "long.txt"})), says("looked")],
            )
            .on("[keep]", [calls("memory_save", memory), says("kept")])
            .on("[ask]", [calls("ask", question), says("asked")])
            .on("[list]", [calls("list", json!({})), says("listed")])
            .on("[hold]", [says("held").held_by("go")])
            .on("other", [says("other said")])
            .on_announce("[", [says("NO_REPLY")]),
    )
    .with_agent("careful", "gate: {list: ask}");
    std::fs::write(place.work().join("long.txt"), long).unwrap();
    place
}

/// The objects of the first org.
struct Objects {
    /// By kind: the id, key or name of an object.
    names: BTreeMap<&'static str, String>,
}

impl Objects {
    fn of(&self, kind: &str) -> &str {
        self.names.get(kind).unwrap_or_else(|| panic!("no {kind}"))
    }

    /// Every name that the other org must not learn.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        self.names.values().map(String::as_str).chain([MARK])
    }
}

/// Creates an object of each kind for the owner. When it returns, nothing of them changes by itself.
async fn objects(owner: &Link) -> Objects {
    let mut names = BTreeMap::new();
    let mut keep = |kind, name: &Value| names.insert(kind, name.as_str().unwrap().to_owned());
    let bot = json!({"owner": "client", "key": "client:secretbot", "label": format!("{MARK} bot")});
    owner.call("sessions.create", bot).await;
    let desk = json!({"agent": "build", "key": "agent:build:secretdesk", "label": format!("{MARK} desk"), "title": MARK});
    owner.call("sessions.create", desk).await;
    keep("client session", &json!("client:secretbot"));
    keep("session", &json!("agent:build:secretdesk"));
    keep("label", &json!(format!("{MARK} desk")));
    for (kind, task, agent) in [
        ("run", "[say]", "explore"),
        ("looked", "[look]", "explore"),
        ("kept", "[keep]", "build"),
        ("asking", "[ask]", "build"),
        ("approving", "[list]", "careful"),
        ("open", "[hold]", "explore"),
    ] {
        let params = json!({
            "task": format!("{task} {MARK}"), "agent": agent, "parent": "client:secretbot",
            "label": format!("{MARK} {kind}"), "idempotencyKey": format!("key {kind}"),
        });
        let spawned = owner.call("sessions.spawn", params).await;
        keep(kind, &spawned["runId"]);
        let id = spawned["runId"].as_str().unwrap();
        match kind {
            "asking" | "approving" => owner.in_state(id, "paused").await,
            "open" => owner.in_state(id, "running").await,
            _ => drop(owner.ended(id).await),
        }
        if kind == "open" {
            keep("child session", &spawned["childSessionKey"]);
        }
    }
    let turn = owner
        .turn("agent:build:secretdesk", &format!("[say] {MARK}"))
        .await;
    owner.ended(&turn.id).await;
    let steps = owner
        .call("runs.steps", json!({"runId": names["looked"]}))
        .await;
    let calls: Vec<&Value> = steps["steps"].as_array().unwrap().iter().collect();
    let call = calls
        .iter()
        .find(|step| step["toolCallId"].is_string())
        .unwrap();
    names.insert("call", call["toolCallId"].as_str().unwrap().to_owned());
    names.insert("step", call["stepId"].as_str().unwrap().to_owned());
    let first = async |method: &str, list: &str| {
        let found = owner.call(method, json!({})).await;
        found[list][0]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{found}"))
            .to_owned()
    };
    names.insert("question", first("questions.list", "questions").await);
    names.insert("approval", first("approvals.list", "approvals").await);
    names.insert("memory", first("memory.list", "memories").await);
    let scout = json!({"name": "secretscout", "definition": {"description": MARK, "mode": "all"}});
    owner.call("agents.create", scout).await;
    names.insert("agent", "secretscout".to_owned());
    let made = json!({"user": "secretuser", "scopes": ["read"], "label": MARK});
    let made = owner.call("tokens.create", made).await;
    names.insert("token", made["token"]["id"].as_str().unwrap().to_owned());
    names.insert("user", "secretuser".to_owned());
    let announce = eventually("the announces", async || {
        let inbox = owner
            .call("sessions.inbox", json!({"sessionKey": "client:secretbot"}))
            .await;
        let all = inbox["announces"].as_array().unwrap();
        (all.len() == 3).then(|| all[0]["announceId"].as_str().unwrap().to_owned())
    });
    names.insert("announce", announce.await);
    Objects { names }
}

/// Pairs and connects a node of the first org, and lets another one wait to be admitted; both stay
/// while the links do.
async fn nodes(daemon: &Daemon, owner: &Link, objects: &mut Objects) -> [FakeLink; 2] {
    let invited = owner
        .call("nodes.invite", json!({"name": "secretmac"}))
        .await;
    let mut paired = HonestNode::new();
    assert!(
        paired
            .pair(daemon.url(), "mac", invited["code"].as_str())
            .await
    );
    let token = paired.token.clone().unwrap();
    let mut link = FakeLink::open(daemon.url(), "/node", Some(&token))
        .await
        .unwrap();
    link.hello(&paired.key, json!({})).await;
    link.proof("/node").await.unwrap();
    assert_eq!(link.next().await.unwrap()["type"], "welcome");
    let mut waiting = FakeLink::open(daemon.url(), "/pair", None).await.unwrap();
    let key = HonestNode::new().key;
    waiting.ask(&key, json!({"name": "secretwaiting"})).await;
    waiting.proof("/pair").await.unwrap();
    let listed = eventually("the node waits", async || {
        let listed = owner.call("nodes.list", json!({})).await;
        listed["waiting"][0]["code"].is_string().then_some(listed)
    })
    .await;
    for (kind, name) in [
        ("node", &json!("secretmac")),
        ("node id", &listed["nodes"][0]["id"]),
        ("fingerprint", &listed["nodes"][0]["fingerprint"]),
        ("waiting node", &json!("secretwaiting")),
        ("code", &listed["waiting"][0]["code"]),
    ] {
        objects
            .names
            .insert(kind, name.as_str().unwrap().to_owned());
    }
    [link, waiting]
}

/// Parameters that name an object, once for each way of naming it; `at` names the kind of object
/// whose name is put there, or one that exists nowhere.
struct Probe {
    params: Value,
    at: &'static str,
    kind: &'static str,
}

fn probe(at: &'static str, kind: &'static str, params: Value) -> Probe {
    Probe { params, at, kind }
}

/// How each method can name objects; empty for a method that names none. `None`: no entry.
fn probes(method: &str) -> Option<Vec<Probe>> {
    let session = |params| vec![probe("sessionKey", "session", params)];
    let run = |params: Value| {
        let kinds = ["run", "open", "asking", "approving"];
        let all = kinds.map(|kind| probe("runId", kind, params.clone()));
        Vec::from(all)
    };
    let none = Vec::new;
    Some(match method {
        "rpc.discover" | "gateway.hello" | "gateway.ping" | "gateway.status" | "gateway.audit" => {
            none()
        }
        "nodes.list" => none(),
        "nodes.get" | "nodes.remove" => vec![
            probe("node", "node", json!({})),
            probe("node", "node id", json!({})),
        ],
        "nodes.approve" | "nodes.refuse" => vec![
            probe("node", "node", json!({})),
            probe("node", "node id", json!({})),
            probe("code", "code", json!({})),
        ],
        "nodes.invite" => vec![probe("name", "node", json!({}))],
        "nodes.rename" => vec![probe("node", "node", json!({"name": "mine"}))],
        "nodes.answer" => vec![probe(
            "id",
            "node id",
            json!({"digest": "9f", "decision": "allow"}),
        )],
        "nodes.call" => {
            let params = json!({"call": {"command": "system.run", "argv": ["true"]}});
            vec![
                probe("node", "node", params.clone()),
                probe("node", "node id", params),
            ]
        }
        "tokens.create" => vec![probe("user", "user", json!({"scopes": ["read"]}))],
        "tokens.list" => none(),
        "tokens.revoke" => vec![probe("id", "token", json!({}))],
        "sessions.create" => vec![
            probe("key", "session", json!({"agent": "build"})),
            probe("label", "label", json!({"agent": "build"})),
            probe("agent", "agent", json!({})),
        ],
        "sessions.spawn" => vec![
            probe(
                "parent",
                "client session",
                json!({"task": "other", "agent": "explore"}),
            ),
            probe("agent", "agent", json!({"task": "other"})),
            probe(
                "label",
                "label",
                json!({"task": "other", "agent": "explore"}),
            ),
        ],
        "sessions.get" | "sessions.history" => session(json!({})),
        "sessions.list" => vec![
            probe("parent", "client session", json!({})),
            probe("label", "label", json!({"kind": "all"})),
            probe("search", "label", json!({"kind": "all"})),
            probe("agent", "agent", json!({"kind": "all"})),
        ],
        "sessions.inbox" => vec![probe("sessionKey", "client session", json!({}))],
        "sessions.ack" => vec![
            probe("sessionKey", "client session", json!({"announceIds": []})),
            probe(
                "announceIds",
                "announce",
                json!({"sessionKey": "client:other"}),
            ),
        ],
        "sessions.cancel" => session(json!({"all": true})),
        "sessions.patch" => session(json!({"title": "mine"})),
        "sessions.set_servers" => session(json!({"servers": []})),
        "sessions.reset" | "sessions.delete" => session(json!({"force": true})),
        "sessions.compact" => session(json!({})),
        "sessions.send" => vec![
            probe("sessionKey", "session", json!({"message": "other"})),
            probe("label", "label", json!({"message": "other"})),
            probe(
                "from",
                "session",
                json!({"message": "other", "sessionKey": "agent:build:other"}),
            ),
        ],
        "agent.run" => vec![
            probe(
                "sessionKey",
                "session",
                json!({"message": "other", "agent": "build"}),
            ),
            probe(
                "agent",
                "agent",
                json!({"message": "other", "sessionKey": "agent:build:other"}),
            ),
        ],
        "agent.wait" => vec![
            probe("runId", "run", json!({"waitTimeout": 0})),
            probe("runId", "open", json!({"waitTimeout": 0})),
            probe("runIds", "run", json!({"waitTimeout": 0})),
        ],
        "runs.get" | "runs.steps" | "runs.cancel" => run(json!({})),
        "runs.list" => vec![
            probe("sessionKey", "session", json!({})),
            probe("parent", "client session", json!({})),
            probe("tree", "run", json!({"total": true})),
            probe("agent", "agent", json!({"total": true})),
            probe("label", "label", json!({"total": true})),
        ],
        "runs.output" => {
            let mut all = vec![probe("toolCallId", "call", json!({"runId": ELSEWHERE}))];
            all.extend(run(json!({"toolCallId": "call-1", "offset": 0})));
            all.push(probe("runId", "looked", json!({"toolCallId": "call-1"})));
            all
        }
        "runs.steer" => run(json!({"message": "look"})),
        "runs.resolve" => {
            let mut all = run(json!({"stepId": ELSEWHERE, "decision": "done"}));
            all.push(probe(
                "stepId",
                "step",
                json!({"runId": ELSEWHERE, "decision": "done"}),
            ));
            all
        }
        "runs.provide_env" => run(json!({"env": {"A": "b"}})),
        "runs.retry" | "runs.retry_announce" | "runs.dismiss_announce" => run(json!({})),
        "agents.list" => none(),
        "skills.refresh" => session(json!({})),
        "agents.get" => vec![probe("agent", "agent", json!({}))],
        "agents.create" => vec![probe(
            "name",
            "agent",
            json!({"definition": {"description": "Mine.", "mode": "all"}}),
        )],
        "agents.update" => vec![probe(
            "agent",
            "agent",
            json!({"definition": {"description": "Mine.", "mode": "all"}}),
        )],
        "agents.delete" => vec![probe("agent", "agent", json!({}))],
        "tools.list" => vec![
            probe("agent", "agent", json!({})),
            probe("sessionKey", "session", json!({})),
        ],
        // Folders belong to no org.
        "skills.list" => none(),
        "skills.snapshot" => vec![probe("agent", "agent", json!({}))],
        "memory.list" => none(),
        "memory.search" => vec![probe("query", "label", json!({}))],
        "memory.delete" => vec![probe("ids", "memory", json!({}))],
        "usage.summary" => vec![
            probe("sessionKey", "session", json!({})),
            probe("tree", "run", json!({})),
            probe("user", "user", json!({})),
            probe("agent", "agent", json!({})),
        ],
        "questions.answer" => vec![
            probe("id", "question", json!({"text": "b"})),
            probe("id", "question", json!({"choice": "b"})),
        ],
        "questions.list" | "approvals.list" => session(json!({"tree": true})),
        "approvals.resolve" => vec![
            probe("id", "approval", json!({"decision": "allow"})),
            probe("id", "approval", json!({"decision": "deny"})),
        ],
        "approvals.remembered" => none(),
        "approvals.forget" => vec![probe("id", "approval", json!({}))],
        "events.subscribe" => vec![
            probe("sessionKey", "session", json!({})),
            probe("runId", "open", json!({})),
            probe("tree", "open", json!({})),
        ],
        // The id is one of the connection itself.
        "events.unsubscribe" => vec![probe("subscription", "run", json!({}))],
        _ => return None,
    })
}

/// Some name of this shape that nothing has.
fn nowhere(name: &str) -> String {
    match name.len() == NOWHERE.len() && name.matches('-').count() == 4 {
        true => NOWHERE.to_owned(),
        false if name.contains(':') => "agent:build:nowhere".to_owned(),
        false if name.contains(' ') => "nowhere at all".to_owned(),
        false => "nowhere".to_owned(),
    }
}

/// A client's session for a client's key, an agent's for an agent's.
fn nowhere_like(name: &str) -> String {
    match name.starts_with("client:") {
        true => "client:nowhere".to_owned(),
        false => nowhere(name),
    }
}

fn with(params: &Value, at: &str, name: &str) -> Value {
    let mut params = params.clone();
    params[at] = match at.ends_with("Ids") || at == "ids" {
        true => json!([name]),
        false => json!(name),
    };
    params
}

/// The answer without what differs between two calls in any case: the name of the object, ids that
/// the daemon makes, and numbers and times.
fn alike(answer: &Value, name: &str) -> Value {
    match answer {
        Value::String(text) => {
            let text = text.replace(name, "NAME");
            let is_id = |part: &str| part.len() == 36 && part.matches('-').count() == 4;
            let split = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
            let mut plain = text.clone();
            for part in text.split(split).filter(|part| is_id(part)) {
                plain = plain.replace(part, "ID");
            }
            json!(match () {
                () if text.len() == 24 && text.ends_with('Z') => "TIME",
                () if text.starts_with("abide_") => "TOKEN",
                () => &plain,
            })
        }
        Value::Number(_) => json!(0),
        Value::Array(items) => items.iter().map(|one| alike(one, name)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, one)| match key.as_str() {
                // A setup code is made at random.
                "code" if one.is_string() => (key.clone(), json!("CODE")),
                _ => (key.clone(), alike(one, name)),
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

async fn answer(link: &Link, method: &str, params: &Value) -> Value {
    match link.attempt(method, params).await {
        Ok(answer) => json!({"ok": answer}),
        Err(error) => {
            let error = error.unwrap_or_else(|| panic!("{method} {params}: the link is lost"));
            assert_ne!(kind_of(&error), "internal", "{method} {params}: {error}");
            json!({"error": error.message, "data": error.data})
        }
    }
}

/// The rows that another org must not change: those of the first org, and those of tables without an
/// org.
fn rows(place: &Place) -> BTreeMap<String, BTreeSet<String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(place.database(), flags).unwrap();
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = db.prepare(sql).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let tables: Vec<String> = tables.map(Result::unwrap).collect();
    let mut all = BTreeMap::new();
    // They change with every write, whosever it is, or record time.
    for table in tables
        .iter()
        .filter(|name| !["counters", "boots"].contains(&name.as_str()))
    {
        let mut found = db.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let org = found.column_names().position(|name| name == "org");
        let width = found.column_count();
        let mut rows = found.query([]).unwrap();
        let mut texts = BTreeSet::new();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<Cell> = (0..width).map(|at| row.get(at).unwrap()).collect();
            let is_of_first = org.is_none_or(|at| cells[at] == Cell::Text("default".to_owned()));
            if is_of_first {
                texts.insert(format!("{cells:?}"));
            }
        }
        all.insert(table.clone(), texts);
    }
    all
}

/// What is wrong with an answer: secrets of the first org in it.
fn told(what: &str, answer: &Value, objects: &Objects) -> Option<String> {
    let text = answer.to_string();
    let secret = objects.secrets().find(|secret| text.contains(*secret))?;
    Some(format!("{what}: {secret} is in {text}"))
}

/// Calls `row` with each probe, once for an object of the first org and once for none; returns what
/// is wrong.
async fn cross(other: &Link, row: &MethodRow, probes: &[Probe], objects: &Objects) -> Vec<String> {
    let name = row.name;
    let mut wrong = Vec::new();
    for object in row.object {
        // A folder is no object of an org.
        if *object != "workspace" && probes.iter().all(|probe| probe.at != *object) {
            wrong.push(format!("{name}: no probe of its object {object}"));
        }
    }
    for Probe { params, at, kind } in probes {
        let real = objects.of(kind);
        let absent = nowhere_like(real);
        let found = answer(other, name, &with(params, at, real)).await;
        let missing = answer(other, name, &with(params, at, &absent)).await;
        let what = format!("{name} {params} with a {kind} as {at}");
        let (found, missing) = (alike(&found, real), alike(&missing, &absent));
        // Parameters that the method does not take would prove nothing.
        let message = found["error"].as_str().unwrap_or_default();
        if found["data"]["kind"] == "invalid_params" && !message.ends_with("no such session") {
            wrong.push(format!("{what} is not called: {found}"));
        }
        if found != missing {
            wrong.push(format!("{what}: {found}, and for none: {missing}"));
        }
        // What the caller sent comes back; nothing else of the object does.
        wrong.extend(told(&what, &found, objects));
    }
    wrong
}

#[test]
fn no_method_crosses_the_border_between_orgs() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let mut objects = objects(&owner).await;
        let _links = nodes(&daemon, &owner, &mut objects).await;
        let other = user_of(&daemon, "other", ALL).await;
        let mine = json!({"owner": "client", "key": "client:other"});
        other.call("sessions.create", mine).await;
        other
            .call(
                "sessions.create",
                json!({"agent": "build", "key": "agent:build:other"}),
            )
            .await;
        let before = rows(&place);
        // What creates objects of the same names in the other org comes last.
        let mut methods = METHODS.to_vec();
        methods.sort_by_key(|row| match row.effect {
            Effect::Reads => 0,
            Effect::Changes => 1 + usize::from(CREATING.contains(&row.name)),
        });
        let mut wrong = Vec::new();
        for row in methods {
            if row.concerns == Concerns::Daemon {
                let refused = other.refused(row.name, json!({})).await;
                assert_eq!(kind_of(&refused), "forbidden", "{}", row.name);
                assert!(refused.message.contains("concerns the whole daemon"));
                continue;
            }
            let probes = probes(row.name);
            let probes = probes.unwrap_or_else(|| panic!("{} has no entry in `probes`", row.name));
            if row.effect == Effect::Reads {
                let whole = answer(&other, row.name, &json!({})).await;
                wrong.extend(told(row.name, &whole, &objects));
            }
            wrong.extend(cross(&other, row, &probes, &objects).await);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        let after = rows(&place);
        for (table, rows) in &before {
            let lost: Vec<&String> = rows.difference(&after[table]).collect();
            assert!(lost.is_empty(), "{table}: {lost:#?}");
        }
        for table in [
            "sessions",
            "runs",
            "agents",
            "tokens",
            "memories",
            "audit",
            "approvals",
        ] {
            let added = &after[table] - &before[table];
            assert!(added.is_empty(), "{table}: {added:#?}");
        }
        let status = other.call("gateway.status", json!({})).await;
        let counts = status["counts"].as_object().unwrap();
        assert!(counts.values().all(|count| *count == 0), "{status}");
        assert!(
            status["lanes"].is_null() && status["socket"].is_null(),
            "{status}"
        );
        place.let_go("go");
        owner
            .call("runs.cancel", json!({"runId": objects.of("asking")}))
            .await;
        owner
            .call("runs.cancel", json!({"runId": objects.of("approving")}))
            .await;
        owner.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
