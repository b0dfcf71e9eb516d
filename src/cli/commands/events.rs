//! `abide events`: prints events as they happen.

use clap::Args;
use serde_json::Value;

use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, ids};
use crate::cli::link::DaemonLink;
use crate::cli::link::watch::{EventWatch, WatchItem};
use crate::cli::live::follow::CtrlC;
use crate::cli::output::print;
use crate::cli::output::text::{line, short};
use crate::wire::events::{Event, SubscribeEvents};

/// Show events as they happen
///
/// Begins with the current state, or with --since after that cursor: every later event is shown
/// exactly once and in order, even across restarts of the daemon. Times are UTC. Ctrl-C ends it and
/// prints the cursor to continue from. With --json each event is one line.
#[derive(Debug, Args)]
#[command(after_help = r#"abide events --kind "run.*"
abide events --since 0 --session agent:build:chat"#)]
pub(crate) struct EventsArgs {
    /// Start after this cursor; 0 = all events that are kept
    #[arg(long, value_name = "CURSOR")]
    since: Option<u64>,

    /// Only these kinds, such as run.ended or run.*; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,

    /// Only events of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,

    /// Only events of this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,

    /// Only events of this root run and its descendants
    #[arg(long, value_name = "RUN")]
    tree: Option<String>,

    /// Include answers while they are written
    #[arg(long)]
    deltas: bool,
}

impl EventsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let request = SubscribeEvents {
            since: self.since,
            store_id: None,
            session_key: match &self.session {
                Some(text) => Some(ids::session(&link, text).await?),
                None => None,
            },
            run_id: match &self.run {
                Some(text) => Some(ids::run(&link, text).await?),
                None => None,
            },
            tree: match &self.tree {
                Some(text) => Some(ids::run(&link, text).await?),
                None => None,
            },
            kinds: self.kinds,
            deltas: self.deltas,
        };
        let mut interrupt = CtrlC::new()?;
        let mut watch = EventWatch::open(link, &common.place, request, print::note).await?;
        let mut cursor = self.since;
        loop {
            let seen = tokio::select! {
                seen = watch.next(print::note) => seen?,
                () = interrupt.pressed() => break,
            };
            match seen {
                WatchItem::Picture(picture, whole) => {
                    cursor = u64::try_from(picture.cursor).ok();
                    if common.json {
                        print::object(&whole)?;
                    } else {
                        let more = if picture.more { " and more" } else { "" };
                        print::note(&format!(
                            "{} open runs{more} at cursor {}; events from here on:",
                            picture.runs.len(),
                            picture.cursor
                        ));
                    }
                }
                WatchItem::Event(event) => {
                    cursor = event
                        .cursor
                        .and_then(|at| u64::try_from(at).ok())
                        .or(cursor);
                    if common.json {
                        print::object(&event)?;
                    } else {
                        print::answer(&on_a_line(&event, print::room(0)))?;
                    }
                }
            }
        }
        if let Some(cursor) = cursor {
            print::note(&format!(
                "continue from here: abide events --since {cursor}"
            ));
        }
        Ok(0)
    }
}

/// Formats an event on one line: time, kind, run or session, and details.
fn on_a_line(event: &Event, columns: usize) -> String {
    let at = event.at.to_string();
    let clock = at.get(11..19).unwrap_or(&at);
    let who = match (&event.run_id, &event.session_key) {
        (Some(run), _) => short(run),
        (None, Some(key)) => short(key),
        (None, None) => "daemon".to_owned(),
    };
    let head = format!("{clock} {:<18} {who:<8} ", line(&event.kind, 24));
    let room = columns.saturating_sub(head.len());
    format!("{head}{}", line(&details(&event.data), room))
        .trim_end()
        .to_owned()
}

/// Details of an event of any kind. Unknown kinds are shown by their plain fields.
fn details(data: &Value) -> String {
    let field = |name: &str| data.get(name).and_then(Value::as_str);
    let mut said = Vec::new();
    if let Some(tool) = field("toolName") {
        said.push(tool.to_owned());
        said.extend(field("paramsSummary").map(str::to_owned));
    }
    said.extend(field("state").map(str::to_owned));
    let error = data.get("error").and_then(|error| {
        error
            .as_str()
            .or_else(|| error.get("message").and_then(Value::as_str))
    });
    let outcome = error.or(field("resultSummary")).or(field("text"));
    if let Some(outcome) = outcome {
        said.push(format!("→ {outcome}"));
    }
    if said.is_empty()
        && let Some(fields) = data.as_object()
    {
        let plain = |(name, value): (&String, &Value)| match value {
            Value::String(text) if !name.ends_with("Id") => Some(format!("{name} {text}")),
            Value::Number(number) => Some(format!("{name} {number}")),
            _ => None,
        };
        said.extend(fields.iter().filter_map(plain));
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unicode_width::UnicodeWidthStr;

    fn event(kind: &str, data: Value) -> Event {
        serde_json::from_value(json!({
            "cursor": 7, "at": "2026-11-30T00:53:20.123Z", "kind": kind, "data": data,
            "runId": "01936f0e-0000-7000-8000-00004f2a91c3",
        }))
        .unwrap()
    }

    #[test]
    fn an_event_is_one_line_of_what_matters() {
        let called = json!({
            "stepId": "x", "state": "done", "toolName": "grep", "paramsSummary": "main",
            "resultSummary": "3 files", "error": null,
        });
        assert_eq!(
            on_a_line(&event("tool.completed", called), 80),
            "00:53:20 tool.completed     4f2a91c3 grep main done → 3 files"
        );
        let ended = json!({ "state": "error", "error": { "kind": "p", "message": "gone" } });
        assert_eq!(
            on_a_line(&event("run.ended", ended), 80),
            "00:53:20 run.ended          4f2a91c3 error → gone"
        );
        let unknown = json!({ "newId": "x", "level": 3, "name": "new" });
        assert_eq!(
            on_a_line(&event("brand.new", unknown), 80),
            "00:53:20 brand.new          4f2a91c3 level 3 name new"
        );
        let wide = json!({ "state": "子代理恢复运行\u{1b}[31m".repeat(20) });
        assert!(on_a_line(&event("run.step", wide), 80).width() <= 80);
    }
}
