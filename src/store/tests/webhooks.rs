//! Webhooks: their place in the log, progress that is stored once however often it is submitted, and
//! dead letters within their bound.

use super::Bench;
use crate::command::{ConfigureWebhooks, DropLetters, RecordWebhook, ReplayLetters, Sweep};
use crate::contract::webhooks::{LetterChoice, RefusedLetter, WebhookRecord, WebhookTable};
use crate::kernel::event::KindPattern;
use crate::kernel::fault::Kind;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{DEAD_LIMIT, DeadLetter, OpenEvents, Selection, Tries, Webhook};
use crate::store::tables::{dead_letters, events, webhooks};

fn table(digest: &str) -> WebhookTable {
    WebhookTable {
        name: "audit".to_owned(),
        selection: Selection {
            kinds: vec![KindPattern::parse("session.*").unwrap()],
            sessions: Vec::new(),
        },
        digest: digest.to_owned(),
    }
}

fn letter(cursor: i64) -> DeadLetter {
    DeadLetter {
        webhook: "audit".to_owned(),
        cursor,
        at: Timestamp(5),
        kind: "session.created".to_owned(),
        session_key: Some("client:a".to_owned()),
        run: None,
        attempts: 3,
        failure: "the receiver answered 500".to_owned(),
        died_at: Timestamp(7),
        replay: None,
        body: "{}".to_owned(),
    }
}

/// The webhook and a dead letter, for tests of all tables.
pub(super) fn samples() -> (ConfigureWebhooks, RecordWebhook) {
    let record = WebhookRecord {
        name: "audit".to_owned(),
        dead: vec![letter(1)],
        ..WebhookRecord::default()
    };
    let configure = ConfigureWebhooks {
        tables: vec![table("one")],
    };
    (configure, RecordWebhook { record })
}

fn configured(bench: &mut Bench, tables: Vec<WebhookTable>) -> Vec<Webhook> {
    bench.run(ConfigureWebhooks { tables }).unwrap().0
}

fn stored(bench: &mut Bench) -> Webhook {
    webhooks::get(bench.db.as_mut(), "audit").unwrap().unwrap()
}

fn open(cursors: &[i64]) -> OpenEvents {
    OpenEvents(cursors.iter().map(|at| (*at, Tries::default())).collect())
}

pub fn a_webhook_begins_at_the_end_of_the_log_and_keeps_its_place(mut bench: Bench) {
    bench.client_session("client:a");
    let end = events::last(bench.db.as_mut()).unwrap();
    let first = configured(&mut bench, vec![table("one")]);
    assert_eq!((first[0].read_to, first[0].cursor()), (end, end));
    bench.client_session("client:b");
    assert_eq!(configured(&mut bench, vec![table("one")]), first);

    let record = WebhookRecord {
        name: "audit".to_owned(),
        read_to: end + 5,
        open: open(&[end + 2]),
        stopped: true,
        ..WebhookRecord::default()
    };
    assert!(bench.run(RecordWebhook { record }).unwrap().0);
    assert_eq!(stored(&mut bench).cursor(), end + 1);
    assert!(
        configured(&mut bench, vec![table("one")])[0]
            .stopped_at
            .is_some()
    );
    assert!(configured(&mut bench, Vec::new()).is_empty());
    assert!(stored(&mut bench).removed_at.is_some());
    let back = configured(&mut bench, vec![table("two")]).remove(0);
    assert_eq!((back.stopped_at, back.removed_at), (None, None));
    assert_eq!((back.read_to, back.cursor()), (end + 5, end + 1));
}

pub fn progress_that_is_stored_again_counts_nothing_twice(mut bench: Bench) {
    configured(&mut bench, vec![table("one")]);
    let opened = WebhookRecord {
        name: "audit".to_owned(),
        read_to: 9,
        open: open(&[3, 4, 5]),
        ..WebhookRecord::default()
    };
    bench.run(RecordWebhook { record: opened }).unwrap();
    let record = WebhookRecord {
        name: "audit".to_owned(),
        read_to: 9,
        open: open(&[5]),
        delivered: 2,
        failed: 3,
        failure: Some((Timestamp(7), "the receiver answered 500".to_owned())),
        lost: vec![3],
        dead: vec![letter(4)],
        ..WebhookRecord::default()
    };
    for _ in 0..2 {
        let record = record.clone();
        assert!(bench.run(RecordWebhook { record }).unwrap().0);
        let row = stored(&mut bench);
        assert_eq!((row.delivered, row.failed), (2, 3));
        assert_eq!((row.given_up, row.missed), (1, 1));
        assert_eq!(row.cursor(), 4);
    }
    let unknown = WebhookRecord {
        name: "other".to_owned(),
        ..WebhookRecord::default()
    };
    assert!(!bench.run(RecordWebhook { record: unknown }).unwrap().0);
}

