//! The session of a conversation: the one that is meant, or a new one, and what was said in it last.

use super::agents;
use crate::cli::args::Common;
use crate::cli::failure::{Failure, exit};
use crate::cli::link::{self, Link};
use crate::cli::markdown::Markdown;
use crate::cli::print::{self, DIM, HEAD, styled};
use crate::cli::text::{COLUMNS, clean, line};
use crate::cli::{ids, text};
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::kernel::message::plain_text;
use crate::wire::gateway::{NoParams, Status};
use crate::wire::input::{PageSize, ThinkingLevel};
use crate::wire::lifecycle::PatchSession;
use crate::wire::sessions::{Create, Created, GetHistory, GetSession, History};
use crate::wire::shapes::{Message, Session};

/// The most messages that are looked at for the last exchange.
const EARLIER: u32 = 20;
/// The most lines that are shown of what was said to the agent.
const SAID: usize = 6;

/// What is asked of the session on the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Its key or label.
    pub(super) name: Option<String>,
    pub(super) agent: Option<String>,
    /// A session that is not there yet.
    pub(super) is_new: bool,
    pub(super) model: Option<String>,
    pub(super) thinking: Option<ThinkingLevel>,
    /// Its folder, absolute.
    pub(super) cwd: Option<String>,
}

/// The session that is wanted; a key that no session has yet makes one that sees the folder.
pub(super) async fn open(link: &Link, wanted: &Wanted) -> Result<Session, Failure> {
    let name = match (&wanted.name, wanted.is_new) {
        (Some(name), _) => name.clone(),
        (None, is_new) => {
            let agent = match &wanted.agent {
                Some(agent) => agent.clone(),
                None => {
                    link.ask::<Status>("gateway.status", NoParams {})
                        .await?
                        .default_agent
                }
            };
            match is_new {
                true => format!("agent:{agent}:{}", text::short(Clock::system().new_id())),
                false => format!("agent:{agent}:chat"),
            }
        }
    };
    let session = match ids::session(link, &name).await {
        Ok(key) if wanted.is_new => {
            return Err(Failure::usage(format!("session {key} is there already"))
                .hint("leave --new away to go on with it"));
        }
        Ok(key) => {
            let request = GetSession { session_key: key };
            let session: Session = link.ask("sessions.get", request).await?;
            if let Some(agent) = wanted
                .agent
                .as_deref()
                .filter(|agent| *agent != session.agent.as_str())
            {
                return Err(Failure::usage(format!(
                    "session {} is one of agent {}, not {}",
                    session.key,
                    session.agent,
                    line(agent, 40)
                ))
                .hint("leave --agent away, or name another session"));
            }
            session
        }
        Err(missing) if missing.code == exit::NOT_FOUND => {
            create(link, wanted, &name, missing).await?
        }
        Err(failure) => return Err(failure),
    };
    patch(link, wanted, session).await
}

async fn create(
    link: &Link,
    wanted: &Wanted,
    name: &str,
    missing: Failure,
) -> Result<Session, Failure> {
    // A word without a colon was meant to be a name that is there already.
    let key = match SessionKey::parse(name) {
        Ok(key) if name.contains(':') => key,
        _ => {
            let agents = agents::of_people(link, here()).await?;
            return Err(match agents.iter().any(|agent| agent.name == name) {
                true => missing.hint(format!(
                    "to talk with that agent: abide chat --agent {name}"
                )),
                false => missing.hint("for a new session give a key: abide chat agent:build:NAME"),
            });
        }
    };
    // What stands in the key must not be another one than who answers.
    let agent = match key.as_str().split(':').collect::<Vec<_>>()[..] {
        ["agent", agent, _, ..] => Some(agent.to_owned()),
        _ => wanted.agent.clone(),
    };
    let request = Create {
        agent,
        key: Some(key),
        cwd: wanted.cwd.clone().or_else(here),
        ..Create::default()
    };
    let created: Created = link.ask("sessions.create", &request).await?;
    Ok(created.session)
}

