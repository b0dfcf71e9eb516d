//! The contents of a notification: a few words for a user and facts for a program. It contains no
//! environment values: texts of runs are stored masked.

use serde_json::json;

use crate::kernel::event::{NodeAsked, NodeLost, NodeWaiting};
use crate::kernel::run::Run;
use crate::kernel::text;
use crate::registry::{RunDetail, StoredEvent};

/// Maximum length of a text in characters.
const TEXT: usize = 300;
/// Maximum length of a heading in characters.
const TITLE: usize = 80;
/// Maximum number of headings named in a combined notification.
const NAMED: usize = 5;

/// One notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// `approval`, `question`, `value`, `review`, `node`, `ended`, or `several`.
    pub(super) kind: &'static str,
    /// Id of the approval, question, value, step, node, call or run it is about, or the code of a node
    /// that waits.
    pub(super) id: String,
    /// The run's id; this and the next three are empty if it is about a node.
    pub(super) run: String,
    /// The run's agent.
    pub(super) agent: String,
    /// The run's session key.
    pub(super) session: String,
    /// The run's state or outcome.
    pub(super) state: String,
    /// The heading.
    pub(super) title: String,
    /// One line of detail.
    pub(super) text: String,
    /// Number of things it is about.
    pub(super) count: usize,
}

impl Facts {
    fn of(run: &Run, kind: &'static str, id: String, title: String, said: &str) -> Facts {
        Facts {
            kind,
            id,
            run: run.id.to_string(),
            agent: run.agent.to_string(),
            session: run.session_key.to_string(),
            state: run.state.as_str().to_owned(),
            title: text::preview(&title, TITLE),
            text: text::preview(said, TEXT),
            count: 1,
        }
    }

    /// One notification for each thing that a run waits for and a user can provide.
    pub(super) fn of_waits(detail: &RunDetail) -> Vec<Facts> {
        let run = &detail.run;
        let who = name(run);
        let mut all = Vec::new();
        for asked in &detail.approvals {
            let what = match asked.consent.covers.as_str() {
                "" => asked.arguments.to_string(),
                covers => covers.to_owned(),
            };
            let title = format!("{who} wants to call {}", asked.tool);
            all.push(Facts::of(
                run,
                "approval",
                asked.id.to_string(),
                title,
                &what,
            ));
        }
        for asked in &detail.questions {
            let title = format!("{who} has a question");
            all.push(Facts::of(
                run,
                "question",
                asked.id.to_string(),
                title,
                &asked.text,
            ));
        }
        for (variable, why) in &detail.missing_env {
            let title = format!("{who} has no value for {variable}");
            let id = format!("{}:{variable}", run.id);
            all.push(Facts::of(run, "value", id, title, why));
        }
        for step in &detail.reviews {
            let title = format!("{who} needs a review");
            let tool = step.tool.as_deref().unwrap_or("its program");
            let said = match &step.error {
                Some(why) => format!("{tool} may have taken effect: {why}"),
                None => format!("{tool} may have taken effect before the daemon was killed"),
            };
            let id = step.id.to_string();
            all.push(Facts::of(run, "review", id, title, &said));
        }
        all
    }

    /// The notification that a node needs a person: it waits to be paired, its allow-list asks about a
    /// program, or it is gone in the middle of calls. `None` for other events.
    pub(super) fn of_node(event: &StoredEvent) -> Option<Facts> {
        let data = event.data.get();
        let (id, title, said) = match event.kind.as_str() {
            "node.waiting" => {
                let one: NodeWaiting = serde_json::from_str(data).ok()?;
                let title = format!("node {} waits to be paired", one.name);
                let said = format!(
                    "{0} shows the code {1}: abide nodes approve {1}",
                    one.name, one.code
                );
                (one.code, title, said)
            }
            "node.asked" => {
                let one: NodeAsked = serde_json::from_str(data).ok()?;
                let title = format!("node {} asks about a program", one.name);
                let said = format!("whether {} may run there: abide nodes", one.program);
                (one.call_id.to_string(), title, said)
            }
            "node.lost" => {
                let one: NodeLost = serde_json::from_str(data).ok()?;
                if one.calls == 0 {
                    return None;
                }
                let title = format!("node {} is gone in the middle of a call", one.name);
                let calls = match one.calls {
                    1 => "a call".to_owned(),
                    calls => format!("{calls} calls"),
                };
                let said = format!("the outcome of {calls} is unknown until it is back");
                (one.node_id.to_string(), title, said)
            }
            _ => return None,
        };
        Some(Facts {
            kind: "node",
            id,
            run: String::new(),
            agent: String::new(),
            session: String::new(),
            state: String::new(),
            title: text::preview(&title, TITLE),
            text: text::preview(&said, TEXT),
            count: 1,
        })
    }

