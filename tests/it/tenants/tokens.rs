//! Access tokens: created, used within their scopes and limits, ended, and never shown.

use std::fs;
use std::path::{Path, PathBuf};

use abide::client::Client;
use abide::kernel::scope::Scope;
use abide::wire::methods::METHODS;
use serde_json::{Value, json};

use super::{ALL, call, http, token, user_of};
use crate::harness::{Daemon, Place, Script, eventually, kind_of, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[say]", [says("said")])
            .on("[hold]", [says("held").held_by("go")])
            .on_announce("[", [says("NO_REPLY")]),
    )
}

/// The kind and message with which the daemon refuses a call with this token.
async fn refusal(daemon: &Daemon, text: &str) -> (String, String) {
    let ping = call("gateway.ping", json!({}));
    let answer = http(daemon, text, "POST /", &ping).await.unwrap();
    let error = &answer.body()["error"];
    let kind = error["data"]["kind"]
        .as_str()
        .unwrap_or_else(|| panic!("{error}"));
    (
        kind.to_owned(),
        error["message"].as_str().unwrap().to_owned(),
    )
}

fn ids(tokens: &Value) -> Vec<&str> {
    let tokens = tokens["tokens"].as_array().unwrap();
    tokens
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect()
}

/// Every file below this folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn a_token_acts_as_its_user_within_its_scopes_also_after_a_restart() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let params = json!({"user": "ann", "scopes": ["read", "run"], "label": "laptop"});
        let text = token(&owner, params).await;
        assert!(text.starts_with("abide_"), "{}", text.len());
        let ann = daemon.client_with(&text).await;
        let hello = ann.call("gateway.hello", json!({})).await;
        let principal = json!({"org": "default", "user": "ann", "scopes": ["read", "run"]});
        assert_eq!(hello["principal"], principal);
        let spawned = ann.spawn(json!({"task": "[say]"})).await;
        ann.ended(&spawned.id).await;
        let usage = owner.call("usage.summary", json!({"by": "user"})).await;
        assert_eq!(usage["rows"][0]["name"], "ann", "{usage}");
        daemon.kill().await;

        let daemon = place.start().await;
        let ann = daemon.client_with(&text).await;
        assert_eq!(ann.run(&spawned.id).await["state"], "ok");
        let owner = daemon.client().await;
        let listed = owner.call("tokens.list", json!({})).await;
        let known = &listed["tokens"][0];
        assert_eq!(known["label"], "laptop");
        assert_eq!(known["state"], "active");
        assert!(known["usedAt"].is_string(), "{known}");
        let audit = owner.call("gateway.audit", json!({})).await;
        let audit = audit["entries"].as_array().unwrap();
        let spawn = audit.iter().find(|row| row["method"] == "sessions.spawn");
        let name = format!("user:ann token:{}", known["id"].as_str().unwrap());
        assert_eq!(spawn.unwrap()["principal"], name);
        let created = audit.iter().find(|row| row["method"] == "tokens.create");
        assert_eq!(created.unwrap()["object"], known["id"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Each method is called with no scope but one, and with every scope but its own.
#[test]
fn each_method_needs_exactly_its_scope() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let mut without = Vec::new();
        let mut only = Vec::new();
        for scope in Scope::ALL {
            let rest: Vec<&Scope> = Scope::ALL.iter().filter(|one| *one != scope).collect();
            let params = json!({"user": "ann", "scopes": rest});
            without.push(daemon.client_with(&token(&owner, params).await).await);
            let params = json!({"user": "ann", "scopes": [scope]});
            only.push(daemon.client_with(&token(&owner, params).await).await);
        }
        for row in METHODS {
            // The parameters are wrong, so that no method does anything: rights come first.
            let params = json!({"nonsense": 1});
            for (at, scope) in Scope::ALL.iter().enumerate() {
                let is_needed = row.scope == Some(*scope);
                let refused = without[at].refused(row.name, params.clone()).await;
                let is_forbidden = kind_of(&refused) == "forbidden";
                assert_eq!(is_forbidden, is_needed, "{} without {scope}", row.name);
                if is_needed {
                    let message = &refused.message;
                    let says = format!("needs the scope {scope}");
                    assert!(message.contains(&says), "{}: {message}", row.name);
                }
                let refused = only[at].refused(row.name, params.clone()).await;
                let is_forbidden = kind_of(&refused) == "forbidden";
                let may = row.scope.is_none() || is_needed;
                assert_eq!(is_forbidden, !may, "{} with {scope} alone", row.name);
            }
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_administrator_grants_no_more_than_it_has_and_only_in_its_own_org() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let admin = user_of(&daemon, "team", &["read", "admin"]).await;
        let create = "tokens.create";
        let more = admin
            .refused(create, json!({"user": "bob", "scopes": ["read", "run"]}))
            .await;
        assert_eq!(kind_of(&more), "forbidden");
        assert!(more.message.contains("scopes run"), "{}", more.message);
        // An org that exists, and one that does not.
        let mut messages = Vec::new();
        for org in ["default", "nowhere"] {
            let params = json!({"user": "bob", "org": org, "scopes": ["read"]});
            let refused = admin.refused(create, params).await;
            messages.push((kind_of(&refused).to_owned(), refused.message));
            let listed = admin.refused("tokens.list", json!({"org": org})).await;
            assert_eq!(kind_of(&listed), "forbidden");
        }
        assert_eq!(messages[0], messages[1]);
        let params = json!({"user": "bob", "org": "team", "scopes": ["read"]});
        let bob = daemon.client_with(&token(&admin, params).await).await;
        let refused = bob.refused("tokens.list", json!({})).await;
        assert_eq!(kind_of(&refused), "forbidden");

        let owner = daemon.client().await;
        let params = json!({"user": "ann", "scopes": ["read"]});
        let mine = owner.call(create, params).await["token"]["id"].clone();
        let all = owner.call("tokens.list", json!({})).await;
        let team = owner.call("tokens.list", json!({"org": "team"})).await;
        assert_eq!((ids(&all).len(), ids(&team).len()), (3, 2));
        assert_eq!(ids(&admin.call("tokens.list", json!({})).await), ids(&team));
        let refused = admin.refused("tokens.revoke", json!({"id": mine})).await;
        assert_eq!(kind_of(&refused), "not_found");
        for bad in [
            json!({"user": "a/b", "scopes": ["read"]}),
            json!({"user": "ann", "org": "a/b", "scopes": ["read"]}),
            json!({"user": "ann", "scopes": []}),
            json!({"user": "ann", "scopes": ["rule"]}),
            json!({"user": "ann", "scopes": ["read"], "expires": 0}),
            json!({"user": "ann", "scopes": ["read"], "limits": {"connections": 0}}),
        ] {
            let refused = owner.refused(create, bad.clone()).await;
            assert_eq!(kind_of(&refused), "invalid_params", "{bad}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_revoked_token_is_refused_at_once_and_its_connections_are_closed() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let params = json!({"user": "ann", "scopes": ["read", "run"]});
        let made = owner.call("tokens.create", params).await;
        let text = made["secret"].as_str().unwrap();
        let ann = daemon.client_with(text).await;
        let spawned = ann.spawn(json!({"task": "[hold]"})).await;
        ann.in_state(&spawned.id, "running").await;
        let mut events = ann.subscribe(json!({})).await;
        events.next().await.unwrap().unwrap();
        let idle = daemon.client_with(text).await;
        // Each of these ends without an answer of its run.
        let wait = json!({"runId": spawned.id, "waitTimeout": 3600});
        let posted = http(&daemon, text, "POST /", &call("agent.wait", wait.clone()));
        let stream = http(&daemon, text, "GET /events", "");
        eventually("all three are under way", async || {
            let metrics = http(&daemon, daemon.token(), "GET /metrics", "")
                .await
                .unwrap();
            metrics.text.contains("abide_waits_open 1").then_some(())
        })
        .await;
        let revoked = async {
            let id = json!({"id": made["token"]["id"]});
            owner.call("tokens.revoke", id).await
        };
        let (waited, revoked) = tokio::join!(ann.attempt("agent.wait", &wait), revoked);
        assert_eq!(revoked["state"], "revoked");
        assert!(waited.is_err(), "{waited:?}");
        assert!(events.next().await.is_none_or(|event| event.is_err()));
        assert!(idle.attempt("gateway.ping", &json!({})).await.is_err());
        let posted = posted.await.unwrap().body();
        assert_eq!(posted["error"]["data"]["kind"], "unauthorized", "{posted}");
        let stream = stream.await.unwrap().text;
        assert!(
            stream.starts_with("HTTP/1.1 200") && !stream.contains("run.ended"),
            "{stream}"
        );
        let (kind, message) = refusal(&daemon, text).await;
        assert!(
            kind == "unauthorized" && message.contains("is revoked"),
            "{message}"
        );
        // A repeat returns the same.
        let again = owner
            .call("tokens.revoke", json!({"id": made["token"]["id"]}))
            .await;
        assert_eq!(again["revokedAt"], revoked["revokedAt"]);
        place.let_go("go");
        owner.ended(&spawned.id).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let (_, message) = refusal(&daemon, text).await;
        assert!(message.contains("is revoked"), "{message}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_expired_token_is_refused_and_its_connections_are_closed() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let params = json!({"user": "ann", "scopes": ["read"], "expires": "2s"});
        let text = token(&owner, params).await;
        let ann = daemon.client_with(&text).await;
        let mut events = ann.subscribe(json!({})).await;
        while let Some(Ok(_)) = events.next().await {}
        let (kind, message) = refusal(&daemon, &text).await;
        assert!(
            kind == "unauthorized" && message.contains("expired"),
            "{message}"
        );
        let listed = owner.call("tokens.list", json!({})).await;
        assert_eq!(listed["tokens"][0]["state"], "expired");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_token_has_its_limits_of_calls_connections_and_open_runs() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let owner = daemon.client().await;
        let limited = async |limits: Value| {
            let params = json!({"user": "ann", "scopes": ["read", "run"], "limits": limits});
            token(&owner, params).await
        };
        let text = limited(json!({"callsPerMinute": 3})).await;
        let ann = daemon.client_with(&text).await;
        for _ in 0..3 {
            ann.call("gateway.ping", json!({})).await;
        }
        let refused = ann.refused("gateway.ping", json!({})).await;
        assert_eq!(kind_of(&refused), "rate_limited");
        assert!(refused.data["retryAfterMs"].as_u64().unwrap() > 0);

        let text = limited(json!({"connections": 2})).await;
        let first = daemon.client_with(&text).await;
        let second = daemon.client_with(&text).await;
        let (kind, message) = refusal(&daemon, &text).await;
        assert!(
            kind == "busy" && message.contains("2 connections"),
            "{message}"
        );
        drop(first);
        eventually("a seat is free", async || {
            Client::connect(daemon.url(), Some(&text))
                .await
                .ok()
                .map(drop)
        })
        .await;
        drop(second);

        let text = limited(json!({"openRuns": 2})).await;
        let ann = daemon.client_with(&text).await;
        let a = ann.spawn(json!({"task": "[hold]"})).await;
        let b = ann.turn("agent:build:main", "[hold]").await;
        for (method, params) in [
            (
                "sessions.spawn",
                json!({"task": "[say]", "agent": "explore"}),
            ),
            (
                "agent.run",
                json!({"sessionKey": "agent:build:x", "message": "[say]"}),
            ),
            (
                "sessions.send",
                json!({"sessionKey": "agent:build:main", "message": "[say]"}),
            ),
        ] {
            let refused = ann.refused(method, params).await;
            assert_eq!(kind_of(&refused), "limit", "{method}");
            assert_eq!(refused.data["limit"], "open_runs");
        }
        let missing = ann
            .refused("sessions.get", json!({"sessionKey": "agent:build:x"}))
            .await;
        assert_eq!(kind_of(&missing), "not_found", "nothing was created");
        place.let_go("go");
        ann.ended(&a.id).await;
        ann.ended(&b.id).await;
        ann.spawn(json!({"task": "[say]"})).await;
        owner.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The text of a token is in its creator's answer and nowhere else: not in the store, its log, the
/// daemon's log, events, audit or lists.
#[test]
fn the_text_of_a_token_is_shown_once() {
    run(async {
        let place = place();
        let mut command = place.command(&["serve"]);
        command.env("ABIDE_LOG", "info,abide=trace");
        let daemon = place.start_command(command).await.unwrap();
        let owner = daemon.client().await;
        let params = json!({"user": "ann", "scopes": ALL, "label": "desk"});
        let text = token(&owner, params).await;
        let ann = daemon.client_with(&text).await;
        ann.spawn(json!({"task": "[say]"})).await;
        owner.quiet().await;
        let secret = text.rsplit('_').next().unwrap().to_owned();
        for (method, params) in [
            ("tokens.list", json!({})),
            ("gateway.audit", json!({})),
            ("gateway.doctor", json!({})),
        ] {
            let answer = owner.call(method, params).await.to_string();
            assert!(!answer.contains(&secret), "{method}");
        }
        let hash = blake3::hash(text.as_bytes()).to_hex();
        let listed = owner.call("tokens.list", json!({})).await.to_string();
        assert!(!listed.contains(hash.as_str()));
        let last = if text.ends_with('0') { "1" } else { "0" };
        let wrong = format!("{}{last}", &text[..text.len() - 1]);
        let (kind, message) = refusal(&daemon, &wrong).await;
        assert!(
            kind == "unauthorized" && !message.contains(&secret),
            "{message}"
        );
        assert_eq!(daemon.stop().await, 0);
        for file in files(place.path()) {
            let bytes = fs::read(&file).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{}", file.display());
        }
    });
}
