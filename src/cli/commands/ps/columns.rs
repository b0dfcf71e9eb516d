//! Columns and templates of `abide ps`.

use crate::cli::live::tree;
use crate::cli::output::text::{age, line, short};
use crate::kernel::time::Timestamp;
use crate::wire::shapes::Run;

/// A named value of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunColumn {
    name: &'static str,
    /// Column heading.
    pub(super) head: &'static str,
    value: fn(&Run, Timestamp) -> String,
}

impl PartialEq for RunColumn {
    fn eq(&self, other: &RunColumn) -> bool {
        self.name == other.name
    }
}

const fn column(
    name: &'static str,
    head: &'static str,
    value: fn(&Run, Timestamp) -> String,
) -> RunColumn {
    RunColumn { name, head, value }
}

/// All columns, the usual ones first.
const ALL: [RunColumn; 18] = [
    column("run", "RUN", |run, _| short(run.run_id)),
    column("id", "ID", |run, _| run.run_id.to_string()),
    column("state", "STATE", |run, _| run.state.to_string()),
    column("agent", "AGENT", |run, _| run.agent.to_string()),
    column("age", "AGE", |run, now| age(run.created_at, now)),
    column("tools", "TOOLS", |run, _| run.tool_calls.to_string()),
    column("what", "WHAT", what),
    column("label", "LABEL", |run, _| {
        run.label.clone().unwrap_or_default()
    }),
    column("title", "TITLE", |run, _| run.title.clone()),
    column("session", "SESSION", |run, _| run.session_key.to_string()),
    column("parent", "PARENT", |run, _| {
        run.parent_run_id
            .map(|id| id.to_string())
            .unwrap_or_default()
    }),
    column("root", "ROOT", |run, _| run.root_run_id.to_string()),
    column("model", "MODEL", |run, _| run.model.clone()),
    column("depth", "DEPTH", |run, _| run.depth.to_string()),
    column("loops", "LOOPS", |run, _| run.loops.to_string()),
    column("created", "CREATED", |run, _| run.created_at.to_string()),
    column("ended", "ENDED", |run, _| {
        run.ended_at.map(|at| at.to_string()).unwrap_or_default()
    }),
    column("error", "ERROR", |run, _| {
        let error = run.error.as_ref();
        error.map(|error| error.message.clone()).unwrap_or_default()
    }),
];

/// The default columns; with `whole`, ids are not shortened.
pub(super) fn usual(whole: bool) -> Vec<RunColumn> {
    let id = if whole { "id" } else { "run" };
    [id, "state", "agent", "age", "tools", "what"]
        .into_iter()
        .filter_map(|name| find(name).ok())
        .collect()
}

impl RunColumn {
    /// The value for a run, on one line.
    pub(super) fn of(self, run: &Run, now: Timestamp) -> String {
        line(&(self.value)(run, now), usize::MAX)
    }

    /// True for the state column, whose cells are coloured.
    pub(super) fn is_state(self) -> bool {
        self.name == "state"
    }
}

fn find(name: &str) -> Result<RunColumn, String> {
    let wanted = name.to_ascii_lowercase();
    ALL.into_iter()
        .find(|column| column.name == wanted)
        .ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|column| column.name).collect();
            format!(
                "there is no column {name:?}; there are: {}",
                names.join(", ")
            )
        })
}

/// Output format of the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ListFormat {
    /// A table of these columns.
    Table(Vec<RunColumn>),
    /// A template, filled for each run.
    Template(Vec<TemplatePart>),
    /// One line of JSON for each run.
    Json,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplatePart {
    Text(String),
    Column(RunColumn),
}

