//! Parses the field `linked_agents`.

use serde_json::{Map, Value};

use super::FieldReader;
use crate::agent::values::{duration, text, word};
use crate::contract::linked::{Link, LinkSession};
use crate::kernel::delegation::Stream;
use crate::kernel::ids::AgentId;
use crate::kernel::policy::gate::WriteScope;

impl FieldReader<'_> {
    pub(super) fn linked_agents(&mut self, value: &Value) -> Result<(), String> {
        let Value::Array(items) = value else {
            return Err("a list of agents is expected".to_owned());
        };
        let mut linked: Vec<Link> = Vec::new();
        for item in items {
            let link = match item {
                Value::Object(fields) => self.link(fields)?,
                name => Link::to(agent(name)?),
            };
            if linked.iter().any(|other| other.agent == link.agent) {
                return Err(format!("{} is named twice", link.agent));
            }
            let tool = link.tool();
            let same = |other: &&Link| tool.is_some() && other.tool() == tool;
            if let Some(other) = linked.iter().find(same) {
                let tool = tool.unwrap_or_default();
                let (first, second) = (&other.agent, &link.agent);
                return Err(format!(
                    "{first} and {second} would both be the tool {tool}"
                ));
            }
            linked.push(link);
        }
        self.draft.definition.linked_agents = linked;
        Ok(())
    }

    fn link(&mut self, fields: &Map<String, Value>) -> Result<Link, String> {
        let mut link = Link::to(agent(
            fields.get("agent").ok_or("each needs the field agent")?,
        )?);
        for (name, value) in fields {
            match name.as_str() {
                "agent" => {}
                "session" => match text(value)?.as_str() {
                    "own" => link.session = Some(LinkSession::Own),
                    "shared" => link.session = Some(LinkSession::Shared),
                    _ => return Err("session: own or shared is expected".to_owned()),
                },
                "timeout" => link.timeout_ms = Some(duration(value)?),
                "write_scope" => {
                    let scope = WriteScope::parse(&text(value)?);
                    let expected = "write_scope: workspace, own or none is expected";
                    link.write_scope = Some(scope.ok_or(expected)?);
                }
                "stream" => {
                    let stream = Stream::parse(&text(value)?);
                    let expected = "stream: aggregated, direct or none is expected";
                    link.stream = Some(stream.ok_or(expected)?);
                }
                "on_failure" => {
                    let taken = word(value, &["continue", "abort"])
                        .map_err(|why| format!("on_failure: {why}"))?;
                    link.on_failure = Some(taken);
                }
                _ => self.unknown(
                    &["linked_agents", name],
                    value,
                    &[
                        "agent",
                        "session",
                        "timeout",
                        "write_scope",
                        "stream",
                        "on_failure",
                    ],
                )?,
            }
        }
        if link.session != Some(LinkSession::Shared) {
            let unused = [
                ("stream", link.stream.take().is_some()),
                ("on_failure", link.on_failure.take().is_some()),
            ];
            for (name, _) in unused.into_iter().filter(|(_, was_there)| *was_there) {
                self.draft.warnings.push(format!(
                    "linked_agents: {name} of {} is ignored: it needs session: shared",
                    link.agent
                ));
            }
        }
        Ok(link)
    }
}

fn agent(name: &Value) -> Result<AgentId, String> {
    AgentId::parse(&text(name)?).map_err(|error| error.to_string())
}