pub fn dead_letters_are_bounded_and_delivered_again_once(mut bench: Bench) {
    configured(&mut bench, vec![table("one")]);
    let most = i64::from(DEAD_LIMIT);
    let record = WebhookRecord {
        name: "audit".to_owned(),
        dead: (1..=most + 2).map(letter).collect(),
        ..WebhookRecord::default()
    };
    bench.run(RecordWebhook { record }).unwrap();
    let db = bench.db.as_mut();
    assert_eq!(dead_letters::count(db, "audit").unwrap(), most);
    assert!(dead_letters::get(db, "audit", 2).unwrap().is_none());

    let webhook = || "audit".to_owned();
    let letters = LetterChoice::These(vec![2, 3, 4]);
    let replay = ReplayLetters {
        webhook: webhook(),
        letters,
    };
    for _ in 0..2 {
        assert_eq!(bench.run(replay.clone()).unwrap().0, [3, 4]);
    }
    let queued = dead_letters::queued(bench.db.as_mut(), "audit", 0, 10).unwrap();
    assert_eq!(queued.len(), 2);
    let refusal = |request| RefusedLetter {
        cursor: 4,
        request,
        attempts: 9,
        failure: "the receiver answered 404".to_owned(),
    };
    let record = WebhookRecord {
        name: webhook(),
        replayed: vec![3],
        refused: vec![refusal(queued[1].replay)],
        ..WebhookRecord::default()
    };
    for _ in 0..2 {
        let record = record.clone();
        bench.run(RecordWebhook { record }).unwrap();
        let db = bench.db.as_mut();
        assert!(dead_letters::queued(db, "audit", 0, 10).unwrap().is_empty());
        assert!(dead_letters::get(db, "audit", 3).unwrap().is_none());
        let refused = dead_letters::get(db, "audit", 4).unwrap().unwrap();
        assert_eq!((refused.attempts, refused.replay), (9, None));
    }
    // The refusal of an earlier request answers no later one, however often it is stored.
    bench.run(replay.clone()).unwrap();
    let record = WebhookRecord {
        name: webhook(),
        refused: vec![refusal(queued[1].replay)],
        ..WebhookRecord::default()
    };
    for _ in 0..2 {
        let record = record.clone();
        bench.run(RecordWebhook { record }).unwrap();
        let waiting = dead_letters::queued(bench.db.as_mut(), "audit", 0, 10).unwrap();
        assert_eq!(waiting.len(), 1);
        assert!(waiting[0].replay > queued[1].replay);
    }
    let all = DropLetters {
        webhook: webhook(),
        letters: LetterChoice::All,
    };
    assert_eq!(bench.run(all.clone()).unwrap().0.len() as i64, most - 1);
    assert!(bench.run(all).unwrap().0.is_empty());
    let other = DropLetters {
        webhook: "other".to_owned(),
        letters: LetterChoice::All,
    };
    assert_eq!(bench.run(other).unwrap_err().kind, Kind::NotFound);
}

pub fn retention_counts_what_a_webhook_has_not_read(mut bench: Bench) {
    configured(&mut bench, vec![table("one")]);
    let begin = stored(&mut bench).read_to;
    for key in ["client:a", "client:b", "client:c"] {
        bench.client_session(key);
    }
    let created = bench.count("SELECT count(*) FROM events WHERE kind LIKE 'session.%'");
    let record = WebhookRecord {
        name: "audit".to_owned(),
        read_to: begin + 1,
        ..WebhookRecord::default()
    };
    bench.run(RecordWebhook { record }).unwrap();
    let read = format!("SELECT count(*) FROM events WHERE cursor <= {}", begin + 1);
    let read = bench.count(&read);
    let before = Timestamp(i64::MAX / 2);
    bench.run(Sweep::Events { before }).unwrap();
    assert_eq!(bench.count("SELECT count(*) FROM events"), 0);
    let row = stored(&mut bench);
    assert_eq!(row.missed as i64, created - read);
    bench.run(Sweep::Events { before }).unwrap();
    assert_eq!(stored(&mut bench).missed, row.missed);

    let (configure, record) = samples();
    bench.run(configure).unwrap();
    bench.run(record).unwrap();
    configured(&mut bench, Vec::new());
    let sweep = |removed_before| Sweep::Webhooks {
        dead_before: Timestamp(6),
        removed_before,
    };
    bench.run(sweep(Timestamp(0))).unwrap();
    assert_eq!(dead_letters::count_all(bench.db.as_mut()).unwrap(), 1);
    bench.run(sweep(before)).unwrap();
    assert!(!webhooks::exist(bench.db.as_mut()).unwrap());
    assert_eq!(dead_letters::count_all(bench.db.as_mut()).unwrap(), 0);
}
