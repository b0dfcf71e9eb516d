//! An open conversation: runs turns and shows their results. `input.rs` reads the user's input.

use std::collections::VecDeque;

use super::command::{ChatLine, SlashCommand, read};
use super::editor::Editor;
use super::idle::Idle;
use super::input::ChatInput;
use super::session::{self, ChatOptions, greet, last_exchange};
use crate::cli::asking::open_requests;
use crate::cli::asking::person::Person;
use crate::cli::commands::{run, wait};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::{Common, ids, origin};
use crate::cli::link::{self, DaemonLink};
use crate::cli::live::follow::{CtrlC, DetachReason, FollowOutcome, Task, follow};
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::screen::Screen;
use crate::cli::output::text::{line, short};
use crate::cli::output::{print, text};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::runs::{Turn, TurnAccepted};
use crate::wire::shapes::Session;

/// Maximum number of columns of a message that is quoted in a note.
const QUOTED: usize = 40;
/// Note for a turn whose request the user leaves open.
const LATER: &str = "left open: the turn waits for your answer; /attach asks again";

/// State of an open conversation.
pub(super) struct Talk<'a> {
    pub(super) link: DaemonLink,
    pub(super) common: &'a Common,
    pub(super) session: Session,
    pub(super) person: Person,
    pub(super) interrupt: CtrlC,
    /// The line editor of an interactive terminal; `None` if lines are read as from a pipe.
    pub(super) editor: Option<Editor>,
    pub(super) idle: Option<Idle<'a>>,
    /// Lines that were read ahead, which are sent one after another; `ahead` is the unfinished
    /// next line.
    pub(super) queued: VecDeque<String>,
    pub(super) ahead: String,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        link: DaemonLink,
        common: &'a Common,
        session: Session,
        person: Person,
    ) -> Result<Self, Failure> {
        // The editor and its prompt use standard output.
        let has_editor = person.is_there && !common.json && print::screen_width().is_some();
        let editor = match has_editor {
            true => {
                let state = common.place.state_dir().ok();
                let folder = std::env::current_dir().ok();
                Some(Editor::new(state, folder.as_deref())?)
            }
            false => None,
        };
        Ok(Talk {
            link,
            common,
            session,
            person,
            interrupt: CtrlC::new()?,
            editor,
            idle: None,
            queued: VecDeque::new(),
            ahead: String::new(),
        })
    }

    /// Runs the conversation until the input ends; returns the exit code of the last turn.
    pub(super) async fn run(mut self) -> Result<u8, Failure> {
        self.begin().await?;
        let mut code = 0;
        loop {
            let typed = match self.next().await? {
                ChatInput::Line(typed) => typed,
                ChatInput::Nothing => continue,
                ChatInput::End => return Ok(code),
            };
            let done = match read(&typed) {
                ChatLine::Blank => match self.answer().await {
                    Ok(false) => return Ok(code),
                    answered => answered.map(|_| None),
                },
                ChatLine::Command(SlashCommand::Quit) => return Ok(code),
                ChatLine::Command(command) => self.act(command).await.map(|()| None),
                ChatLine::Unknown(word) => {
                    let word = line(&word, 40);
                    self.say(&format!(
                        "unknown command {word}, nothing was sent; /help lists the commands. \
                         Start the line with a blank to send it as a message."
                    ));
                    Ok(None)
                }
                ChatLine::Message(message) => self.turn(message).await,
            };
            match done {
                Ok(None) => {}
                Ok(Some(ChatTurnEnd::As(ended))) => code = ended,
                Ok(Some(ChatTurnEnd::Later)) => self.say(LATER),
                Ok(Some(ChatTurnEnd::Left)) => return Ok(exit::NOT_ENDED),
                Ok(Some(ChatTurnEnd::NeedsPerson)) => return Ok(exit::NEEDS_USER),
                // A person can type something else after a refusal, and the next prompt finds a
                // daemon again that was lost between two requests.
                Err(failure)
                    if self.person.is_there
                        && (is_refusal(&failure) || link::is_broken(&failure)) =>
                {
                    self.say(&failure.to_string());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Prints the last exchange, the session and its agent.
    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        let is_shown = self.person.is_there || self.common.json;
        if self.session.messages > 0 && is_shown {
            last_exchange(&self.link, self.common, &self.session).await?;
        }
        if self.person.is_there {
            greet(&self.session);
        }
        self.idle = None;
        Ok(())
    }

    /// Switches to another session.
    pub(super) async fn switch_to(&mut self, wanted: &ChatOptions) -> Result<(), Failure> {
        self.session = session::open(&self.link, wanted).await?;
        self.begin().await
    }

    /// Prints a note for the user.
    pub(super) fn say(&mut self, text: &str) {
        let text = text::clean(text);
        match &mut self.editor {
            Some(editor) => editor.print(&text),
            None => print::note(&text),
        }
    }

    /// The daemon has queued a turn, and it was followed to its end, once this returns.
    async fn turn(&mut self, message: String) -> Result<Option<ChatTurnEnd>, Failure> {
        let quote = line(&message, QUOTED);
        let mut is_known = true;
        let sent = match self.prepare().await {
            Ok(()) => self.send(message, &mut is_known).await,
            Err(failure) => Err(failure),
        };
        if sent.is_err() && self.person.is_there {
            self.say(&match is_known {
                true => format!("\"{quote}\" was not sent"),
                false => format!("it is not known whether \"{quote}\" was sent"),
            });
        }
        let id = sent?;
        self.follow(id).await.map(Some)
    }

    /// Opens a fresh subscription, so that no event of the session is missed, and a working
    /// connection.
    async fn prepare(&mut self) -> Result<(), Failure> {
        if self.editor.is_some() {
            let link = self.link().await?;
            let mut idle = Idle::open(link, &self.common.place, &self.session.key).await?;
            if let Some(before) = self.idle.take() {
                idle.goes_on_from(before);
            }
            self.idle = Some(idle);
            self.link = self.link().await?;
        }
        Ok(())
    }

    /// After a stopped turn, lines that were typed ahead are not sent by themselves: they become
    /// the start of the next edited line.
    fn put_back(&mut self) {
        if self.queued.is_empty() {
            return;
        }
        self.queued.push_back(std::mem::take(&mut self.ahead));
        let lines: Vec<String> = self.queued.drain(..).collect();
        self.ahead = lines.join("\n").trim_end().to_owned();
        self.say("what you typed meanwhile was not sent; it is in the line below");
    }

    /// Reports the typed-ahead lines that are dropped because the conversation ends.
    fn drop_queued(&mut self) {
        for typed in std::mem::take(&mut self.queued) {
            print::note(&format!("\"{}\" was not sent", line(&typed, QUOTED)));
        }
    }

    /// Follows a turn to its end and shows its result.
    pub(super) async fn follow(&mut self, id: RunId) -> Result<ChatTurnEnd, Failure> {
        let streams = self.editor.is_some() && Screen::is_possible();
        if streams {
            self.person.has_typed(std::mem::take(&mut self.ahead));
        }
        let begin = self.idle.as_ref().map(Idle::position).filter(|_| streams);
        let link = self.link().await?;
        let json = self.common.json;
        let is_there = self.person.is_there && !json;
        let task = Task {
            ids: &[id],
            any: false,
            timeout: None,
            show: is_there,
            json,
            person: is_there.then_some(&mut self.person),
            conversation: begin,
        };
        let place = &self.common.place;
        let end = follow(link, place, task, &mut self.interrupt).await;
        // The editor reads the next lines; the rest of a pipe are further messages.
        if self.editor.is_some() {
            let (lines, ahead) = self.person.typed_ahead().await;
            self.queued.extend(lines);
            self.ahead = ahead;
        }
        if end.is_err() || matches!(end, Ok(FollowOutcome::Detached(DetachReason::Later))) {
            self.put_back();
        }
        if !matches!(end, Ok(FollowOutcome::Detached(DetachReason::Later)))
            && let Some(idle) = &mut self.idle
        {
            idle.is_shown(id);
        }
        let raw = match end? {
            FollowOutcome::Detached(DetachReason::Later) => return Ok(ChatTurnEnd::Later),
            FollowOutcome::Detached(DetachReason::Stopping) => {
                self.drop_queued();
                print::note("detached; the turn is being stopped");
                return Ok(ChatTurnEnd::Left);
            }
            FollowOutcome::Done(raw) | FollowOutcome::TimedOut(raw) => raw,
            FollowOutcome::NeedsPerson(_) => return Ok(ChatTurnEnd::NeedsPerson),
            FollowOutcome::Detached(DetachReason::Detach) => {
                self.drop_queued();
                wait::detached(&[id]);
                return Ok(ChatTurnEnd::Left);
            }
        };
        if self.common.json {
            print::object(&raw)?;
        }
        let run = wait::only(&raw)?;
        if !self.common.json {
            // The reply of the wait may hold only a part of a long text.
            let link = self.link().await?;
            let run = ids::details(&link, run.run_id).await?;
            if streams {
                if &*run.state == "cancelled" {
                    print::note(&styled(DIM, format!("stopped: {}", short(run.run_id))));
                    self.put_back();
                } else {
                    wait::outcome(&run);
                }
                run::print_open_descendants(&link, &run).await?;
                print::note("");
            } else {
                wait::result(&run, false)?;
            }
        }
        if run.needs_review && !self.person.is_there {
            return Ok(ChatTurnEnd::NeedsPerson);
        }
        Ok(ChatTurnEnd::As(exit::of_run(&run.state, run.needs_review)))
    }

    /// Opens a new connection, waiting for the daemon if it is gone; Ctrl-C ends that wait.
    pub(super) async fn link(&mut self) -> Result<DaemonLink, Failure> {
        match DaemonLink::open(&self.common.place).await {
            Err(lost) if lost.code == exit::NO_DAEMON => {
                let gone = lost.clone();
                tokio::select! {
                    link = link::reconnect(&self.common.place, lost, print::note) => {
                        let link = link?;
                        print::note("the daemon is back");
                        Ok(link)
                    }
                    // The user does not want to wait for the daemon.
                    () = self.interrupt.pressed() => Err(gone),
                }
            }
            opened => opened,
        }
    }

    /// The daemon has queued the turn once this returns. A retry after a lost reply uses the same
    /// idempotency key. On an error, `is_known` tells whether it is certain that nothing was sent.
    async fn send(&mut self, message: String, is_known: &mut bool) -> Result<RunId, Failure> {
        let request = Turn {
            env: None,
            session_key: self.session.key.clone(),
            message,
            agent: None,
            run_id: None,
            model: None,
            thinking: None,
            run_timeout: None,
            budget: None,
            idempotency_key: Some(Clock::system().new_id().to_string()),
            meta: origin::marked(None),
        };
        let accepted: TurnAccepted = match self.link.ask(&request).await {
            Err(lost) if link::is_broken(&lost) => {
                *is_known = false;
                self.link = self.link().await?;
                let answered = self.link.ask(&request).await;
                let is_lost = |failure: &Failure| link::is_broken(failure);
                *is_known = !answered.as_ref().is_err_and(is_lost);
                answered?
            }
            answered => answered?,
        };
        Ok(accepted.run_id)
    }

    /// Asks the user about the open requests of runs; `false`: the user wants to quit.
    async fn answer(&mut self) -> Result<bool, Failure> {
        if self.editor.is_none() {
            return Ok(true);
        }
        let open = open_requests::open(&self.link, Some(&self.session.key)).await?;
        let (person, interrupt) = (&mut self.person, &mut self.interrupt);
        let put = super::answer::put_all(&self.link, person, interrupt, open).await;
        // The editor reads the next lines.
        let (lines, ahead) = self.person.typed_ahead().await;
        self.queued.extend(lines);
        self.ahead = ahead;
        put
    }
}

/// How a turn ended for the conversation.
pub(super) enum ChatTurnEnd {
    /// It ended with this exit code.
    As(u8),
    /// It waits for an answer that the user wants to give later.
    Later,
    /// The user detached; the turn continues.
    Left,
    /// A user must decide something, and none is present.
    NeedsPerson,
}

/// True if the daemon refused the request or something was not found, so that another line may
/// succeed.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.code, exit::USAGE | exit::NOT_FOUND | exit::REFUSED)
}