    /// The notification of a run's end.
    pub(super) fn of_end(run: &Run) -> Facts {
        let title = format!("{} ended: {}", name(run), run.state.as_str());
        let said = match &run.error {
            Some(error) => error.message.as_str(),
            None => run.title.as_str(),
        };
        Facts::of(run, "ended", run.id.to_string(), title, said)
    }

    /// Combines several notifications into one; `None` if there are none.
    pub(super) fn of_several(all: &[Facts]) -> Option<Facts> {
        let (first, rest) = all.split_first()?;
        if rest.is_empty() {
            return Some(first.clone());
        }
        let ended = all.iter().filter(|one| one.kind == "ended").count();
        let title = match (all.len() - ended, ended) {
            (0, ended) => format!("{ended} runs ended"),
            (waiting, 0) => format!("{waiting} things wait for you"),
            (waiting, ended) => format!("{waiting} things wait for you, {ended} runs ended"),
        };
        let mut named: Vec<&str> = all
            .iter()
            .take(NAMED)
            .map(|one| one.title.as_str())
            .collect();
        if all.len() > NAMED {
            named.push("…");
        }
        Some(Facts {
            kind: "several",
            title,
            text: text::preview(&named.join("; "), TEXT),
            count: all.len(),
            ..first.clone()
        })
    }

    /// The variables of the notification command's environment.
    pub(super) fn variables(&self) -> [(&'static str, String); 9] {
        [
            ("ABIDE_NOTIFY_KIND", self.kind.to_owned()),
            ("ABIDE_NOTIFY_ID", self.id.clone()),
            ("ABIDE_NOTIFY_RUN_ID", self.run.clone()),
            ("ABIDE_NOTIFY_AGENT", self.agent.clone()),
            ("ABIDE_NOTIFY_SESSION", self.session.clone()),
            ("ABIDE_NOTIFY_STATE", self.state.clone()),
            ("ABIDE_NOTIFY_TITLE", self.title.clone()),
            ("ABIDE_NOTIFY_TEXT", self.text.clone()),
            ("ABIDE_NOTIFY_COUNT", self.count.to_string()),
        ]
    }

    /// Fills `{title}`, `{text}` and the other placeholders into an argument of the command.
    /// Inserted values are not expanded again.
    pub(super) fn fill(&self, argument: &str) -> String {
        let mut out = String::with_capacity(argument.len());
        let mut rest = argument;
        while let Some(at) = rest.find('{') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            match &rest[..end] {
                "{kind}" => out.push_str(self.kind),
                "{run}" => out.push_str(&self.run),
                "{agent}" => out.push_str(&self.agent),
                "{title}" => out.push_str(&self.title),
                "{text}" => out.push_str(&self.text),
                "{json}" => out.push_str(&self.json()),
                // A brace that belongs to the command itself.
                _ => {
                    out.push('{');
                    rest = &rest[1..];
                    continue;
                }
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    fn json(&self) -> String {
        json!({
            "kind": self.kind, "id": self.id, "runId": self.run, "agent": self.agent,
            "sessionKey": self.session, "state": self.state, "title": self.title,
            "text": self.text, "count": self.count,
        })
        .to_string()
    }
}

fn name(run: &Run) -> &str {
    run.label.as_deref().unwrap_or(run.agent.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(title: &str) -> Facts {
        Facts {
            kind: "ended",
            id: "1".to_owned(),
            run: "2".to_owned(),
            agent: "build".to_owned(),
            session: "agent:build:x".to_owned(),
            state: "ok".to_owned(),
            title: title.to_owned(),
            text: "it is done".to_owned(),
            count: 1,
        }
    }

    #[test]
    fn arguments_are_filled_in_once() {
        let one = facts("{text} {json}");
        assert_eq!(one.fill("{title}: {text}"), "{text} {json}: it is done");
        assert_eq!(one.fill("{\"a\": {kind}}"), "{\"a\": ended}");
        assert_eq!(one.fill("{none} {"), "{none} {");
        let json: serde_json::Value = serde_json::from_str(&one.fill("{json}")).unwrap();
        assert_eq!(json["title"], "{text} {json}");
    }

    #[test]
    fn several_are_one_with_their_number() {
        let all: Vec<Facts> = (0..9).map(|n| facts(&format!("run {n}"))).collect();
        let one = Facts::of_several(&all).unwrap();
        assert_eq!((one.kind, one.count), ("several", 9));
        assert_eq!(one.title, "9 runs ended");
        assert_eq!(one.text, "run 0; run 1; run 2; run 3; run 4; …");
        assert_eq!(Facts::of_several(&all[..1]), Some(facts("run 0")));
        assert_eq!(Facts::of_several(&[]), None);
    }
}
