//! Skills with the real daemon: what runs get of them, the effect of changes, and the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::peers;
use crate::harness::{Event, Link, Place, Script, calls, eventually, kind_of, run, says};

/// Writes a skill to `folder`/`inside`; its name is that of its folder.
pub(crate) fn put(folder: &Path, inside: &str, description: &str, body: &str) {
    let folder = folder.join(inside);
    fs::create_dir_all(&folder).unwrap();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

fn loads(name: &str) -> Script {
    Script::new().on(
        "[load]",
        [
            calls("skill", json!({ "name": name })),
            calls("skill", json!({ "name": name })).held_by("go"),
            says("done"),
        ],
    )
}

/// The tool results of a run, in order.
async fn results(client: &Link, session: &str) -> Vec<String> {
    let history = client
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let messages = history["messages"].as_array().unwrap().iter();
    messages
        .filter(|message| message["kind"] == "tool_result")
        .map(|message| message["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

fn here(place: &Place) -> Value {
    json!({ "workspace": place.work().to_str().unwrap() })
}

async fn version(client: &Link, place: &Place) -> i64 {
    let snapshot = client.call("skills.snapshot", here(place)).await;
    snapshot["version"].as_i64().unwrap()
}

/// The `skills.changed` events of the event log.
fn changes(place: &Place) -> Vec<Event> {
    let events = place.book().events.into_values();
    let workspace = place.work().canonicalize().unwrap();
    events
        .filter(|event| event.kind == "skills.changed")
        .filter(|event| event.data["workspace"] == workspace.to_str().unwrap())
        .collect()
}

/// Waits until the event log reports this version.
async fn until_version(place: &Place, version: i64) -> Event {
    eventually(&format!("version {version}"), async || {
        changes(place)
            .into_iter()
            .find(|event| event.data["version"] == version)
    })
    .await
}

async fn spawn(client: &Link, place: &Place, task: &str) -> Value {
    let work = place.work();
    let params = json!({ "task": task, "agent": "explore", "cwd": work.to_str().unwrap() });
    client.call("sessions.spawn", params).await
}

#[test]
fn d_question_5_after_an_edit_the_next_turn_has_the_new_version_and_a_running_one_never() {
    run(async {
        let place = Place::new(loads("count"));
        put(
            &place.work(),
            "skills/count",
            "Counts things.",
            "Count slowly.",
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = spawn(&client, &place, "[load]").await;
        let first = (
            first["runId"].as_str().unwrap().to_owned(),
            first["childSessionKey"].as_str().unwrap().to_owned(),
        );
        client.in_state(&first.0, "running").await;
        eventually("the first load", async || {
            (results(&client, &first.1).await.len() == 1).then_some(())
        })
        .await;
        put(
            &place.work(),
            "skills/count",
            "Counts things.",
            "Count fast.",
        );
        let told = until_version(&place, 2).await;
        assert_eq!(told.data["reason"], "watch");
        // It keeps the version with which it began, also after a kill.
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        place.let_go("go");
        let ended = client.ended(&first.0).await;
        assert_eq!(ended["pins"]["skills"]["version"], 1, "{ended}");
        let read = results(&client, &first.1).await;
        assert_eq!(read.len(), 2);
        assert!(
            read.iter().all(|text| text.contains("Count slowly.")),
            "{read:?}"
        );
        let second = spawn(&client, &place, "[load]").await;
        let ended = client.ended(second["runId"].as_str().unwrap()).await;
        assert_eq!(ended["pins"]["skills"]["version"], 2, "{ended}");
        let read = results(&client, second["childSessionKey"].as_str().unwrap()).await;
        assert!(read[0].contains("Count fast."), "{read:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn changes_made_while_the_daemon_was_down_are_told_at_the_start() {
    run(async {
        let place = Place::new(Script::new());
        put(&place.work(), "skills/one", "One.", "x");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 1);
        assert_eq!(daemon.stop().await, 0);
        put(&place.work(), "skills/two", "Two.", "x");
        let daemon = place.start().await;
        let told = until_version(&place, 2).await;
        assert_eq!(told.data["reason"], "start");
        assert_eq!(daemon.stop().await, 0);
        // The same content is the same version, even if the file is rewritten.
        put(&place.work(), "skills/two", "Two.", "x");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g6_5_every_way_to_save_is_noticed_by_events_and_by_looking() {
    for (key, how) in [("skills.watch", "\"events\""), ("skills.watch", "\"poll\"")] {
        run(async {
            let place = Place::new(Script::new())
                .with(key, how)
                .with("skills.poll_each", "\"20ms\"")
                .with("skills.debounce", "\"20ms\"");
            let work = place.work();
            let daemon = place.start().await;
            let client = daemon.client().await;
            // The root folder is created together with the first skill.
            assert_eq!(version(&client, &place).await, 1);
            put(&work, "skills/one", "One.", "made");
            until_version(&place, 2).await;
            let file = work.join("skills/one/SKILL.md");
            let text = fs::read_to_string(&file).unwrap();
            let written = |body: &str| text.replace("made", body);
            fs::write(&file, written("in place")).unwrap();
            until_version(&place, 3).await;
            let aside = work.join("skills/one/.SKILL.md.tmp");
            fs::write(&aside, written("renamed")).unwrap();
            fs::rename(&aside, &file).unwrap();
            until_version(&place, 4).await;
            fs::remove_file(&file).unwrap();
            fs::write(&file, written("made anew")).unwrap();
            eventually("version 5", async || {
                let told = changes(&place);
                let texts = client
                    .call("skills.list", json!({ "workspace": work, "name": "one" }))
                    .await;
                // A scan may happen between the two writes, which gives two changes.
                (told.len() >= 4 && texts["skills"][0]["body"] == "made anew").then_some(())
            })
            .await;
            let so_far = version(&client, &place).await;
            // A folder replaced by another, a link replaced atomically, a root that disappears.
            put(&work, "aside/one", "One.", "swapped");
            fs::rename(work.join("skills/one"), work.join("old")).unwrap();
            fs::rename(work.join("aside/one"), work.join("skills/one")).unwrap();
            let said = |wanted: &'static str| {
                let client = &client;
                let work = &work;
                async move {
                    eventually(wanted, async || {
                        let params = json!({ "workspace": work, "name": "one" });
                        let found = client.attempt("skills.list", &params).await;
                        let body = found.ok()?["skills"][0]["body"].clone();
                        (body == wanted).then_some(())
                    })
                    .await;
                }
            };
            said("swapped").await;
            fs::write(&file, written("after the swap")).unwrap();
            until_version(&place, version(&client, &place).await).await;
            said("after the swap").await;
            for name in ["a", "b"] {
                put(&work, &format!("skills/.versions/{name}"), "One.", name);
                let text =
                    fs::read_to_string(work.join(format!("skills/.versions/{name}/SKILL.md")));
                let text = text.unwrap().replace(&format!("name: {name}"), "name: one");
                fs::write(work.join(format!("skills/.versions/{name}/SKILL.md")), text).unwrap();
            }
            fs::remove_dir_all(work.join("skills/one")).unwrap();
            std::os::unix::fs::symlink(".versions/a", work.join("skills/one")).unwrap();
            said("a").await;
            std::os::unix::fs::symlink(".versions/b", work.join("skills/next")).unwrap();
            fs::rename(work.join("skills/next"), work.join("skills/one")).unwrap();
            said("b").await;
            fs::rename(work.join("skills"), work.join("gone")).unwrap();
            let gone = eventually("no skill of the folder", async || {
                let listed = client.call("skills.list", here(&place)).await;
                let own = listed["skills"].as_array().unwrap().iter();
                let mut own = own.filter(|skill| skill["source"] == "workspace");
                own.next()
                    .is_none()
                    .then(|| listed["version"].as_i64().unwrap())
            })
            .await;
            assert!(gone > so_far);
            // Versions only increase, each reported once.
            let told = changes(&place);
            let versions: Vec<i64> = told
                .iter()
                .map(|event| event.data["version"].as_i64().unwrap())
                .collect();
            assert_eq!(versions, (2..=gone).collect::<Vec<i64>>(), "{how}");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn g6_6_g6_13_after_a_burst_of_500_the_set_is_exact_and_the_version_rose_once_or_twice() {
    run(async {
        let place = Place::new(Script::new());
        put(&place.work(), "skills/first", "First.", "x");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 1);
        for number in 0..500 {
            put(&place.work(), &format!("skills/s{number}"), "Burst.", "x");
        }
        let complete = eventually("all of them", async || {
            let told = changes(&place);
            let found = told.last()?.data["skills"].as_u64()?;
            // The bundled skills and the first one are counted too.
            (found == 505).then_some(told)
        })
        .await;
        assert!(complete.len() <= 2, "{complete:?}");
        let snapshot = client.call("skills.snapshot", here(&place)).await;
        assert_eq!(snapshot["skills"].as_array().unwrap().len(), 505);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g6_14_nothing_that_the_daemon_writes_or_that_lies_beside_changes_a_version() {
    run(async {
        let place = Place::new(loads("count"));
        put(&place.work(), "skills/count", "Counts.", "x");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 1);
        place.let_go("go");
        for _ in 0..3 {
            let run = spawn(&client, &place, "[load]").await;
            client.ended(run["runId"].as_str().unwrap()).await;
        }
        fs::write(place.work().join("skills/count/notes.txt"), "beside it").unwrap();
        put(&place.work(), "skills/count", "Counts.", "x");
        client.call("skills.refresh", json!({})).await;
        assert_eq!(version(&client, &place).await, 1);
        assert_eq!(changes(&place).len(), 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_has_the_skills_that_its_definition_names() {
    run(async {
        let place = Place::new(Script::new().on(
            "[a]",
            [calls("skill", json!({ "name": "one" })), says("done")],
        ))
        .with_agent("some", "mode: all\nskills: [one, absent]")
        .with_agent("none", "mode: all\nskills: []")
        .with_agent("blind", "mode: all\ntools: [read]");
        put(&place.work(), "skills/one", "One & only.", "the text");
        put(&place.work(), "skills/two", "Two.", "the other text");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let of = |agent: &str| json!({ "workspace": place.work(), "agent": agent });
        let some = client.call("skills.snapshot", of("some")).await;
        assert_eq!(some["skills"].as_array().unwrap().len(), 1, "{some}");
        let prompt = some["prompt"].as_str().unwrap();
        assert!(prompt.contains("<name>one</name>") && prompt.contains("One &amp; only."));
        assert!(!prompt.contains("two"), "{prompt}");
        for agent in ["none", "blind"] {
            let without = client.call("skills.snapshot", of(agent)).await;
            assert_eq!(without["skills"], json!([]), "{agent}");
            assert_eq!(without["prompt"], "", "{agent}");
        }
        for (agent, says) in [
            ("some", "the text"),
            ("none", "no skill \"one\" in this run"),
            ("blind", "no tool \"skill\""),
        ] {
            let params = json!({ "task": "[a]", "agent": agent, "cwd": place.work() });
            let spawned = client.call("sessions.spawn", params).await;
            let ended = client.ended(spawned["runId"].as_str().unwrap()).await;
            let session = spawned["childSessionKey"].as_str().unwrap();
            let read = results(&client, session).await;
            assert!(read[0].contains(says), "{agent}: {read:?}");
            assert_eq!(
                ended["pins"].get("skills").is_some(),
                agent == "some",
                "{ended}"
            );
            let warned = ended["warnings"].to_string().contains("skill absent");
            assert_eq!(warned, agent == "some", "{ended}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_skills_files_are_read_within_its_folder_and_nowhere_else() {
    run(async {
        let ask = |path: &str| calls("skill", json!({ "name": "one", "path": path }));
        let place = Place::new(Script::new().on(
            "[files]",
            [
                calls("skill", json!({ "name": "one" })),
                ask("references/more.md"),
                ask("../two/SKILL.md"),
                ask("/etc/hostname"),
                ask("link.md"),
                ask("absent.md"),
                calls("skill", json!({})),
                says("done"),
            ],
        ));
        put(
            &place.work(),
            "skills/one",
            "One.",
            "See {baseDir}/references/more.md",
        );
        put(&place.work(), "skills/two", "Two.", "not for one");
        let folder = place.work().join("skills/one");
        fs::create_dir_all(folder.join("references")).unwrap();
        fs::write(folder.join("references/more.md"), "there is more").unwrap();
        std::os::unix::fs::symlink("../two/SKILL.md", folder.join("link.md")).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = spawn(&client, &place, "[files]").await;
        client.ended(spawned["runId"].as_str().unwrap()).await;
        let read = results(&client, spawned["childSessionKey"].as_str().unwrap()).await;
        let base = folder.canonicalize().unwrap();
        assert!(
            read[0].contains(&format!("See {}/references", base.display())),
            "{read:?}"
        );
        assert!(read[0].contains("references/more.md"), "{read:?}");
        assert_eq!(read[1], "there is more");
        for outside in &read[2..5] {
            assert!(outside.contains("is outside the folder"), "{outside}");
        }
        assert!(read[5].contains("absent.md"), "{read:?}");
        assert!(
            read[6].contains("one: One.") && read[6].contains("delegate: "),
            "{read:?}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g6_9_what_is_rejected_is_listed_also_while_the_daemon_runs() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 1);
        let folder = place.work().join("skills/broken");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("SKILL.md"), "---\nname: broken\nx: [a\n---\n").unwrap();
        let rejected = eventually("the broken one", async || {
            let listed = client.call("skills.list", here(&place)).await;
            listed["rejected"].get(0).cloned()
        })
        .await;
        assert!(
            rejected["file"]
                .as_str()
                .unwrap()
                .ends_with("broken/SKILL.md")
        );
        assert!(rejected["line"].is_number() && rejected["reason"].is_string());
        let error = client
            .refused("skills.list", json!({ "name": "broken" }))
            .await;
        assert_eq!(kind_of(&error), "not_found");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn settings_of_skills_take_effect_at_a_reload() {
    run(async {
        let mut place = Place::new(Script::new());
        let extra = place.path().join("extra");
        put(&extra, "more", "More.", "x");
        put(&place.work(), "skills/one", "One.", "x");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(version(&client, &place).await, 1);
        place.set("skills.extra_dirs", &format!("[{extra:?}]"));
        place.set("skills.bundled", "false");
        place.set("skills.entries.one.enabled", "false");
        client.call("gateway.reload", json!({})).await;
        let told = until_version(&place, 2).await;
        assert_eq!(told.data["reason"], "config");
        let listed = client.call("skills.list", here(&place)).await;
        let skills = listed["skills"].as_array().unwrap();
        let shown: Vec<(&str, bool)> = skills
            .iter()
            .map(|one| (one["name"].as_str().unwrap(), one["eligible"] == true))
            .collect();
        assert_eq!(shown, [("more", true), ("one", false)]);
        place.set("skills.max_in_prompt", "0");
        client.call("gateway.reload", json!({})).await;
        let snapshot = client.call("skills.snapshot", here(&place)).await;
        assert_eq!(snapshot["omitted"], json!(["more"]));
        assert_eq!(daemon.stop().await, 0);
    });
}

fn abide(place: &Place, folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = place.command(arguments);
    let output = command.current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn own_skills() -> PathBuf {
    crate::house::root().join("skills")
}

#[test]
fn skills_are_checked_without_a_daemon() {
    let place = Place::new(Script::new());
    let own = own_skills();
    let check = ["skills", "check", "--strict", own.to_str().unwrap()];
    let (code, out, _) = abide(&place, place.path(), &check);
    assert_eq!(code, 0, "{out}");
    assert_eq!(out.lines().count(), 4, "{out}");
    put(place.path(), "skills/Odd", "Use it when: odd", "x");
    let (code, out, _) = abide(&place, place.path(), &["skills", "check"]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("skill Odd") && out.contains("put it in quotes"),
        "{out}"
    );
    let (code, out, _) = abide(&place, place.path(), &["skills", "check", "--strict"]);
    assert_eq!(code, 1, "{out}");
    fs::write(
        place.path().join("skills/Odd/SKILL.md"),
        "---\nname: Odd\n---\n",
    )
    .unwrap();
    let (code, out, _) = abide(&place, place.path(), &["skills", "check", "--json"]);
    assert_eq!(code, 1, "{out}");
    let verdict: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(verdict["ok"], false);
    assert!(
        verdict["reason"]
            .as_str()
            .unwrap()
            .contains("description is missing")
    );
    // A missing program may exist on another machine: the check reports it, but it is not an error
    // of the file.
    let needs = "name: odd\ndescription: D.\nmetadata: {\"openclaw\": {\"requires\": {\"bins\": \
                 [\"no-such-program\"]}, \"install\": [{\"kind\": \"brew\", \"formula\": \"nsp\", \
                 \"bins\": [\"no-such-program\"]}]}}";
    let file = place.path().join("needs/odd/SKILL.md");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, format!("---\n{needs}\n---\nx\n")).unwrap();
    let (code, out, _) = abide(&place, place.path(), &["skills", "check", "needs"]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("it needs no-such-program, not on your PATH: brew install nsp"),
        "{out}"
    );
    let (_, out, _) = abide(
        &place,
        place.path(),
        &["skills", "check", "needs", "--json"],
    );
    let verdict: Value = serde_json::from_str(&out).unwrap();
    let missing = json!([{ "anyOf": ["no-such-program"], "install": ["brew install nsp"] }]);
    assert_eq!(verdict["missing"], missing);
    let (code, _, error) = abide(&place, place.path(), &["skills", "check", "nowhere"]);
    assert_eq!(code, 3, "{error}");
    let (code, _, error) = abide(&place, place.path(), &["skills"]);
    assert_eq!(code, 10, "{error}");
}

#[test]
fn g6_2_skills_from_the_command_line() {
    run(async {
        let place = Place::new(Script::new()).with("skills.watch", "\"off\"");
        let work = place.work();
        put(&work, "skills/delegate", "Mine.", "my way");
        let daemon = place.start().await;
        let (code, out, notes) = abide(&place, &work, &["skills"]);
        assert_eq!(code, 0, "{notes}");
        assert!(out.contains("Mine.") && out.contains("watch-runs"), "{out}");
        assert!(
            notes.contains("shadows bundled/delegate/SKILL.md"),
            "{notes}"
        );
        let (code, out, _) = abide(&place, &work, &["skills", "show", "delegate"]);
        assert_eq!(code, 0);
        assert!(
            out.contains("my way") && out.contains("workspace ("),
            "{out}"
        );
        let (code, _, error) = abide(&place, &work, &["skills", "show", "none"]);
        assert_eq!(code, 3, "{error}");
        put(&work, "skills/more", "More.", "x");
        let (code, out, _) = abide(&place, &work, &["skills", "refresh"]);
        assert_eq!(code, 0, "{out}");
        assert!(out.contains("version 1 -> 2"), "{out}");
        let (_, out, _) = abide(&place, &work, &["skills", "refresh", "--json"]);
        let answer: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(answer["reason"], "manual");
        let of =
            |folder: &Value| folder["workspace"] == work.canonicalize().unwrap().to_str().unwrap();
        let folder = answer["folders"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| of(one));
        assert_eq!(folder.unwrap()["before"], 2, "{answer}");
        fs::create_dir_all(work.join("skills/odd")).unwrap();
        let header = "name: odd\ndescription: D.\nmetadata: {openclaw: {install: [{kind: go, \
                      module: example.org/odd, bins: [odd]}]}}";
        fs::write(
            work.join("skills/odd/SKILL.md"),
            format!("---\n{header}\n---\nx\n"),
        )
        .unwrap();
        abide(&place, &work, &["skills", "refresh"]);
        let params = json!({ "workspace": work, "name": "odd" });
        let client = daemon.client().await;
        let listed = client.call("skills.list", params).await;
        let hint = json!([{
            "kind": "go", "what": "example.org/odd", "bins": ["odd"], "os": [],
            "hint": "go install example.org/odd@latest",
        }]);
        assert_eq!(listed["skills"][0]["install"], hint, "{listed}");
        let (_, out, _) = abide(&place, &work, &["skills", "show", "odd"]);
        assert!(
            out.contains("install    go install example.org/odd@latest (odd)"),
            "{out}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_reference_validator_takes_the_skills_that_come_with_the_program() {
    let judge = match peers::python() {
        Ok(folder) => folder.join("bin/agentskills"),
        Err(why) => return peers::skipped("the reference validator of skills", &why),
    };
    let mut count = 0;
    for entry in fs::read_dir(own_skills()).unwrap() {
        let skill = entry.unwrap().path();
        let validate = &mut Command::new(&judge);
        let judged = validate.arg("validate").arg(&skill).output().unwrap();
        assert!(judged.status.success(), "{}: {judged:?}", skill.display());
        count += 1;
    }
    assert_eq!(count, 4);
    peers::announce("the reference validator of skills took all four");
}
