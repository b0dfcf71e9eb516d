//! Files that an outside agent reads and writes through its client: confined to the run's folder, by
//! the same rules and code as the tools `read` and `write`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::agent::Agent;
use super::asks::withdrawn;
use super::{OutsideRunner, site_of};
use crate::acp_protocol::request::{ReadFile, WriteFile};
use crate::acp_protocol::{Incoming, RpcError, code, params};
use crate::contract::journal::RunView;
use crate::contract::runner::Admission;
use crate::kernel::run::RunError;
use crate::kernel::run::step::Step;
use crate::runner::command::program_step;
use crate::runner::rights::rights;
use crate::runner::turn::pinned_agent;
use crate::tool::{Call, Called, NodeContext, ToolOutput};

impl OutsideRunner {
    /// Reads a file that may be read at once; only what a person decides on becomes a step.
    pub(super) fn read_at_once(
        &self,
        agent: &Arc<Agent>,
        view: &Arc<RunView>,
        step: &Arc<Step>,
        (id, given): (Value, Value),
    ) {
        let Ok(place) = Arc::clone(&agent.reads).try_acquire_owned() else {
            let error = RpcError::new(code::INVALID_REQUEST, "too many files are read at once");
            return agent.link.respond::<Value>(&id, Err(error));
        };
        agent.reading(&id);
        let (runner, agent) = (self.clone(), Arc::clone(agent));
        let (view, step) = (Arc::clone(view), Arc::clone(step));
        tokio::spawn(async move {
            let _place = place;
            let file = params::<ReadFile>(given.clone());
            let file = file.and_then(|file| agent.check(&file.session_id).map(|()| file));
            let admitted = match &file {
                Ok(file) => runner.admit_reading(&view, &step, file).await,
                Err(_) => Ok(Admission::Allowed),
            };
            let refuse = |error| agent.link.respond::<Value>(&id, Err(error));
            match (file, admitted) {
                _ if agent.stops_reading(&id) => refuse(withdrawn()),
                (Err(error), _) => refuse(error),
                (Ok(file), Ok(Admission::Allowed)) => {
                    runner.read_file(&agent, &view, &id, file).await;
                }
                (Ok(_), Ok(Admission::NeedsApproval(_))) => agent.hear(Incoming::Request {
                    id,
                    method: "fs/read_text_file".to_owned(),
                    params: given,
                }),
                (Ok(_), Ok(Admission::Refused(why)) | Err(RunError { message: why, .. })) => {
                    refuse(RpcError::new(code::INVALID_REQUEST, why));
                }
            }
        });
    }

    async fn admit_reading(
        &self,
        view: &RunView,
        step: &Step,
        file: &ReadFile,
    ) -> Result<Admission, RunError> {
        let definition = pinned_agent(view)?;
        let rights = rights(&definition, view)?;
        let folder = self.folder(view.run.cwd.as_deref(), definition.command.as_ref());
        let admitted = self.tools.admit(Call {
            site: site_of(step),
            id: "",
            name: "read",
            root: &folder,
            served: None,
            rights: &rights,
            environment: &view.environment,
            arguments: &json!({ "path": file.path }),
            links: &definition.linked_agents,
            nodes: NodeContext::default(),
            program: program_step(view, step, self.clock.moment().steady),
        });
        Ok(admitted.await)
    }

    /// Answers the request with the lines of the file; returns what the call's step says.
    pub(super) async fn read_file(
        &self,
        agent: &Agent,
        view: &RunView,
        id: &Value,
        file: ReadFile,
    ) -> (String, bool) {
        let command = pinned_agent(view).ok();
        let command = command.as_ref().and_then(|one| one.command.as_ref());
        let folder = self.folder(view.run.cwd.as_deref(), command);
        let first = file.line.map_or(1, |line| line as usize);
        let count = file.limit.map(|limit| limit as usize);
        let read = self.tools.read_lines(&folder, file.path, first, count);
        match read.await {
            Ok(content) => {
                let told = format!("{} bytes", content.len());
                agent.link.respond(id, Ok(json!({ "content": content })));
                (told, false)
            }
            Err(why) => {
                let error = RpcError::new(code::NOT_FOUND, &why);
                agent.link.respond::<Value>(id, Err(error));
                (why, true)
            }
        }
    }

    /// Writes the file and answers the request; returns what the call's step says.
    pub(super) async fn write_file(
        &self,
        agent: &Agent,
        view: &RunView,
        step: &Step,
        id: &Value,
        file: WriteFile,
    ) -> (String, bool) {
        let written = self.write(view, step, file).await;
        let (text, failed) = match written {
            Ok(Called::Done(ToolOutput { text, is_error })) => (text, is_error),
            Ok(Called::Gone(why)) | Err(RunError { message: why, .. }) => (why, true),
            Ok(Called::Waits | Called::Uncertain { .. }) => (
                "it is unknown whether the file was written".to_owned(),
                true,
            ),
        };
        match failed {
            false => agent.link.respond(id, Ok(json!({}))),
            true => {
                let error = RpcError::new(code::INVALID_REQUEST, &text);
                agent.link.respond::<Value>(id, Err(error));
            }
        }
        (text, failed)
    }

    async fn write(
        &self,
        view: &RunView,
        step: &Step,
        file: WriteFile,
    ) -> Result<Called, RunError> {
        let definition = pinned_agent(view)?;
        let rights = rights(&definition, view)?;
        let folder = self.folder(view.run.cwd.as_deref(), definition.command.as_ref());
        let called = self.tools.call(Call {
            site: site_of(step),
            id: "",
            name: "write",
            root: &folder,
            served: None,
            rights: &rights,
            environment: &view.environment,
            arguments: &json!({ "path": file.path, "content": file.content }),
            links: &definition.linked_agents,
            nodes: NodeContext::default(),
            program: program_step(view, step, self.clock.moment().steady),
        });
        Ok(called.await)
    }
}
