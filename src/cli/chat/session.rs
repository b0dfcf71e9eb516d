//! Opens or creates the session of a conversation, and shows its last exchange.

use super::agents;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids};
use crate::cli::link::{self, DaemonLink};
use crate::cli::output::markdown::Markdown;
use crate::cli::output::print::{DIM, HEAD, styled};
use crate::cli::output::text::{COLUMNS, clean, line};
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::message::plain_text;
use crate::wire::gateway::GetStatus;
use crate::wire::input::PageSize;
use crate::wire::lifecycle::PatchSession;
use crate::wire::sessions::{Create, Created, GetHistory, GetSession, History};
use crate::wire::shapes::{Message, Session};

/// Number of messages that are read to find the last exchange.
const EARLIER: u32 = 20;
/// Maximum number of lines shown of the user's last message.
const SAID: usize = 6;

/// Session options from the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatOptions {
    /// Session key or label.
    pub(super) name: Option<String>,
    pub(super) agent: Option<String>,
    /// Create the session; fail if it exists.
    pub(super) is_new: bool,
    pub(super) model: Option<String>,
    pub(super) thinking: Option<Thinking>,
    /// Working folder, absolute.
    pub(super) cwd: Option<String>,
}

/// The session that was named.
pub(super) enum NamedSession {
    Existing(Box<Session>),
    /// It is still to be created.
    New(Create),
}

/// Opens the wanted session and applies the options; an unknown key creates one in the wanted or
/// current folder.
pub(super) async fn open(link: &DaemonLink, wanted: &ChatOptions) -> Result<Session, Failure> {
    let named = find(link, wanted).await?;
    enter(link, wanted, named).await
}

/// Creates the session if it is new, and applies the options.
pub(super) async fn enter(
    link: &DaemonLink,
    wanted: &ChatOptions,
    named: NamedSession,
) -> Result<Session, Failure> {
    let session = match named {
        NamedSession::Existing(session) => *session,
        NamedSession::New(request) => {
            let created: Created = link.ask(&request).await?;
            created.session
        }
    };
    patch(link, wanted, session).await
}

/// Finds the wanted session. Changes nothing.
pub(super) async fn find(link: &DaemonLink, wanted: &ChatOptions) -> Result<NamedSession, Failure> {
    let name = match (&wanted.name, wanted.is_new) {
        (Some(name), _) => name.clone(),
        (None, is_new) => {
            let agent = match &wanted.agent {
                Some(agent) => agent.clone(),
                None => link.ask(&GetStatus {}).await?.default_agent,
            };
            match is_new {
                true => format!("agent:{agent}:{}", text::short(Clock::system().new_id())),
                false => format!("agent:{agent}:chat"),
            }
        }
    };
    match ids::session(link, &name).await {
        Ok(key) if wanted.is_new => Err(Failure::usage(format!("session {key} already exists"))
            .hint("omit --new to continue it")),
        Ok(key) => {
            let request = GetSession { session_key: key };
            let session: Session = link.ask(&request).await?;
            if let Some(agent) = wanted
                .agent
                .as_deref()
                .filter(|agent| *agent != session.agent.as_str())
            {
                return Err(Failure::usage(format!(
                    "session {} belongs to agent {}, not {}",
                    session.key,
                    session.agent,
                    line(agent, 40)
                ))
                .hint("omit --agent, or name another session"));
            }
            Ok(NamedSession::Existing(Box::new(session)))
        }
        Err(missing) if missing.code == exit::NOT_FOUND => {
            let request = to_create(link, wanted, &name, missing).await?;
            Ok(NamedSession::New(request))
        }
        Err(failure) => Err(failure),
    }
}

/// The request that creates the session `name`; `missing` if it is not the key of a new one.
async fn to_create(
    link: &DaemonLink,
    wanted: &ChatOptions,
    name: &str,
    missing: Failure,
) -> Result<Create, Failure> {
    // A word without a colon was meant as an existing name.
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
    // The agent in the key takes precedence: the two must not differ.
    let agent = match key.as_str().split(':').collect::<Vec<_>>()[..] {
        ["agent", agent, _, ..] => Some(agent.to_owned()),
        _ => wanted.agent.clone(),
    };
    Ok(Create {
        agent,
        key: Some(key),
        cwd: wanted.cwd.clone().or_else(here),
        ..Create::default()
    })
}

/// Changes the session's model, thinking level and folder where they differ from the options.
async fn patch(
    link: &DaemonLink,
    wanted: &ChatOptions,
    session: Session,
) -> Result<Session, Failure> {
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
        ..PatchSession::unchanged(session.key)
    };
    link.ask(&request).await
}

/// The current folder; `None` if its path is not UTF-8.
pub(super) fn here() -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    folder.into_os_string().into_string().ok()
}

/// Prints the agent, the session and its folder, and warns if the folder differs or a turn is
/// running.
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
        print::note("its folder is not the current one; to change that:");
        print::note(&format!("  abide sessions patch {key} --cwd ."));
    }
    if &*session.state == "busy" {
        print::note(
            "a turn is running here: /attach follows it, your messages are queued behind it",
        );
    }
    print::note(&styled(DIM, "/help lists commands and keys; Ctrl-D quits"));
}

/// Prints the last exchange of the session for orientation.
pub(super) async fn last_exchange(
    link: &DaemonLink,
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
    let raw = link.raw(&request).await?;
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
            format!("… earlier messages: abide history {key}"),
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
        // Other kinds, such as announcements of ended runs: the start of their text.
        _ => styled(DIM, line(&format!("* {text}"), columns)),
    })
}