impl ListFormat {
    /// Parses `id,state`, `{id} {state}`, `{{.ID}}\t{{.State}}`, `table {{.ID}}\t{{.State}}` or
    /// `json`.
    pub(super) fn parse(text: &str) -> Result<ListFormat, String> {
        if text == "json" {
            return Ok(ListFormat::Json);
        }
        if !text.contains('{') {
            let columns = text.split(',').map(|name| find(name.trim()));
            return columns.collect::<Result<_, _>>().map(ListFormat::Table);
        }
        let is_table = text.strip_prefix("table ");
        let parts = parts(is_table.unwrap_or(text))?;
        if is_table.is_none() {
            return Ok(ListFormat::Template(parts));
        }
        let columns = parts.into_iter().filter_map(|part| match part {
            TemplatePart::Column(column) => Some(column),
            TemplatePart::Text(_) => None,
        });
        Ok(ListFormat::Table(columns.collect()))
    }
}

fn parts(template: &str) -> Result<Vec<TemplatePart>, String> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        parts.push(TemplatePart::Text(unescaped(&rest[..at])));
        let double = rest[at..].starts_with("{{");
        let (open, close) = if double { ("{{", "}}") } else { ("{", "}") };
        let inside = &rest[at + open.len()..];
        let Some(end) = inside.find(close) else {
            return Err(format!("{open} without {close} in {template:?}"));
        };
        let name = inside[..end].trim();
        parts.push(TemplatePart::Column(find(
            name.strip_prefix('.').unwrap_or(name),
        )?));
        rest = &inside[end + close.len()..];
    }
    parts.push(TemplatePart::Text(unescaped(rest)));
    parts.retain(|part| *part != TemplatePart::Text(String::new()));
    Ok(parts)
}

/// Replaces the escapes `\t` and `\n`, which a shell passes on as typed.
fn unescaped(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\n", "\n")
}

/// Formats a run by a template.
pub(super) fn filled(parts: &[TemplatePart], run: &Run, now: Timestamp) -> String {
    let part = |part: &TemplatePart| match part {
        TemplatePart::Text(text) => text.clone(),
        TemplatePart::Column(column) => column.of(run, now),
    };
    parts.iter().map(part).collect()
}

/// Summary of a run on one line: news first, because the end may be cut off.
fn what(run: &Run, now: Timestamp) -> String {
    let name = run.label.as_deref().unwrap_or(&run.title);
    let news = match (&*run.state, &run.step) {
        ("queued", _) if run.held_up.is_some() => run.held_up.clone().unwrap_or_default(),
        ("paused", _) => tree::pause(run),
        (state, Some(step)) if !tree::is_ended(state) => {
            let quiet = age(run.last_activity_at, now);
            format!("step {} {}, {quiet} ago", step.seq, step.what)
        }
        _ => match &run.error {
            Some(error) => error.message.clone(),
            None => String::new(),
        },
    };
    if news.is_empty() {
        name.to_owned()
    } else {
        format!("{news}: {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_people_know_them_from_other_tools() {
        let [id, state] = ["id", "state"].map(|name| find(name).unwrap());
        let tab = || TemplatePart::Text("\t".to_owned());
        let both = || vec![TemplatePart::Column(id), tab(), TemplatePart::Column(state)];
        for text in [
            "{id}\\t{state}",
            "{{.ID}}\\t{{.State}}",
            "{{ .id }}\t{{ .state }}",
        ] {
            assert_eq!(
                ListFormat::parse(text),
                Ok(ListFormat::Template(both())),
                "{text}"
            );
        }
        for text in ["id,state", "ID, State", "table {{.ID}}\\t{{.State}}"] {
            let table = ListFormat::Table(vec![id, state]);
            assert_eq!(ListFormat::parse(text), Ok(table), "{text}");
        }
        assert_eq!(ListFormat::parse("json"), Ok(ListFormat::Json));
        for text in ["nothing", "{nothing}", "{{.Nothing}}"] {
            let refused = ListFormat::parse(text).unwrap_err().to_lowercase();
            assert!(
                refused.contains("no column \"nothing\"; there are: run, id"),
                "{refused}"
            );
        }
        assert!(
            ListFormat::parse("{id")
                .unwrap_err()
                .contains("{ without }")
        );
    }
}
