//! Tests that cached transcripts equal the rows.

use super::lifecycle::session;
use super::{Bench, id, reply, spawn, turn};
use crate::command::{Begins, ResetSession};
use crate::kernel::ids::{MessageId, RunId, SessionKey};
use crate::kernel::run::Run;
use crate::kernel::session::message::NewMessage;
use crate::store::tables::messages;
use crate::store::tables::transcripts::{Mark, Transcripts};

/// The limit of the window; the tests write more entries.
const LIMIT: u32 = 7;

/// The messages shown to a model of this run. Checks that each cache returns the same, on the
/// first and on a repeated read.
fn shown(bench: &mut Bench, kept: &[Transcripts], run: RunId) -> Vec<String> {
    let run = bench.row(run);
    let rows = messages::window(bench.db.as_mut(), &run, LIMIT).unwrap();
    for transcripts in kept {
        for _ in 0..2 {
            let found = transcripts
                .window(bench.db.as_mut(), &run, LIMIT, transcripts.mark())
                .unwrap();
            assert!(
                found.iter().map(AsRef::as_ref).eq(&rows),
                "{found:?} for {rows:?}"
            );
        }
    }
    rows.iter().map(|message| message.text()).collect()
}

/// Runs a turn of this session; returns the messages that its model was shown.
fn said(bench: &mut Bench, kept: &[Transcripts], key: &str, text: &str) -> Vec<String> {
    let run = reply(bench.run(turn(key, text))).run;
    bench.started(run);
    let seen = shown(bench, kept, run);
    bench.ended(run, &format!("{text}, answered"));
    seen
}

pub fn what_is_kept_of_transcripts_is_what_the_rows_say(mut bench: Bench) {
    // Caches every long enough session, one session at a time, and nothing.
    let kept = [
        Transcripts::new(1 << 20, 3),
        Transcripts::new(6000, 1),
        Transcripts::new(0, 1),
    ];
    let (a, b) = ("agent:build:a", "agent:build:b");
    for number in 0..9 {
        said(&mut bench, &kept, a, &format!("a{number}"));
        if number % 3 == 0 {
            said(&mut bench, &kept, b, &format!("b{number}"));
        }
    }
    let expected = [
        "a6",
        "a6, answered",
        "a7",
        "a7, answered",
        "a8",
        "a8, answered",
        "last",
    ];
    assert_eq!(said(&mut bench, &kept, a, "last"), expected);

    // Messages of a called agent are not shown to the session's agent.
    let key = SessionKey::parse(a).unwrap();
    let own = session(&mut bench, &key).unwrap().id;
    let put = |bench: &mut Bench, child: Option<RunId>, count: usize| {
        let new = (0..count).map(|_| {
            let mut new = NewMessage::user(MessageId(id()), "more");
            new.child_run = child;
            new
        });
        let now = bench.clock.now();
        messages::append(bench.db.as_mut(), own, 1, new.collect(), now).unwrap();
    };
    put(&mut bench, Some(RunId(id())), 20);
    assert_eq!(
        said(&mut bench, &kept, a, "go on")[..2],
        ["a7", "a7, answered"]
    );
    // Nearly as many new messages as the limit, and more than that.
    for count in [LIMIT as usize - 2, LIMIT as usize * 2] {
        put(&mut bench, None, count);
        let seen = said(&mut bench, &kept, a, "much was said");
        let others = LIMIT as usize - 1;
        assert_eq!(
            seen[others - count.min(others)..others],
            vec!["more"; count.min(others)]
        );
    }

    // A fork begins with its parent's transcript up to that point.
    let mut new = spawn(Some(&key));
    new.begins = Begins::Fork;
    let child = reply(bench.run(new)).run;
    said(&mut bench, &kept, a, "not for the fork");
    assert_eq!(
        shown(&mut bench, &kept, child)[LIMIT as usize - 3..],
        ["much was said", "much was said, answered", "look"]
    );

    // After a reset no earlier message is shown.
    let reset = ResetSession {
        org: "default".to_owned(),
        key: key.clone(),
        if_generation: None,
        force: false,
        by: "admin".to_owned(),
        by_person: true,
    };
    bench.run(reset).unwrap();
    assert_eq!(said(&mut bench, &kept, a, "anew"), ["anew"]);
    assert_eq!(
        said(&mut bench, &kept, a, "again"),
        ["anew", "anew, answered", "again"]
    );
}

