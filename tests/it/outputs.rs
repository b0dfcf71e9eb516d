//! Tool results that are too long to be shown whole: the cut part is stored and can be read.

use serde_json::json;

use crate::harness::{Place, Script, calls, kind_of, run, says};

/// Number of agents and of letters in each description: a list of them exceeds the limit of one
/// result.
const AGENTS: usize = 20;
const LETTERS: usize = 4000;

/// A place in which a list of agents is a long result.
pub(crate) fn long_place(script: Script) -> Place {
    let place = Place::new(script);
    let folder = place.path().join(".config/abide/agents");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..AGENTS {
        let described = format!("ä{number:02}").repeat(LETTERS / 4);
        let text = format!("---\ndescription: {described}\nmode: subagent\n---\nDo it.\n");
        std::fs::write(folder.join(format!("long-{number:02}.md")), text).unwrap();
    }
    place.with_agent(
        "looker",
        "tools: [agents_list, output]\nallow_agents: [\"*\"]",
    )
}

#[test]
fn g12_6_what_is_cut_is_said_kept_and_given_to_models_and_clients() {
    let rest = json!({ "toolCallId": "script-1-0-0", "offset": 64_000 });
    let place = long_place(Script::new().on(
        "[look]",
        [
            calls("agents_list", json!({})),
            calls("output", rest).and("output", json!({ "toolCallId": "none" })),
            says("looked"),
        ],
    ));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let look = client
            .spawn(json!({ "task": "[look]", "agent": "looker" }))
            .await;
        assert_eq!(client.ended(&look.id).await["result"], "looked");
        let history = client
            .call("sessions.history", json!({ "sessionKey": look.session }))
            .await;
        let entries = history["messages"].as_array().unwrap().iter();
        let results: Vec<String> = entries
            .filter(|entry| entry["kind"] == "tool_result")
            .map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        let (shown, note) = results[0].rsplit_once("\n… cut: ").unwrap();
        assert!(results.iter().all(|one| one.len() <= 64 * 1024));
        let way = format!(
            "output {{toolCallId: \"script-1-0-0\", offset: {}}}",
            shown.len()
        );
        assert!(note.ends_with(&way), "{note}");

        // A client can read all of it in parts, also after a restart.
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (mut whole, mut offset) = (String::new(), json!(0));
        loop {
            let params =
                json!({ "runId": look.id, "toolCallId": "script-1-0-0", "offset": offset });
            let part = client.call("runs.output", params).await;
            whole.push_str(part["text"].as_str().unwrap());
            if part["nextOffset"].is_null() {
                assert_eq!(part["bytes"], whole.len());
                break;
            }
            offset = part["nextOffset"].clone();
        }
        assert!(whole.starts_with(shown) && whole.len() > 64 * 1024);
        let agents: serde_json::Value = serde_json::from_str(&whole).unwrap();
        assert!(agents["agents"].as_array().unwrap().len() > AGENTS);
        // The model gets the rest from the offset that it requested.
        let (rest, note) = results[1].rsplit_once("\n… bytes ").unwrap();
        let from = (64_000..).find(|at| whole.is_char_boundary(*at)).unwrap();
        assert!(whole[from..].starts_with(rest) && !rest.is_empty());
        assert!(note.contains(&format!("of {}", whole.len())), "{note}");
        assert!(results[2].starts_with("not_found"), "{}", results[2]);

        // A result that was shown whole is returned unchanged; an unknown call is not found.
        let steps = client.call("runs.steps", json!({ "runId": look.id })).await;
        let last = &steps["steps"][4]["toolCallId"];
        let params = json!({ "runId": look.id, "toolCallId": last });
        let part = client.call("runs.output", params).await;
        assert_eq!(part["text"], results[2].as_str(), "{steps}");
        let params = json!({ "runId": look.id, "toolCallId": "none" });
        let refused = client.refused("runs.output", params).await;
        assert_eq!(kind_of(&refused), "not_found", "{refused}");

        // It is deleted with its session.
        let delete = json!({ "sessionKey": look.session });
        client.call("sessions.delete", delete).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}
