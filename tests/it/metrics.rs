//! Metrics: what they count, and the dashboard and alerts that are made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Daemon, Faults, Place, Script, eventually, fails, peers, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[say]", [says("said")])
            .on("[fail]", [fails("the model is down")])
            .on("[hold]", [says("held").held_by("go")]),
    )
}

/// `GET path` with these headers; status and body.
pub(crate) fn get(daemon: &Daemon, path: &str, headers: &str) -> (u16, String) {
    let address = daemon.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let host = match headers.contains("host:") {
        true => String::new(),
        false => format!("host: {address}\r\n"),
    };
    let request = format!("GET {path} HTTP/1.1\r\n{host}connection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

/// The daemon's metrics by series; every line of the exposition is checked.
pub(crate) fn numbers(daemon: &Daemon) -> BTreeMap<String, f64> {
    let token = format!("authorization: Bearer {}\r\n", daemon.token());
    let (status, text) = get(daemon, "/metrics", &token);
    assert_eq!(status, 200, "{text}");
    exposition(&text)
}

/// Parses Prometheus' text format 0.0.4 and rejects what a scraper would reject.
fn exposition(text: &str) -> BTreeMap<String, f64> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped: Vec<&str> = Vec::new();
    let mut series = BTreeMap::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, says) = rest.split_once(' ').unwrap();
            assert!(!says.is_empty() && !helped.contains(&name), "{line}");
            helped.push(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let known = ["counter", "gauge", "histogram"].contains(&kind);
            assert!(known && kinds.insert(name, kind).is_none(), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let bare = name.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|end| bare.strip_suffix(end))
                .find(|family| kinds.get(family) == Some(&"histogram"))
                .unwrap_or(bare);
            let kind = kinds
                .get(family)
                .unwrap_or_else(|| panic!("{line}: no TYPE"));
            assert!(helped.contains(&family), "{line}: no HELP");
            assert_eq!(*kind == "counter", bare.ends_with("_total"), "{line}");
            let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(bare.chars().all(valid), "{line}");
            let value: f64 = value.parse().unwrap();
            assert!(
                series.insert(name.to_owned(), value).is_none(),
                "{line} twice"
            );
        }
    }
    for (name, count) in &series {
        let Some((family, labels)) = name.split_once("_count") else {
            continue;
        };
        if kinds.get(family) != Some(&"histogram") {
            continue;
        }
        let labels = labels.trim_start_matches('{').trim_end_matches('}');
        let all = match labels {
            "" => format!("{family}_bucket{{le=\"+Inf\"}}"),
            labels => format!("{family}_bucket{{{labels},le=\"+Inf\"}}"),
        };
        let all = series
            .get(&all)
            .or_else(|| series.get(&format!("{family}_bucket{{le=\"+Inf\",{labels}}}")));
        assert_eq!(all, Some(count), "{name}: the last bucket holds everything");
    }
    series
}

pub(crate) fn number(series: &BTreeMap<String, f64>, name: &str) -> f64 {
    series.get(name).copied().unwrap_or(0.0)
}

