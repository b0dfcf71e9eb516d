//! Final cancels, and wake runs that a different turn has made unnecessary.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of the lasting effects of a cancel.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "stopped",
        place: stopped_place,
        play: |caller| Box::pin(stopped(caller)),
    },
    Scenario {
        name: "bound",
        place: bound_place,
        play: |caller| Box::pin(bound(caller)),
    },
    Scenario {
        name: "overtaken",
        place: overtaken_place,
        play: |caller| Box::pin(overtaken(caller)),
    },
];

fn stopped_place() -> Place {
    Place::new(
        Script::new()
            .on("[talk]", [says("never").held_by("never")])
            .on("[k]", [says("k is done")])
            .on("[m]", [says("never").held_by("never")])
            .on("[later]", [says("too late")])
            .on("[more]", [says("more is done")]),
    )
}

/// A session with a running turn, a queued one, an ended child and a running child is cancelled as
/// a whole: from the answer on no model is called for it, also after a kill, until its user starts
/// it again.
async fn stopped(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let talk = caller.turn(&session, "[talk]").await;
    caller.until_model_called("[talk]", 0).await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session }))
        .await;
    caller.ended(&k.id).await;
    let m = caller
        .spawn(json!({ "task": "[m]", "parent": session }))
        .await;
    caller.until_model_called("[m]", 0).await;
    let later = caller.turn(&session, "[later]").await;
    let params = json!({ "sessionKey": session, "all": true });
    let done = caller.call("sessions.cancel", params).await;
    assert_eq!(done["notEnded"], json!([]), "{done}");
    let asked = caller.place().model_calls();
    for run in [&talk, &m, &later] {
        assert_eq!(caller.ended(&run.id).await["state"], "cancelled");
    }
    caller.quiet().await;
    caller.kill_once().await;
    caller.quiet().await;
    assert_eq!(
        caller.place().model_calls(),
        asked,
        "a model was called after it"
    );
    let inbox = caller.ack_all(&session).await;
    let mut told: Vec<&str> = inbox
        .iter()
        .map(|one| one["runId"].as_str().unwrap())
        .collect();
    told.sort_unstable();
    let mut expected = [k.id.as_str(), m.id.as_str()];
    expected.sort_unstable();
    assert_eq!(told, expected);
    let more = caller.turn(&session, "[more]").await;
    assert_eq!(caller.ended(&more.id).await["result"], "more is done");
}

fn bound_place() -> Place {
    let send = json!({ "label": "kid", "message": "[more]", "waitSeconds": 240 });
    Place::new(
        Script::new()
            .on(
                "[boss]",
                [
                    calls(
                        "sessions_spawn",
                        json!({ "task": "[kid]", "agent": "explore", "label": "kid" }),
                    ),
                    says("spawned"),
                ],
            )
            .on("[kid]", [says("never").held_by("never")])
            .on("[try]", [calls("sessions_send", send), says("tried")])
            .on("[more]", [says("more is done")])
            .on("[person]", [says("as you like")])
            .on_announce("kid", [says("NO_REPLY")]),
    )
}

/// A user cancels a child. Its parent cannot restart it, whatever is killed meanwhile, before a
/// user has sent it a message.
async fn bound(caller: &mut Caller) {
    let session = "agent:build:boss";
    let boss = caller.turn(session, "[boss]").await;
    assert_eq!(caller.ended(&boss.id).await["result"], "spawned");
    caller.until_model_called("[kid]", 0).await;
    let kid = caller.call("runs.list", json!({ "parent": session })).await["runs"][0].clone();
    let params = json!({ "runId": kid["runId"] });
    caller.call("runs.cancel", params).await;
    caller.quiet().await;
    let tried = caller.turn(session, "[try]").await;
    assert_eq!(caller.ended(&tried.id).await["result"], "tried");
    assert!(
        !caller
            .place()
            .model_calls()
            .contains_key(&("[more]".to_owned(), 0)),
        "it was set to work again"
    );
    let params =
        json!({ "sessionKey": kid["sessionKey"], "message": "[person]", "waitTimeout": 0 });
    let person = caller.send(params).await;
    assert_eq!(caller.ended(&person.id).await["result"], "as you like");
    let again = caller.turn(session, "[try]").await;
    assert_eq!(caller.ended(&again.id).await["result"], "tried");
    caller.until_model_called("[more]", 0).await;
    caller.quiet().await;
}

fn overtaken_place() -> Place {
    Place::new(
        Script::new()
            .on("[talk]", [says("talked").held_by("go")])
            .on("[k]", [says("k is done")])
            // A superfluous call would find no second answer in the script, and fail.
            .on("[x]", [says("x, and whatever else there was")])
            .on_announce("k is done", [says("heard of k")]),
    )
}

/// A child has ended and another turn is queued when a turn ends: whichever is first, the announce
/// is answered once, and no model is called again for it.
async fn overtaken(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let talk = caller.turn(&session, "[talk]").await;
    caller.until_model_called("[talk]", 0).await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session }))
        .await;
    caller.ended(&k.id).await;
    let queued = caller.turn(&session, "[x]").await;
    caller.place().let_go("go");
    assert_eq!(caller.ended(&talk.id).await["result"], "talked");
    assert_eq!(caller.ended(&queued.id).await["state"], "ok");
    caller.quiet().await;
    let params = json!({ "sessionKey": session });
    let listed = caller.call("runs.list", params).await;
    for run in listed["runs"].as_array().unwrap() {
        let superseded = run["cancel"]["by"] == "superseded";
        assert!(run["state"] == "ok" || superseded, "{run}");
    }
}
