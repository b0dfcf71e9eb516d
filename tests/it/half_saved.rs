//! Files of skills and agents while they are being saved: the previous content counts until they
//! are complete again, with a reason.

use std::fs;

use serde_json::json;

use crate::harness::{Place, Script, calls, eventually, run, says};
use crate::skills::put;

#[test]
fn a_skill_that_is_being_saved_stays_as_it_was_and_its_agent_says_so() {
    let load = || calls("skill", json!({ "name": "counting" }));
    let script = Script::new().on("[go]", [load(), says("done")]);
    let place = Place::new(script).with_agent("worker", "tools: [skill]\nskills: [counting]");
    let folder = place.work();
    put(&folder, "skills/counting", "Counts.", "Use your fingers.");
    let file = folder.join("skills/counting/SKILL.md");
    let whole = fs::read_to_string(&file).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let listed = async || {
            let listed = client
                .call("skills.list", json!({ "name": "counting" }))
                .await;
            listed["skills"][0].clone()
        };
        let version = async || client.call("skills.list", json!({})).await["version"].clone();
        let first = version().await;
        for half in [
            "",
            "---\nname: counting\n",
            "---\nname: counting\ndescription: Counts.\n---\n",
        ] {
            fs::write(&file, half).unwrap();
            eventually("a word about it", async || {
                let skill = listed().await;
                let warnings = skill["warnings"].to_string();
                warnings
                    .contains("changed on disk, not valid yet")
                    .then_some(())
            })
            .await;
            let spawned = client
                .spawn(json!({ "task": "[go]", "agent": "worker" }))
                .await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "done", "{ended}");
            let warned = ended["warnings"].to_string();
            assert!(
                warned.contains("skill counting: changed on disk, not valid yet"),
                "{ended}"
            );
            let history = json!({ "sessionKey": spawned.session });
            let history = client.call("sessions.history", history).await.to_string();
            assert!(history.contains("Use your fingers."), "{half:?}: {history}");
            assert_eq!(version().await, first, "{half:?}");
            fs::write(&file, &whole).unwrap();
            eventually("the whole file", async || {
                (!listed().await["warnings"].to_string().contains("not valid")).then_some(())
            })
            .await;
        }
        assert_eq!(version().await, first);
        fs::write(&file, whole.replace("fingers", "toes")).unwrap();
        eventually("the new text", async || {
            (version().await != first).then_some(())
        })
        .await;
        fs::remove_file(&file).unwrap();
        eventually("the end of it", async || {
            let listed = client.call("skills.list", json!({})).await;
            (!listed.to_string().contains("counting")).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Even if nothing is added for long: a program that has the file open may not have written
/// everything.
#[cfg(target_os = "linux")]
#[test]
fn what_is_open_for_writing_does_not_count_before_it_is_closed() {
    use std::io::Write;

    let load = || calls("skill", json!({ "name": "counting" }));
    let place = Place::new(
        Script::new()
            .on("[go]", [load(), says("done")])
            .on("[again]", [load(), says("done")]),
    )
    .with_agent("worker", "tools: [skill]\nskills: [counting]");
    let folder = place.work();
    put(&folder, "skills/counting", "Counts.", "Use your fingers.");
    let skill_file = folder.join("skills/counting/SKILL.md");
    let agent_file = place.path().join(".config/abide/agents/worker.md");
    let agent = fs::read_to_string(&agent_file).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let skills = async || client.call("skills.list", json!({})).await.to_string();
        let described = async || {
            let params = json!({ "agent": "worker" });
            client.call("agents.get", params).await.to_string()
        };
        skills().await;
        let mut skill = fs::File::create(&skill_file).unwrap();
        skill
            .write_all(b"---\nname: counting\ndescription: Counts.\n---\nDelete everything in")
            .unwrap();
        let half = agent.replace("worker.", "half of it");
        let mut other = fs::File::create(&agent_file).unwrap();
        other.write_all(half.as_bytes()).unwrap();
        eventually("a word about both", async || {
            let told = client.call("gateway.status", json!({})).await["notices"].to_string();
            let skills = skills().await;
            (skills.contains("open for writing; the previous version is used")
                && told.contains("open for writing"))
            .then_some(())
        })
        .await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let ended = client.ended(&spawned.id).await;
        assert!(
            ended["warnings"].to_string().contains("open for writing"),
            "{ended}"
        );
        let history = json!({ "sessionKey": spawned.session });
        let history = client.call("sessions.history", history).await.to_string();
        assert!(history.contains("Use your fingers."), "{history}");
        assert!(described().await.contains("worker."));
        skill.write_all(b" the folder tmp.\n").unwrap();
        drop((skill, other));
        eventually("what was written", async || {
            let skills = skills().await;
            (!skills.contains("open for writing") && described().await.contains("half of it"))
                .then_some(())
        })
        .await;
        let spawned = client
            .spawn(json!({ "task": "[again]", "agent": "worker" }))
            .await;
        client.ended(&spawned.id).await;
        let history = json!({ "sessionKey": spawned.session });
        let history = client.call("sessions.history", history).await.to_string();
        assert!(
            history.contains("everything in the folder tmp."),
            "{history}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_whose_file_is_being_saved_stays_as_it_was_and_says_so() {
    let place =
        Place::new(Script::new().on("[go]", [says("done")])).with_agent("worker", "tools: [read]");
    let file = place.path().join(".config/abide/agents/worker.md");
    let whole = fs::read_to_string(&file).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        fs::write(&file, "---\ndescription: [\n").unwrap();
        let shown = eventually("a word about it", async || {
            let params = json!({ "agent": "worker" });
            let shown = client.call("agents.get", params).await;
            shown
                .to_string()
                .contains("changed on disk and not valid")
                .then_some(shown)
        })
        .await;
        assert!(shown.to_string().contains("worker."), "{shown}");
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        fs::write(&file, whole.replace("worker.", "another.")).unwrap();
        eventually("the whole file", async || {
            let shown = client
                .call("agents.get", json!({ "agent": "worker" }))
                .await;
            let shown = shown.to_string();
            (shown.contains("another.") && !shown.contains("not valid")).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
