//! Tests of runs of called agents in their caller's session.

use super::{Bench, id, reply};
use crate::kernel::delegation::{Delegated, DelegationMode};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::Run;
use crate::kernel::session::message::{MessageKind, NewMessage};
use crate::store::tables::{messages, runs};

pub fn what_others_did_takes_no_place_in_what_a_called_run_sees(mut bench: Bench) {
    let turn = reply(bench.run(super::turn("agent:build:a", "the port is 8080")));
    bench.started(turn.run);
    let mut caller = runs::get(bench.db.as_mut(), turn.run).unwrap().unwrap();
    let own = Run {
        id: RunId(id()),
        delegated: Some(Delegated {
            mode: DelegationMode::Called,
            step: 1,
            call: "c1".to_owned(),
            agent_name: "Other".to_owned(),
            stream: None,
        }),
        ..caller.clone()
    };
    let other = RunId(id());
    let mut put = |by: RunId, kind: MessageKind, text: &str| {
        let mut new = NewMessage::user(MessageId(id()), text);
        (new.kind, new.child_run) = (kind, Some(by));
        let (session, now) = (caller.session, bench.clock.now());
        messages::append(bench.db.as_mut(), session, 1, vec![new], now).unwrap();
    };
    put(other, MessageKind::SubAgentUser, "find it");
    for _ in 0..40 {
        put(other, MessageKind::Text, "looks");
    }
    put(other, MessageKind::SubAgentAi, "found");
    put(own.id, MessageKind::SubAgentUser, "use it");
    put(own.id, MessageKind::Text, "uses");
    let mut seen = |run: &Run, limit| {
        let seen = messages::window(bench.db.as_mut(), run, limit).unwrap();
        seen.iter().map(|one| one.text()).collect::<Vec<_>>()
    };
    let expected = [
        "the port is 8080",
        "[Agent an agent was asked:]\nfind it",
        "[Agent an agent answered:]\nfound",
        "use it",
        "uses",
    ];
    assert_eq!(seen(&own, 5), expected);
    assert_eq!(seen(&own, 2), expected[3..]);
    caller.delegated = None;
    assert_eq!(seen(&caller, 5), expected[..1]);
    let after = messages::window_after(bench.db.as_mut(), &own, 1, 4).unwrap();
    assert_eq!(after.last().unwrap().text(), "uses");
}