/// Gives the session what was asked for and it does not have.
async fn patch(link: &Link, wanted: &Wanted, session: Session) -> Result<Session, Failure> {
    let model = wanted
        .model
        .clone()
        .filter(|model| session.model.as_ref() != Some(model));
    let level = wanted
        .thinking
        .filter(|level| session.thinking.as_deref() != Some(level.as_str()));
    let cwd = wanted
        .cwd
        .clone()
        .filter(|cwd| session.cwd.as_ref() != Some(cwd));
    if model.is_none() && level.is_none() && cwd.is_none() {
        return Ok(session);
    }
    let request = PatchSession {
        model: model.map(Some),
        thinking: level.map(Some),
        cwd: cwd.map(Some),
        ..unchanged(session.key)
    };
    link.ask("sessions.patch", &request).await
}

/// The level of this name.
pub(in crate::cli) fn level(word: &str) -> Option<ThinkingLevel> {
    serde_json::from_value(word.into()).ok()
}

/// A change that changes nothing.
pub(super) fn unchanged(key: SessionKey) -> PatchSession {
    PatchSession {
        session_key: key,
        label: None,
        title: None,
        model: None,
        thinking: None,
        cwd: None,
        if_revision: None,
    }
}

/// The current folder; one whose name is not UTF-8 cannot be sent.
pub(super) fn here() -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    folder.into_os_string().into_string().ok()
}

/// Who answers, where, and what is easily mistaken.
pub(super) fn greet(session: &Session) {
    let columns = print::notes_width().unwrap_or(COLUMNS);
    let folder = session.cwd.as_deref().unwrap_or("no folder");
    let head = format!("{} in {}, {folder}", session.agent, session.key);
    print::note(&styled(HEAD, line(&head, columns)));
    let mut more = Vec::new();
    if let Some(model) = &session.model {
        more.push(format!("model {model}"));
    }
    if let Some(level) = &session.thinking {
        more.push(format!("thinking {level}"));
    }
    if !more.is_empty() {
        print::note(&styled(DIM, line(&more.join(", "), columns)));
    }
    if here().is_some_and(|here| here != folder) {
        let key = line(session.key.as_str(), COLUMNS);
        print::note("its folder is not the current one; so that it is:");
        print::note(&format!("  abide sessions patch {key} --cwd ."));
    }
    if &*session.state == "busy" {
        print::note("a turn is under way here: /attach follows it, what you send comes after it");
    }
    print::note(&styled(DIM, "/help lists commands and keys; Ctrl-D leaves"));
}

/// What was said last, so that one knows where one is.
pub(super) async fn last_exchange(
    link: &Link,
    common: &Common,
    session: &Session,
) -> Result<(), Failure> {
    let request = GetHistory {
        session_key: session.key.clone(),
        before: None,
        after: None,
        tools: Some(false),
        limit: PageSize(EARLIER),
    };
    let raw = link.raw("sessions.history", &request).await?;
    if common.json {
        return print::object(&raw);
    }
    let page: History = link::read(&raw)?;
    let said = |message: &&Message| &*message.role == "user" && &*message.kind == "text";
    let from = page
        .messages
        .iter()
        .rposition(|message| said(&message))
        .unwrap_or(0);
    let earlier = page.messages.get(from).map_or(0, |first| first.seq - 1);
    if earlier > 0 {
        let key = line(session.key.as_str(), COLUMNS);
        print::note(&styled(
            DIM,
            format!("… what was said before: abide history {key}"),
        ));
    }
    for message in &page.messages[from..] {
        if let Some(text) = shown(message) {
            print::note(&text);
        }
    }
    print::note("");
    Ok(())
}

fn shown(message: &Message) -> Option<String> {
    let text = plain_text(&message.content);
    if text.trim().is_empty() {
        return None;
    }
    let columns = print::notes_width().unwrap_or(COLUMNS);
    Some(match (&*message.role, &*message.kind) {
        ("assistant", _) => Markdown::render(&text, columns),
        ("user", "text") => {
            let text = clean(text.trim_end());
            let lines: Vec<&str> = text.lines().collect();
            let mut shown = lines[..lines.len().min(SAID)].join("\n     ");
            if lines.len() > SAID {
                shown.push_str("\n     …");
            }
            styled(DIM, format!("you> {shown}"))
        }
        // Ends of runs and the like: what they say first.
        _ => styled(DIM, line(&format!("* {text}"), columns)),
    })
}
