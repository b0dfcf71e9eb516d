//! Commands that the user may type as `/name`: the skills that the session's agent can load.

use std::collections::HashSet;
use std::rc::Rc;

use super::editor::Editor;
use super::sessions::OpenSession;
use crate::acp_protocol::update::{Command, CommandInput, Update};
use crate::kernel::text::preview;
use crate::wire::agents::GetAgent;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::sessions::GetSession;
use crate::wire::skills::{ListSkills, TakeSnapshot};

/// The tool by which an agent loads a skill.
const SKILL: &str = "skill";
/// Maximum number of characters of a description.
const DESCRIPTION: usize = 200;

impl Editor {
    /// Tells the editor the commands of a session if they have changed.
    pub(super) async fn tell_commands(&self, session: &Rc<OpenSession>) {
        // Commands are a convenience: without them the skills are still there.
        let Some(commands) = self.commands(session).await else {
            return;
        };
        if *session.commands.borrow() == commands {
            return;
        }
        session.commands.borrow_mut().clone_from(&commands);
        let update = Update::AvailableCommandsUpdate {
            available_commands: commands,
        };
        self.output.update(session.key.as_str(), &update).await;
    }

    async fn commands(&self, session: &OpenSession) -> Option<Vec<Command>> {
        let request = GetSession {
            session_key: session.key.clone(),
        };
        let found = self.link.call(&request).await.ok()?;
        let agent = found.agent.to_string();
        let request = GetAgent {
            agent: agent.clone(),
            cwd: found.cwd.clone(),
        };
        let can_load = self.link.call(&request).await.ok()?.tools;
        if !can_load.iter().any(|tool| tool == SKILL) {
            return Some(Vec::new());
        }
        let request = TakeSnapshot {
            agent: Some(agent),
            workspace: found.cwd.clone(),
        };
        let skills = self.link.call(&request).await.ok()?.skills;
        let not_for_users = self.not_for_users(found.cwd).await?;
        let skills = skills.into_iter();
        let skills = skills.filter(|skill| !not_for_users.contains(&skill.name));
        let commands = skills.map(|skill| Command {
            description: preview(&skill.description, DESCRIPTION),
            input: CommandInput {
                hint: "what to do with it".to_owned(),
            },
            name: skill.name,
        });
        Some(commands.collect())
    }

    /// Names of the skills that users may not ask for.
    async fn not_for_users(&self, workspace: Option<String>) -> Option<HashSet<String>> {
        let mut request = ListSkills {
            workspace,
            limit: PageSize(PAGE_LIMIT),
            ..ListSkills::default()
        };
        let mut found = HashSet::new();
        loop {
            let page = self.link.call(&request).await.ok()?;
            let skills = page.skills.into_iter();
            let inner = skills.filter(|skill| !skill.user_invocable);
            found.extend(inner.map(|skill| skill.name));
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                return Some(found);
            }
        }
    }
}

/// The text of a prompt; one that begins with a command names the skill to load.
pub(super) fn expanded(session: &OpenSession, text: String) -> String {
    let Some(typed) = text.strip_prefix('/') else {
        return text;
    };
    let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let commands = session.commands.borrow();
    if !commands.iter().any(|command| command.name == name) {
        return text;
    }
    let order = format!("Load the skill {name:?} with the tool skill, and follow it.");
    match rest.trim() {
        "" => order,
        rest => format!("{order}\n\n{rest}"),
    }
}
