//! Runs and steps as spans of a trace, with OpenTelemetry's names for the work of agents. They are
//! made from the rows of an ended run, so a trace is complete across restarts. They are written to
//! the log if enabled (`ABIDE_LOG=info,abide::spans=debug`), and sent to a collector
//! (`telemetry.otlp_endpoint`).

use tracing::Level;

use crate::kernel::run::step::{Step, StepKind, StepState};
use crate::kernel::run::trace::{TraceParent, span_of};
use crate::kernel::run::{Run, RunState, Usage};
use crate::kernel::time::Timestamp;

/// One span of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSpan {
    /// The trace id, 32 hexadecimal digits.
    pub trace: String,
    /// The span id.
    pub id: u64,
    /// The id of the parent span.
    pub parent: Option<u64>,
    /// Its name: operation and subject.
    pub name: String,
    /// Whether it calls an external service.
    pub is_client: bool,
    /// When it started.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The error message, if it failed.
    pub error: Option<String>,
    /// Further attributes.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// The value of a span's attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// An integer.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.to_owned())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// The log target of spans.
const TARGET: &str = "abide::spans";

/// Are spans written to the log or sent to a collector?
pub fn are_wanted() -> bool {
    if super::otlp::is_on() {
        return true;
    }
    tracing::enabled!(target: TARGET, Level::DEBUG)
}

/// Writes spans to the log and sends them to the collector.
pub fn export(spans: Vec<TraceSpan>) {
    for span in &spans {
        tracing::debug!(
            target: TARGET,
            trace = span.trace,
            span = format!("{:016x}", span.id),
            parent = span.parent.map(|parent| format!("{parent:016x}")),
            start = %span.start,
            duration_ms = span.end.since(span.start),
            error = span.error,
            attributes = ?span.attributes,
            "{}",
            span.name
        );
    }
    super::otlp::send(spans);
}

/// The spans of an ended run and of its steps; none for an open run.
pub fn of(run: &Run, steps: &[Step]) -> Vec<TraceSpan> {
    let RunState::Ended(_) = run.state else {
        return Vec::new();
    };
    let steps = steps.iter().filter_map(|step| of_step(run, step));
    std::iter::once(of_run(run)).chain(steps).collect()
}

fn of_run(run: &Run) -> TraceSpan {
    let caller = TraceParent::of(run.meta.as_ref()).filter(|caller| caller.trace == run.trace_id);
    let above = run.parent_run.map(|above| span_of(above.0));
    let mut attributes = about("invoke_agent", run);
    attributes.extend([
        ("gen_ai.request.model", run.model.as_str().into()),
        ("abide.run.outcome", run.state.as_str().into()),
        ("abide.run.tool_calls", u64::from(run.tool_calls).into()),
    ]);
    attributes.extend(tokens(run.usage));
    if let Some(error) = &run.error {
        attributes.push(("error.type", error.kind.as_str().into()));
    }
    TraceSpan {
        trace: run.trace_id.clone(),
        id: span_of(run.id.0),
        parent: above.or(caller.map(|caller| caller.span)),
        name: format!("invoke_agent {}", run.agent),
        is_client: false,
        start: run.created_at,
        end: run.ended_at.unwrap_or(run.last_activity_at),
        error: run.error.as_ref().map(|error| error.message.clone()),
        attributes,
    }
}

fn of_step(run: &Run, step: &Step) -> Option<TraceSpan> {
    let used = step.used.as_ref();
    let (operation, subject) = match step.kind {
        StepKind::Model => ("chat", run.model.as_str()),
        StepKind::Tool => ("execute_tool", step.tool.as_deref().unwrap_or_default()),
        StepKind::Command => ("execute_tool", "command"),
        StepKind::Compaction => ("chat", "compaction"),
    };
    let mut attributes = about(operation, run);
    match step.kind {
        // A compaction that only drops old entries calls no model.
        StepKind::Compaction if used.is_none() => {}
        StepKind::Model | StepKind::Compaction => {
            attributes.push(("gen_ai.request.model", run.model.as_str().into()));
            let answered = used.map_or(run.model.as_str(), |used| used.model.as_str());
            if let Some((provider, _)) = answered.split_once('/') {
                attributes.push(("gen_ai.provider.name", provider.into()));
            }
            if let Some(used) = used {
                attributes.push(("gen_ai.response.model", used.model.as_str().into()));
                attributes.extend(tokens(used.usage));
            }
        }
        StepKind::Tool | StepKind::Command => {
            attributes.push(("gen_ai.tool.name", subject.into()));
        }
    }
    if let Some(call) = &step.tool_call {
        attributes.push(("gen_ai.tool.call.id", call.as_str().into()));
    }
    attributes.push(("abide.step.attempts", u64::from(step.attempts).into()));
    let error = match step.state {
        StepState::Failed | StepState::Uncertain => Some(step.error.clone().unwrap_or_default()),
        _ => None,
    };
    if error.is_some() {
        attributes.push(("error.type", step.state.as_str().into()));
    }
    Some(TraceSpan {
        trace: run.trace_id.clone(),
        id: span_of(step.id.0),
        parent: Some(span_of(run.id.0)),
        name: format!("{operation} {subject}"),
        is_client: step.kind == StepKind::Model || used.is_some(),
        start: step.started_at,
        end: step.ended_at?,
        error,
        attributes,
    })
}

