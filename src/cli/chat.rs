//! `abide chat`: a conversation with a session's agent, a line at a time.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use clap::Args;
use tokio::sync::mpsc;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::Interrupt;
use super::link::{self, Link};
use super::text::clean;
use super::{answer, ids, print, wait};
use crate::clock::Clock;
use crate::kernel::ids::{QuestionId, RunId, SessionKey};
use crate::kernel::message::plain_text;
use crate::wire::input::{PageSize, WaitTimeout};
use crate::wire::questions::{AnswerQuestion, Question};
use crate::wire::runs::{Turn, TurnAccepted, Wait, Waited};
use crate::wire::sessions::{GetHistory, History};
use crate::wire::shapes::{Message, Run};

/// How many earlier messages are shown at the start.
const EARLIER: u32 = 10;
/// How long one wait lasts: after each it is seen whether a run asks something.
const GLANCE: Duration = Duration::from_secs(1);

/// Talk with a session's agent, a line at a time
///
/// Shows what was said before, then reads a line, runs a turn and prints the answer, until the
/// input ends (Ctrl-D). What a run asks meanwhile is asked here. Ctrl-C leaves; a turn under
/// way goes on.
#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// A session key or label; a key that is not there yet makes a new session
    #[arg(value_name = "SESSION", default_value = "agent:build:chat")]
    session: String,
}

impl Chat {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let key = match ids::session(&link, &self.session).await {
            Ok(key) => {
                earlier(&link, common, &key).await?;
                key
            }
            Err(missing) if missing.code == exit::NOT_FOUND => {
                SessionKey::parse(&self.session).map_err(|_| missing)?
            }
            Err(failure) => return Err(failure),
        };
        let mut talk = Talk {
            link,
            common,
            key,
            input: Input::open(),
            interrupt: Interrupt::new()?,
            asked: Vec::new(),
        };
        let mut code = 0;
        while let Some(message) = talk.line("you").await {
            if message.trim().is_empty() {
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

/// A conversation under way.
struct Talk<'a> {
    link: Link,
    common: &'a Common,
    key: SessionKey,
    input: Input,
    interrupt: Interrupt,
    /// Questions that were put to the person already.
    asked: Vec<QuestionId>,
}

impl Talk<'_> {
    /// The next line; `None` at the end of the input, or when the person wants to leave.
    async fn line(&mut self, prompt: &str) -> Option<String> {
        if std::io::stdin().is_terminal() {
            print::note(&print::styled(print::HEAD, format!("{prompt}:")));
        }
        tokio::select! {
            line = self.input.0.recv() => line,
            () = self.interrupt.pressed() => None,
        }
    }

    /// Runs one turn and prints its answer; `None`: the person left it to go on alone.
    async fn turn(&mut self, message: String) -> Result<Option<u8>, Failure> {
        let id = self.say(message).await?;
        loop {
            let ask = Wait {
                run_id: Some(id),
                wait_timeout: WaitTimeout(GLANCE),
                ..Wait::default()
            };
            let looked = tokio::select! {
                looked = self.link.raw("agent.wait", ask) => looked,
                () = self.interrupt.pressed() => {
                    wait::detached(&[id]);
                    return Ok(None);
                }
            };
            let raw = match looked {
                Ok(raw) => raw,
                Err(lost) if link::is_broken(&lost) => {
                    self.link = link::find_again(&self.common.place, lost, print::note).await?;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let waited: Waited = link::read(&raw)?;
            if waited.done {
                if self.common.json {
                    print::object(&raw)?;
                }
                let run: Run = wait::only(&raw)?;
                if !self.common.json {
                    wait::result(&run, false)?;
                }
                return Ok(Some(exit::of_run(&run.state, run.needs_review)));
            }
            // A daemon that stops answers every wait at once; its successor knows the rest.
            if waited.cause == "draining" {
                tokio::time::sleep(link::RETRY).await;
            }
            if !self.common.json {
                self.questions().await?;
            }
        }
    }

    /// Puts what this session's tree asks to the person; an empty line leaves it open.
    async fn questions(&mut self) -> Result<(), Failure> {
        let (_, open) = answer::waiting(&self.link, Some(&self.key)).await?;
        for question in open {
            if self.asked.contains(&question.id) {
                continue;
            }
            self.asked.push(question.id);
            print::note(&answer::show(&question, Clock::system().now()));
            let Some(said) = self.line("your answer (empty: later)").await else {
                continue;
            };
            if !said.trim().is_empty() {
                self.answer(&question, said.trim()).await?;
            }
        }
        Ok(())
    }

    async fn answer(&self, question: &Question, said: &str) -> Result<(), Failure> {
        let request = AnswerQuestion {
            id: question.id,
            text: Some(said.to_owned()),
            choice: None,
        };
        match self.link.raw("questions.answer", &request).await {
            Ok(_) => {}
            // It ran out, or somebody else was first: the conversation goes on.
            Err(refused) if refused.kind == "conflict" => print::note(&refused.to_string()),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Queues a turn. A request whose answer was lost is recognised by its key.
    async fn say(&mut self, message: String) -> Result<RunId, Failure> {
        let request = Turn {
            session_key: self.key.clone(),
            message,
            agent: None,
            run_id: None,
            model: None,
            thinking: None,
            run_timeout: None,
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

/// The lines of standard input. They are read on a thread of its own, which ends with the
/// program, so that Ctrl-C is heard while nobody types.
struct Input(mpsc::Receiver<String>);

impl Input {
    fn open() -> Input {
        let (lines, received) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Input(received)
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
    let text = clean(&plain_text(&message.content));
    let text = text.trim_end().replace('\n', "\n  ");
    print::styled(print::DIM, format!("{who} {text}"))
}