#[test]
fn numbers_move_by_what_was_done() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let (status, _) = get(&daemon, "/metrics", "");
        assert_eq!(status, 401, "numbers are for those with the token");
        let before = numbers(&daemon);
        for task in ["[say]", "[say]", "[fail]"] {
            let spawned = client.spawn(json!({ "task": task })).await;
            client.ended(&spawned.id).await;
        }
        let unknown = json!({ "runId": "01936f0e-0000-7000-8000-000000000009" });
        client.refused("runs.get", unknown).await;
        client.refused("runs.got", json!({})).await;
        client
            .refused("sessions.spawn", json!({ "task": " " }))
            .await;
        client.quiet().await;
        let after = eventually("three ends are counted", async || {
            let after = numbers(&daemon);
            let ended = number(&after, "abide_run_duration_seconds_count");
            (ended == 3.0).then_some(after)
        })
        .await;
        let moved = |name: &str| number(&after, name) - number(&before, name);
        for (name, by) in [
            ("abide_runs_total{outcome=\"ok\"}", 2.0),
            ("abide_runs_total{outcome=\"error\"}", 1.0),
            ("abide_runs_total{outcome=\"cancelled\"}", 0.0),
            (
                "abide_rpc_requests_total{method=\"sessions.spawn\",kind=\"ok\"}",
                3.0,
            ),
            (
                "abide_rpc_requests_total{method=\"sessions.spawn\",kind=\"invalid_params\"}",
                1.0,
            ),
            (
                "abide_rpc_requests_total{method=\"runs.get\",kind=\"not_found\"}",
                1.0,
            ),
            (
                "abide_rpc_requests_total{method=\"unknown\",kind=\"unknown_method\"}",
                1.0,
            ),
            (
                "abide_rpc_duration_seconds_count{method=\"sessions.spawn\"}",
                4.0,
            ),
        ] {
            assert_eq!(moved(name), by, "{name}");
        }
        // Each spawn is a command, and so is each step of three runs.
        assert!(moved("abide_store_batch_commands_sum") >= 3.0 * 3.0);
        assert_eq!(
            moved("abide_store_commit_seconds_count"),
            moved("abide_store_batch_commands_count")
        );
        assert_eq!(number(&after, "abide_runs{state=\"running\"}"), 0.0);
        // The client's connection, and that of the scrape.
        assert_eq!(number(&after, "abide_connections"), 2.0);
        assert!(number(&after, "process_start_time_seconds") > 1.7e9);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            number(
                &after,
                &format!("abide_build_info{{version=\"{version}\"}}")
            ),
            1.0
        );

        let held = client.spawn(json!({ "task": "[hold]" })).await;
        client.in_state(&held.id, "running").await;
        let looking = async {
            eventually("one waits", async || {
                (number(&numbers(&daemon), "abide_waits_open") == 1.0).then_some(())
            })
            .await;
            let now = numbers(&daemon);
            assert_eq!(number(&now, "abide_runs{state=\"running\"}"), 1.0);
            place.let_go("go");
        };
        let (_, ()) = tokio::join!(client.ended(&held.id), looking);
        eventually("nobody waits", async || {
            (number(&numbers(&daemon), "abide_waits_open") == 0.0).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The names of metrics in an expression: its words with this program's or the process's prefix,
/// or OpenTelemetry's.
fn named(expression: &str) -> BTreeSet<&str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| {
            let prefixes = ["abide_", "process_", "gen_ai_client_"];
            prefixes.iter().any(|prefix| word.starts_with(prefix))
        })
        .collect()
}

/// Each expression of a JSON document, at any depth.
fn expressions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|one| expressions(one, found)),
        Value::Object(fields) => {
            for (name, one) in fields {
                match one.as_str() {
                    Some(text) if ["expr", "definition"].contains(&name.as_str()) => {
                        found.push(text)
                    }
                    _ => expressions(one, found),
                }
            }
        }
        _ => {}
    }
}

fn shipped(file: &str) -> String {
    let path = format!("{}/packaging/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{path}: {fault}"))
}

#[test]
fn each_metric_of_the_dashboard_and_of_the_alerts_exists() {
    let series = run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        // Series of model calls appear with the first call.
        let spawned = client.spawn(json!({ "task": "[say]" })).await;
        client.ended(&spawned.id).await;
        let series = eventually("the end is counted", async || {
            let series = numbers(&daemon);
            (number(&series, "abide_run_duration_seconds_count") == 1.0).then_some(series)
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
        series
    });
    let exists = |name: &str| series.keys().any(|one| one.split('{').next() == Some(name));
    // Only these appear later: the model of the tests reports neither tokens nor cost.
    let later = ["gen_ai_client_token_usage_sum", "abide_model_cost_total"];
    let dashboard: Value = serde_json::from_str(&shipped("grafana/abide.json")).unwrap();
    let mut shown = Vec::new();
    expressions(&dashboard, &mut shown);
    assert!(shown.len() > 30, "{}", shown.len());
    let alerts = shipped("prometheus/alerts.yml");
    let alerts = alerts
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let mut used = BTreeSet::new();
    for expression in shown.iter().copied().chain(alerts) {
        used.extend(named(expression));
    }
    used.remove("gen_ai_provider_name");
    assert!(used.len() > 25, "{used:?}");
    for name in used {
        assert!(
            exists(name) || later.contains(&name),
            "{name} does not exist"
        );
    }
}