/// The attributes of every span of a run.
fn about(operation: &'static str, run: &Run) -> Vec<(&'static str, Attribute)> {
    let mut about = vec![
        ("gen_ai.operation.name", operation.into()),
        ("gen_ai.agent.name", run.agent.as_str().into()),
        ("gen_ai.conversation.id", run.session_key.as_str().into()),
        ("user.id", run.user.as_str().into()),
        ("abide.run.id", run.id.to_string().as_str().into()),
    ];
    if run.parent_run.is_some() {
        let tag = format!("sub_agent:{}", run.agent);
        about.push(("tag", tag.as_str().into()));
    }
    about
}

fn tokens(used: Usage) -> [(&'static str, Attribute); 2] {
    [
        ("gen_ai.usage.input_tokens", used.input_tokens.into()),
        ("gen_ai.usage.output_tokens", used.output_tokens.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::{RunId, StepId};
    use crate::kernel::run::step::{EffectClass, Intent, ModelUsage};
    use crate::kernel::run::{AnnouncePolicy, Outcome, RunError};
    use crate::kernel::sample::queued;
    use serde_json::json;
    use uuid::Uuid;

    fn ended() -> Run {
        let mut run = queued(AnnouncePolicy::None);
        run.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736".to_owned();
        run.state = RunState::Ended(Outcome::Error);
        run.error = Some(RunError::new("provider", "no key"));
        run.ended_at = Some(Timestamp(5000));
        run.usage.input_tokens = 100;
        run
    }

    fn step(kind: StepKind, state: StepState) -> Step {
        let intent = Intent {
            id: StepId(Uuid::from_u128(77)),
            kind,
            tool: (kind == StepKind::Tool).then(|| "grep".to_owned()),
            tool_call: (kind == StepKind::Tool).then(|| "c1".to_owned()),
            asked_by: None,
            effect: EffectClass::Read,
            input: json!(null),
            params_summary: None,
            context: None,
        };
        let mut step = intent.into_step(ended().id, 1, None, Timestamp(1000));
        step.state = state;
        step.ended_at = Some(Timestamp(2000));
        step
    }

    fn said<'a>(span: &'a TraceSpan, name: &str) -> Option<&'a Attribute> {
        let mut known = span.attributes.iter();
        known
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    #[test]
    fn b3_runs_and_steps_are_spans_with_the_names_of_the_conventions() {
        let mut chat = step(StepKind::Model, StepState::Done);
        chat.used = Some(ModelUsage {
            model: "other/large".to_owned(),
            usage: Usage {
                model_calls: 1,
                input_tokens: 100,
                output_tokens: 7,
                cost_micros: 0,
            },
        });
        let steps = [chat, step(StepKind::Tool, StepState::Failed)];
        let run = ended();
        let found = of(&run, &steps);
        let [agent, chat, tool] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(found.iter().all(|span| span.trace == run.trace_id));
        assert_eq!(agent.name, "invoke_agent explore");
        assert_eq!(agent.parent, None);
        assert_eq!(agent.error.as_deref(), Some("no key"));
        assert_eq!((agent.start, agent.end), (Timestamp(0), Timestamp(5000)));
        assert_eq!(said(agent, "error.type"), Some(&"provider".into()));
        assert_eq!(
            said(agent, "gen_ai.operation.name"),
            Some(&"invoke_agent".into())
        );
        assert_eq!(said(agent, "gen_ai.agent.name"), Some(&"explore".into()));
        assert_eq!(said(agent, "tag"), None);
        assert_eq!(chat.name, "chat offline/search");
        assert!(chat.is_client);
        assert_eq!(chat.parent, Some(agent.id));
        assert_eq!(
            said(chat, "gen_ai.request.model"),
            Some(&"offline/search".into())
        );
        // Another model answered instead of the run's own.
        assert_eq!(
            said(chat, "gen_ai.response.model"),
            Some(&"other/large".into())
        );
        assert_eq!(said(chat, "gen_ai.provider.name"), Some(&"other".into()));
        assert_eq!(
            said(chat, "gen_ai.usage.output_tokens"),
            Some(&Attribute::Number(7))
        );
        assert_eq!(tool.name, "execute_tool grep");
        assert_eq!(said(tool, "gen_ai.tool.call.id"), Some(&"c1".into()));
        assert!(tool.error.is_some());
    }

    #[test]
    fn b3_a_subagent_is_tagged_and_a_caller_outside_is_joined() {
        let mut child = ended();
        child.parent_run = Some(RunId(Uuid::from_u128(9)));
        let steps = [step(StepKind::Tool, StepState::Done)];
        for span in of(&child, &steps) {
            assert_eq!(
                said(&span, "tag"),
                Some(&"sub_agent:explore".into()),
                "{span:?}"
            );
        }
        assert_eq!(of(&child, &[])[0].parent, Some(9));

        let mut root = ended();
        let parent = format!("00-{}-00000000000000ab-01", root.trace_id);
        root.meta = Some(json!({ "traceparent": parent }));
        assert_eq!(of(&root, &[])[0].parent, Some(0xab));
        root.state = RunState::Queued;
        assert!(of(&root, &steps).is_empty());
    }
}
