//! `abide chat`: a conversation with a session's agent, a line at a time.

use clap::Args;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::{End, Interrupt, Task, follow};
use super::link::{self, Link};
use super::person::Person;
use super::text::{COLUMNS, line};
use super::{cancel, ids, print, start, switch, wait};
use crate::clock::Clock;
use crate::kernel::ids::{AgentId, RunId, SessionKey};
use crate::kernel::message::plain_text;
use crate::wire::gateway::{NoParams, Status};
use crate::wire::input::PageSize;
use crate::wire::runs::{Turn, TurnAccepted};
use crate::wire::sessions::{Create, Created, GetHistory, GetSession, History};
use crate::wire::shapes::{Message, Run, Session};

/// How many earlier messages are shown at the start.
const EARLIER: u32 = 10;
/// Talk with a session's agent, a line at a time
///
/// Shows what was said before, then reads a line, runs a turn, shows how it goes on and prints
/// the answer, until the input ends (Ctrl-D). What a run asks meanwhile is asked here. Ctrl-C
/// leaves; a turn under way goes on, unless Ctrl-C is pressed twice within 2 s: then it is
/// cancelled and the conversation goes on. A new session sees the current folder. /agent lists
/// the agents to talk with, and /agent NAME goes on with one, in a conversation of its own.
#[derive(Debug, Args)]
#[command(after_help = "abide chat
abide chat agent:build:tour")]
pub(crate) struct Chat {
    /// A session key or label; a key that is not there yet makes a new session [default: the
    /// default agent's session "chat"]
    #[arg(value_name = "SESSION")]
    session: Option<String>,

    /// Fail if no daemon is there, in place of starting one
    #[arg(long)]
    no_start: bool,
}

impl Chat {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = start::link(&common.place, self.no_start).await?;
        let name = match self.session {
            Some(name) => name,
            None => {
                let status: Status = link.ask("gateway.status", NoParams {}).await?;
                format!("agent:{}:chat", status.default_agent)
            }
        };
        let session = open(&link, &name).await?;
        let mut talk = Talk {
            link,
            common,
            key: session.key.clone(),
            agent: session.agent.clone(),
            person: Person::new(),
            interrupt: Interrupt::new()?,
        };
        talk.begin(&session).await?;
        let mut code = 0;
        while let Some(message) = talk.line().await {
            if message.trim().is_empty() {
                continue;
            }
            if let Some(name) = switch::wanted(&message) {
                talk.switch(name).await?;
                continue;
            }
            match talk.turn(message).await? {
                Some(ended) => code = ended,
                None => return Ok(exit::WINDOW),
            }
        }
        Ok(code)
    }
}

/// The session that is meant; a key that nobody has yet becomes a session that sees the current
/// folder.
async fn open(link: &Link, name: &str) -> Result<Session, Failure> {
    let missing = match ids::session(link, name).await {
        Ok(key) => {
            let request = GetSession { session_key: key };
            return link.ask("sessions.get", request).await;
        }
        Err(missing) if missing.code == exit::NOT_FOUND => missing,
        Err(failure) => return Err(failure),
    };
    // A word without a colon was meant to be a name that is there already.
    let key = match SessionKey::parse(name) {
        Ok(key) if name.contains(':') => key,
        _ => {
            return Err(missing.hint("for a new session give a key: abide chat agent:build:NAME"));
        }
    };
    // What stands in the key must not be another one than who answers.
    let agent = match key.as_str().split(':').collect::<Vec<_>>()[..] {
        ["agent", agent, _, ..] => Some(agent.to_owned()),
        _ => None,
    };
    let request = Create {
        agent,
        key: Some(key),
        cwd: here(),
        ..Create::default()
    };
    let created: Created = link.ask("sessions.create", &request).await?;
    Ok(created.session)
}

/// The current folder; one whose name is not UTF-8 cannot be said.
fn here() -> Option<String> {
    let folder = std::env::current_dir().ok()?;
    folder.into_os_string().into_string().ok()
}

/// With whom one talks, and what is easily mistaken.
fn greet(session: &Session) {
    let folder = session.cwd.as_deref().unwrap_or("no folder");
    let head = format!("{} in {}, {folder}", session.agent, session.key);
    print::note(&print::styled(print::HEAD, line(&head, COLUMNS)));
    if here().is_some_and(|here| here != folder) {
        let key = line(session.key.as_str(), COLUMNS);
        print::note("its folder is not the current one; so that it is:");
        print::note(&format!("  abide sessions patch {key} --cwd ."));
    }
    let keys = "/agent lists whom else to talk with; Ctrl-D ends the conversation";
    print::note(&print::styled(print::DIM, keys));
}