pub fn of_more_transcripts_than_fit_some_are_kept_and_stay_kept(mut bench: Bench) {
    // Each transcript has the same size.
    let nothing = Transcripts::new(0, 1);
    let mut runs = Vec::new();
    for number in 0..6 {
        let key = format!("agent:build:{number}");
        said(&mut bench, &[], &key, "one");
        let run = reply(bench.run(turn(&key, "two"))).run;
        runs.push(bench.row(run));
    }
    let mut shown = |transcripts: &Transcripts, run: &Run| {
        let seen = transcripts.window(bench.db.as_mut(), run, LIMIT, transcripts.mark());
        assert_eq!(seen.unwrap().len(), 2);
        transcripts.bytes()
    };
    let one = {
        let all = Transcripts::new(1 << 20, 1);
        shown(&all, &runs[0])
    };
    assert_eq!(shown(&nothing, &runs[0]), 0);
    // Four of six fit, and the same four are cached in each round.
    let kept = Transcripts::new(4 * one + one / 2, 1);
    for round in 0..4 {
        let found: Vec<bool> = runs
            .iter()
            .map(|run| {
                let is_kept = kept.has(run.session);
                assert!(shown(&kept, run) <= 4 * one + one / 2);
                is_kept
            })
            .collect();
        let expected = round > 0;
        let expected = [expected, expected, expected, expected, false, false];
        assert_eq!(found, expected, "round {round}");
    }
    // A session that is used more often replaces another.
    for _ in 0..2 {
        shown(&kept, &runs[5]);
    }
    assert!(kept.has(runs[5].session));
    // Data larger than the cache is not cached.
    assert_eq!(shown(&Transcripts::new(one / 2, 1), &runs[0]), 0);
}

pub fn a_transcript_is_read_once_and_again_when_it_is_forgotten(mut bench: Bench) {
    let (kept, nothing) = (Transcripts::new(1 << 20, 1), Transcripts::new(0, 1));
    said(&mut bench, &[], "agent:build:a", "one");
    let run = reply(bench.run(turn("agent:build:a", "two"))).run;
    let run = bench.row(run);
    // The first entry, as seen by a read that began at `mark`.
    let first = |bench: &mut Bench, transcripts: &Transcripts, mark: Mark| {
        let seen = transcripts.window(bench.db.as_mut(), &run, LIMIT, mark);
        seen.unwrap()[0].text()
    };
    let say = |bench: &mut Bench, text: &str| {
        let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        let sql = "UPDATE messages SET content = ?1 WHERE seq = 1";
        bench.db.execute(sql, &[content.as_str().into()]).unwrap();
    };
    for transcripts in [&kept, &nothing] {
        assert_eq!(first(&mut bench, transcripts, transcripts.mark()), "one");
    }
    say(&mut bench, "another");
    assert_eq!(first(&mut bench, &kept, kept.mark()), "one");
    assert_eq!(first(&mut bench, &nothing, nothing.mark()), "another");
    kept.forget();
    assert_eq!(first(&mut bench, &kept, kept.mark()), "another");
    // Data whose read began before a clear is not cached.
    let late = kept.mark();
    kept.forget();
    assert_eq!(first(&mut bench, &kept, late), "another");
    say(&mut bench, "a third");
    assert_eq!(first(&mut bench, &kept, kept.mark()), "a third");
    // Removing a session drops its cached messages.
    say(&mut bench, "a fourth");
    assert_eq!(first(&mut bench, &kept, kept.mark()), "a third");
    kept.remove(run.session);
    assert_eq!(first(&mut bench, &kept, kept.mark()), "a fourth");
}