/// Runs promtool on a shipped file; skipped with a message where it is not installed.
fn promtool(command: &[&str], file: &str, success: &str) {
    let file = format!("{}/packaging/prometheus/{file}", env!("CARGO_MANIFEST_DIR"));
    match Command::new("promtool").args(command).arg(&file).output() {
        Ok(checked) => {
            let said = String::from_utf8_lossy(&checked.stdout);
            assert!(checked.status.success(), "{checked:?}");
            assert!(said.contains(success), "{said}");
        }
        Err(fault) => peers::skipped(
            &format!("the check of {file} by promtool"),
            &fault.to_string(),
        ),
    }
}

#[test]
fn prometheus_accepts_the_alerts() {
    promtool(&["check", "rules"], "alerts.yml", "SUCCESS");
}

#[test]
fn the_alerts_fire_when_they_should_and_at_no_other_time() {
    promtool(&["test", "rules"], "alerts_test.yml", "SUCCESS");
}

#[test]
fn what_a_restart_recovers_is_counted_by_its_cause() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[hold]" })).await;
        client.in_state(&held.id, "running").await;
        daemon.kill().await;
        let daemon = place.start().await;
        let recovered = |series: &BTreeMap<String, f64>, cause: &str| {
            number(
                series,
                &format!("abide_recoveries_total{{cause=\"{cause}\"}}"),
            )
        };
        let now = numbers(&daemon);
        assert_eq!(recovered(&now, "killed"), 1.0);
        assert_eq!(recovered(&now, "drained"), 0.0);
        assert_eq!(recovered(&now, "executor"), 0.0);
        place.let_go("go");
        daemon.client().await.ended(&held.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_end_of_a_cancelled_run_is_no_recovery() {
    run(async {
        let place = place();
        let faults = Faults::ordered("store.cancel.committed=kill@1");
        let mut daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[hold]" })).await;
        client.in_state(&held.id, "running").await;
        let params = json!({ "runId": held.id });
        // The answer is lost with the daemon.
        let _ = client.attempt("runs.cancel", &params).await;
        daemon.ended().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&held.id).await["status"], "cancelled");
        let now = numbers(&daemon);
        let recovered = "abide_recoveries_total{cause=\"killed\"}";
        assert_eq!(number(&now, recovered), 0.0, "{now:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_operator_sees_lanes_the_store_the_disk_and_the_process() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[hold]" })).await;
        client.in_state(&held.id, "running").await;
        let now = numbers(&daemon);
        let running: f64 = ["main", "subagent"]
            .iter()
            .map(|lane| number(&now, &format!("abide_lane_running{{lane=\"{lane}\"}}")))
            .sum();
        assert_eq!(running, 1.0, "{now:?}");
        let all = number(&now, "abide_lane_running{lane=\"global\"}");
        assert_eq!(all, 1.0, "{now:?}");
        for name in [
            "abide_store_bytes",
            "abide_store_wal_bytes",
            "abide_disk_free_bytes",
            "process_cpu_seconds_total",
            "process_max_fds",
        ] {
            assert!(number(&now, name) > 0.0, "{name}: {now:?}");
        }
        if cfg!(target_os = "linux") {
            assert!(number(&now, "process_resident_memory_bytes") > 1e6);
            assert!(number(&now, "process_open_fds") > 3.0);
        }
        assert_eq!(number(&now, "abide_backup_timestamp_seconds"), 0.0);
        assert_eq!(number(&now, "abide_runs_paused{reason=\"approval\"}"), 0.0);
        client.call("gateway.backup", json!({})).await;
        let made = number(&numbers(&daemon), "abide_backup_timestamp_seconds");
        assert!(made > 1.7e9, "{made}");
        place.let_go("go");
        client.ended(&held.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
