//! Decodes the text of `params` into a request type; errors name the offending parameter. The
//! gateway calls it once per call.

use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};
use crate::wire::method::Method;

/// Decodes the parameters of one call; `None` means no parameters.
pub fn decode<P: Method>(text: Option<&str>) -> Result<P, Fault> {
    let text = match text {
        None | Some("null" | "[]") => "{}",
        Some(text) => text,
    };
    if text.trim_start().starts_with('[') {
        if let Some(name) = P::ROW.positional
            && let Ok([value]) = serde_json::from_str::<[Value; 1]>(text)
        {
            let named = Map::from_iter([(name.to_owned(), value)]);
            return decode(Some(&Value::Object(named).to_string()));
        }
        return Err(Fault::new(
            Kind::InvalidParams,
            "parameters must be given by name, in an object, not by position",
        ));
    }
    // Fast path, a single pass. Only a failure is parsed again, to explain it.
    match serde_json::from_str(text) {
        Ok(params) => Ok(params),
        Err(error) => Err(explain::<P>(text, &error)),
    }
}

fn explain<P: Method>(text: &str, error: &serde_json::Error) -> Fault {
    if let Ok(given) = serde_json::from_str::<Map<String, Value>>(text)
        && let Some(name) = P::ROW
            .unsupported
            .iter()
            .find(|name| given.contains_key(**name))
    {
        return Fault::params(name, "this version does not have this parameter")
            .hint("leave it out");
    }
    let mut source = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, P>(&mut source) {
        Err(at) => {
            let message = without_position(at.inner());
            match at.path().to_string().as_str() {
                // A missing parameter is reported for the whole object; the message has its name.
                "." => match quoted(&message) {
                    Some(name) => Fault::params(&name, "it is missing"),
                    None => Fault::new(Kind::InvalidParams, message),
                },
                path => match nearest(path, &message) {
                    Some(known) => {
                        Fault::params(path, message).hint(format!("did you mean {known}?"))
                    }
                    None => Fault::params(path, message),
                },
            }
        }
        Ok(_) => Fault::new(Kind::InvalidParams, without_position(error)),
    }
}

/// The error message without "at line 1 column 12": the position is of no use to the client.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The known field name most similar to an unknown one; `None` if none is similar enough.
fn nearest(path: &str, message: &str) -> Option<String> {
    let (_, known) = message
        .strip_prefix("unknown field ")?
        .split_once("expected ")?;
    let unknown = path.rsplit('.').next().unwrap_or(path);
    known
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.8)
        .map(|(_, known)| known.to_owned())
}

