//! MCP servers of sessions: replaced as a whole, and their tools kept for what they were listed of.

use super::Bench;
use crate::command::{DeleteSession, KeepTools, SetServers};
use crate::contract::servers::{NewServer, StoredServer};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{SessionId, SessionKey};
use crate::store::tables::{session_servers, sessions};

fn server(name: &str, digest: &str) -> NewServer {
    NewServer {
        name: name.to_owned(),
        given: name.to_uppercase(),
        transport: "stdio".to_owned(),
        digest: digest.to_owned(),
        sealed: vec![7; 40],
    }
}

/// A server of this session, for tests of all tables.
pub(super) fn sample(bench: &mut Bench, session: &SessionKey) -> SetServers {
    set(bench, session, vec![server("files", "digest")])
}

fn set(bench: &mut Bench, key: &SessionKey, servers: Vec<NewServer>) -> SetServers {
    let session = sessions::by_key(bench.db.as_mut(), "default", key).unwrap();
    SetServers {
        org: "default".to_owned(),
        session: session.unwrap().id,
        key: key.clone(),
        servers,
    }
}

fn is_set(bench: &mut Bench, key: &SessionKey, servers: Vec<NewServer>) -> Vec<StoredServer> {
    let command = set(bench, key, servers);
    bench.run(command).unwrap().0
}

fn listed(session: SessionId, digest: &str, listed: Result<&str, &str>) -> KeepTools {
    KeepTools {
        session,
        name: "files".to_owned(),
        digest: digest.to_owned(),
        listed: listed.map(str::to_owned).map_err(str::to_owned),
    }
}

fn shown(rows: &[StoredServer]) -> Vec<(&str, Option<&str>, Option<&str>)> {
    let shown = rows.iter().map(|row| {
        (
            row.name.as_str(),
            row.tools.as_deref(),
            row.problem.as_deref(),
        )
    });
    shown.collect()
}

pub fn tools_are_kept_for_the_server_that_listed_them(mut bench: Bench) {
    let key = bench.client_session("client:a");
    let other = bench.client_session("client:b");
    let both = vec![server("files", "one"), server("web", "one")];
    let rows = is_set(&mut bench, &key, both);
    let session = rows[0].session;
    let foreign = sample(&mut bench, &other);
    bench.run(foreign.clone()).unwrap();
    bench.run(listed(session, "one", Ok("[1]"))).unwrap();
    // What an earlier server of the name lists is not the present one's.
    bench.run(listed(session, "zero", Ok("[2]"))).unwrap();
    bench.run(listed(session, "one", Err("it ended"))).unwrap();
    let rows = session_servers::of(bench.db.as_mut(), session).unwrap();
    assert_eq!(
        shown(&rows),
        [
            ("files", Some("[1]"), Some("it ended")),
            ("web", None, None)
        ]
    );
    for _ in 0..2 {
        let rows = is_set(&mut bench, &key, vec![server("files", "one")]);
        assert_eq!(shown(&rows), [("files", Some("[1]"), None)]);
    }
    let rows = is_set(&mut bench, &key, vec![server("files", "two")]);
    assert_eq!(shown(&rows), [("files", None, None)]);
    assert!(is_set(&mut bench, &key, Vec::new()).is_empty());
    // A late answer brings nothing back.
    bench.run(listed(session, "two", Ok("[3]"))).unwrap();
    assert_eq!(bench.count("SELECT count(*) FROM session_servers"), 1);
    let foreign = SetServers {
        org: "acme".to_owned(),
        ..foreign
    };
    assert_eq!(bench.run(foreign).unwrap_err().kind, Kind::NotFound);
}

pub fn servers_go_with_their_session(mut bench: Bench) {
    let key = bench.client_session("client:a");
    let set = sample(&mut bench, &key);
    bench.run(set).unwrap();
    let delete = DeleteSession {
        org: "default".to_owned(),
        key: key.clone(),
        force: false,
        by: "admin".to_owned(),
        by_person: true,
    };
    bench.run(delete).unwrap();
    let gone = sessions::by_key(bench.db.as_mut(), "default", &key).unwrap();
    assert!(gone.is_none());
    assert_eq!(bench.count("SELECT count(*) FROM session_servers"), 0);
}