/// A conversation under way.
struct Talk<'a> {
    link: Link,
    common: &'a Common,
    key: SessionKey,
    agent: AgentId,
    person: Person,
    interrupt: Interrupt,
}

impl Talk<'_> {
    /// Says with whom one talks, and what was said before.
    async fn begin(&self, session: &Session) -> Result<(), Failure> {
        if session.messages > 0 {
            earlier(&self.link, self.common, &session.key).await?;
        }
        if self.person.is_there {
            greet(session);
        }
        Ok(())
    }

    /// Goes on with another agent, in its own conversation; without a name it says which there
    /// are.
    async fn switch(&mut self, name: &str) -> Result<(), Failure> {
        self.link = self.link().await?;
        match switch::choose(&self.link, &self.agent, name, here()).await {
            Ok(None) => Ok(()),
            Ok(Some(chosen)) => {
                let key = switch::session_of(&self.key, &self.agent, &chosen.name);
                let session = open(&self.link, &key).await?;
                self.key = session.key.clone();
                self.agent = session.agent.clone();
                self.begin(&session).await
            }
            // A name that is mistyped ends no conversation.
            Err(refused) if refused.code == exit::NOT_FOUND => {
                print::note(&refused.to_string());
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// The next line; `None` at the end of the input, or when the person wants to leave.
    async fn line(&mut self) -> Option<String> {
        if self.person.is_there {
            print::prompt(&print::styled(print::HEAD, "you> "));
        }
        let line = tokio::select! {
            line = self.person.line() => line,
            () = self.interrupt.pressed() => None,
        };
        if line.is_none() && self.person.is_there {
            // The shell goes on below the prompt, not behind it.
            print::note("");
        }
        line
    }

    /// Runs one turn and prints its answer; `None`: the person left it to go on alone.
    async fn turn(&mut self, message: String) -> Result<Option<u8>, Failure> {
        let id = self.say(message).await?;
        let link = self.link().await?;
        let task = Task {
            ids: &[id],
            any: false,
            window: None,
            show: !self.common.json && self.person.is_there,
            person: (!self.common.json).then_some(&mut self.person),
        };
        let raw = match follow(link, &self.common.place, task, &mut self.interrupt).await? {
            End::Done(raw) | End::Window(raw) => raw,
            End::Detached => {
                wait::detached(&[id]);
                if !self.interrupt.pressed_again().await {
                    return Ok(None);
                }
                let link = self.link().await?;
                let run = cancel::after_second_thoughts(&link, id).await?;
                return Ok(Some(exit::of_run(&run.state, run.needs_review)));
            }
        };
        if self.common.json {
            print::object(&raw)?;
        }
        let run: Run = wait::only(&raw)?;
        if !self.common.json {
            // The wait's answer may hold a part of a long text only.
            let link = self.link().await?;
            wait::result(&ids::details(&link, run.run_id).await?, false)?;
        }
        Ok(Some(exit::of_run(&run.state, run.needs_review)))
    }

    /// A link of its own for what goes on while others are in use.
    async fn link(&self) -> Result<Link, Failure> {
        match Link::open(&self.common.place).await {
            Err(lost) if lost.code == exit::NO_DAEMON => {
                link::find_again(&self.common.place, lost, print::note).await
            }
            opened => opened,
        }
    }

    /// Queues a turn. A request whose answer was lost is recognised by its key.
    async fn say(&mut self, message: String) -> Result<RunId, Failure> {
        let request = Turn {
            env: None,
            session_key: self.key.clone(),
            message,
            agent: None,
            run_id: None,
            model: None,
            thinking: None,
            run_timeout: None,
            budget: None,
            idempotency_key: Some(Clock::system().new_id().to_string()),
            meta: None,
        };
        let accepted: TurnAccepted = match self.link.ask("agent.run", &request).await {
            Err(lost) if link::is_broken(&lost) => {
                self.link = link::find_again(&self.common.place, lost, print::note).await?;
                self.link.ask("agent.run", &request).await?
            }
            answered => answered?,
        };
        Ok(accepted.run_id)
    }
}

/// What was said last, so that one knows where one is.
async fn earlier(link: &Link, common: &Common, key: &SessionKey) -> Result<(), Failure> {
    let request = GetHistory {
        session_key: key.clone(),
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
    for message in &page.messages {
        print::note(&shown(message));
    }
    Ok(())
}

fn shown(message: &Message) -> String {
    let who = match (&*message.role, &*message.kind) {
        ("assistant", _) => "<",
        (_, "announce") => "*",
        ("user", _) => ">",
        _ => "-",
    };
    let text = print::for_screen(&plain_text(&message.content), 2);
    let text = text.replace('\n', "\n  ");
    print::styled(print::DIM, format!("{who} {text}"))
}