fn quoted(message: &str) -> Option<String> {
    message
        .strip_prefix("missing field `")?
        .strip_suffix('`')
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agents::ListAgents;
    use crate::wire::gateway::{Drain, Hello, Ping};
    use crate::wire::input::PageSize;
    use crate::wire::runs::{GetRun, ListRuns, Turn, Wait};
    use crate::wire::sessions::{Ack, Create, ListSessions, Spawn};
    use std::time::Duration;

    fn refusal<P: Method>(params: &str) -> (String, String) {
        let Err(fault) = decode::<P>(Some(params)) else {
            panic!("taken: {params}");
        };
        assert_eq!(fault.kind, Kind::InvalidParams);
        let path = fault.data.get("path").and_then(Value::as_str);
        (path.unwrap_or_default().to_owned(), fault.message)
    }

    fn refused<P: Method>(params: &str, path: &str, says: &str) {
        let (at, message) = refusal::<P>(params);
        assert_eq!(at, path, "{params}: {message}");
        assert!(message.contains(says), "{params}: {message}");
        assert!(message.contains(path), "{params}: {message}");
    }

    #[test]
    fn parameters_of_later_versions_are_refused_by_name() {
        let spawn = r#"{"task": "t", "attachments": []}"#;
        refused::<Spawn>(spawn, "attachments", "this version does not have");
        let turn = r#"{"sessionKey": "a", "message": "m", "attachments": 1}"#;
        refused::<Turn>(turn, "attachments", "this version does not have");
    }

    #[test]
    fn a_budget_limits_something() {
        for (budget, says) in [
            ("{}", "tokens, cost or both"),
            (r#"{"tokens": 0}"#, "1 or more"),
            (r#"{"cost": 0}"#, "above 0"),
            (r#"{"cost": -1}"#, "above 0"),
        ] {
            let spawn = format!(r#"{{"task": "t", "budget": {budget}}}"#);
            refused::<Spawn>(&spawn, "budget", says);
            let turn = format!(r#"{{"sessionKey": "a", "message": "m", "budget": {budget}}}"#);
            refused::<Turn>(&turn, "budget", says);
        }
    }

    #[test]
    fn a_thinking_level_is_a_word_of_the_list() {
        let spawn = r#"{"task": "t", "thinking": "deep"}"#;
        refused::<Spawn>(
            spawn,
            "thinking",
            "off, minimal, low, medium, high, xhigh, max",
        );
        let turn = r#"{"sessionKey": "a", "message": "m", "thinking": "deep"}"#;
        refused::<Turn>(
            turn,
            "thinking",
            "off, minimal, low, medium, high, xhigh, max",
        );
    }

    #[test]
    fn a_drain_that_makes_no_sense_is_refused_by_name() {
        refused::<Drain>(r#"{"then": "sleep"}"#, "then", "stop, restart, resume");
        refused::<Drain>(r#"{"then": "stop", "timeout": "25h"}"#, "timeout", "24 h");
        refused::<Drain>(r#"{"timeout": 1}"#, "then", "missing");
    }

    #[test]
    fn unknown_parameters_are_refused_by_name() {
        refused::<Spawn>(r#"{"task": "t", "tsk": 1}"#, "tsk", "unknown field");
        refused::<Ping>(r#"{"x": 1}"#, "x", "unknown field");
        refused::<Hello>(
            r#"{"client": {"name": "n", "version": "1", "os": "x"}}"#,
            "client.os",
            "unknown field",
        );
        // Fields under `meta` may have any name.
        let spawn: Spawn = decode(Some(r#"{"task": "t", "meta": {"any": [1]}}"#)).unwrap();
        assert_eq!(spawn.meta.unwrap()["any"][0], 1);
    }

    #[test]
    fn wrong_shapes_name_the_parameter() {
        refused::<Spawn>("{}", "task", "missing");
        refused::<Spawn>(r#"{"task": 1}"#, "task", "invalid type");
        refused::<Spawn>(r#"{"task": " "}"#, "task", "empty");
        refused::<Spawn>(
            r#"{"task": "t", "parent": "../x"}"#,
            "parent",
            "session key",
        );
        refused::<Spawn>(r#"{"task": "t", "cwd": "src"}"#, "cwd", "absolute");
        refused::<Spawn>(r#"{"task": "t", "label": ""}"#, "label", "empty");
        refused::<Spawn>(r#"{"task": "t", "mode": "x"}"#, "mode", "is not one of run");
        refused::<Create>(r#"{"owner": "me"}"#, "owner", "agent, client");
        refused::<ListAgents>(r#"{"for": "x"}"#, "for", "people, task");
        refused::<ListRuns>(
            r#"{"states": ["ok", "dead"]}"#,
            "states[1]",
            "is not one of",
        );
        refused::<GetRun>(r#"{"runId": "7"}"#, "runId", "UUID");
        refused::<Ack>(
            r#"{"sessionKey": "a", "announceIds": ["7"]}"#,
            "announceIds",
            "UUID",
        );
        let (_, message) = refusal::<Spawn>(r#"["t"]"#);
        assert!(message.contains("by name"), "{message}");
        let (_, message) = refusal::<Spawn>(r#""t""#);
        assert!(message.contains("invalid type"), "{message}");
        assert!(!message.contains("line"), "{message}");
    }

    #[test]
    fn chosen_ids_are_of_version_7_and_have_one_text() {
        let spawn = |id: &str| format!(r#"{{"task": "t", "runId": "{id}"}}"#);
        let good = "01936f0e-0000-7000-8000-000000000001";
        let read: Spawn = decode(Some(&spawn(good))).unwrap();
        assert_eq!(read.run_id.unwrap().to_string(), good);
        let v4 = "01936f0e-0000-4000-8000-000000000001";
        refused::<Spawn>(&spawn(v4), "runId", "version 7");
        refused::<Spawn>(&spawn(&good.replace('-', "")), "runId", "36 characters");
    }

    #[test]
    fn durations_are_text_or_seconds() {
        let window = |text: &str| {
            let params = format!(r#"{{"waitTimeout": {text}}}"#);
            decode::<Wait>(Some(&params)).unwrap().wait_timeout.0
        };
        assert_eq!(window(r#""90s""#), Duration::from_secs(90));
        assert_eq!(window(r#""1h""#), Duration::from_secs(3600));
        assert_eq!(window("0"), Duration::ZERO);
        assert_eq!(window("1.5"), Duration::from_millis(1500));
        assert_eq!(window(r#""250ms""#), Duration::from_millis(250));
        let unset: Wait = decode(None).unwrap();
        assert_eq!(unset.wait_timeout.0, Duration::from_secs(30));
    }

    #[test]
    fn durations_over_a_cap_are_refused_not_clamped() {
        refused::<Wait>(r#"{"waitTimeout": 3601}"#, "waitTimeout", "1 h");
        refused::<Wait>(r#"{"waitTimeout": "2h"}"#, "waitTimeout", "1 h");
        refused::<Wait>(r#"{"waitTimeout": -1}"#, "waitTimeout", "not negative");
        refused::<Wait>(
            r#"{"waitTimeout": "soon"}"#,
            "waitTimeout",
            "not a duration",
        );
        refused::<Wait>(r#"{"waitTimeout": 1e300}"#, "waitTimeout", "not a duration");
        let spawn = |limit: &str| format!(r#"{{"task": "t", "runTimeout": {limit}}}"#);
        refused::<Spawn>(&spawn("0"), "runTimeout", "configuration file");
        refused::<Spawn>(&spawn("0.0001"), "runTimeout", "configuration file");
        refused::<Spawn>(&spawn(r#""31days""#), "runTimeout", "30 days");
        let most: Spawn = decode(Some(&spawn(r#""30days""#))).unwrap();
        assert_eq!(most.run_timeout.unwrap().0, 30 * 24 * 3600 * 1000);
    }

    #[test]
    fn pages_keys_and_meta_have_their_limits() {
        refused::<ListSessions>(r#"{"limit": 0}"#, "limit", "1 to 500");
        refused::<ListSessions>(r#"{"limit": 501}"#, "limit", "1 to 500");
        let unset: ListSessions = decode(None).unwrap();
        assert_eq!(unset.limit, PageSize(50));
        let key = |count: usize| {
            format!(
                r#"{{"task": "t", "idempotencyKey": "{}"}}"#,
                "ä".repeat(count)
            )
        };
        assert!(decode::<Spawn>(Some(&key(256))).is_ok());
        refused::<Spawn>(&key(257), "idempotencyKey", "256");
        let meta = |bytes: usize| format!(r#"{{"task": "t", "meta": "{}"}}"#, "m".repeat(bytes));
        assert!(decode::<Spawn>(Some(&meta(4094))).is_ok());
        refused::<Spawn>(&meta(4095), "meta", "4096");
    }

    #[test]
    fn what_a_client_writes_is_what_the_daemon_reads() {
        let spawn: Spawn = decode(Some(
            r#"{"task": "t", "runTimeout": "90s", "announce": "inbox", "cwd": "/tmp",
                "mode": "run", "context": "isolated", "cleanup": "keep", "meta": {"b": 1}}"#,
        ))
        .unwrap();
        let text = serde_json::to_string(&spawn).unwrap();
        assert_eq!(decode::<Spawn>(Some(&text)).unwrap(), spawn);
        let wait = Wait {
            wait_timeout: crate::wire::input::WaitTimeout(Duration::from_millis(1)),
            ..Wait::default()
        };
        let text = serde_json::to_string(&wait).unwrap();
        assert_eq!(decode::<Wait>(Some(&text)).unwrap(), wait);
    }
}
