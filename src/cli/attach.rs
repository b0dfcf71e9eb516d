//! `abide attach`: looks at a run or a session while it works.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::Interrupt;
use super::link::{self, Link};
use super::text::short;
use super::view::{View, tree_of};
use super::watch::{Seen, Watch};
use super::{ids, print, tree, wait};
use crate::kernel::ids::{MessageId, RunId, SessionKey};
use crate::wire::events::{Event, MessageText, SubscribeEvents};
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, Runs};
use crate::wire::sessions::{GetHistory, History};
use crate::wire::shapes::Run;

/// How often the picture is drawn anew.
const FRAME: Duration = Duration::from_millis(250);
/// After so many frames without news it is read anew all the same: times go on.
const QUIET_FRAMES: u32 = 8;
/// So many turns of a session are shown.
const TURNS: u32 = 5;

/// Look at a run or a session while it works
///
/// Shows the runs with their last tool calls, and what they say while they say it. Looking
/// never starts or changes anything; Ctrl-C stops looking, and the work goes on. A run's
/// answer is printed on standard output once it has ended. A link that is lost is found
/// again. With --json each event is one line.
#[derive(Debug, Args)]
#[command(after_help = "abide attach @last
abide attach agent:build:chat")]
pub(crate) struct Attach {
    /// A run, or a session's key or label
    #[arg(value_name = "RUN|SESSION")]
    what: String,
}

/// What is looked at.
enum Target {
    Run(RunId),
    Session(SessionKey),
}

impl Attach {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let target = match ids::run(&link, &self.what).await {
            Ok(id) => Target::Run(id),
            Err(failure) if failure.code == exit::NOT_FOUND => {
                Target::Session(ids::session(&link, &self.what).await?)
            }
            Err(failure) => return Err(failure),
        };
        let request = match &target {
            Target::Run(id) => SubscribeEvents {
                tree: Some(*id),
                deltas: true,
                ..SubscribeEvents::default()
            },
            Target::Session(key) => SubscribeEvents {
                session_key: Some(key.clone()),
                deltas: true,
                ..SubscribeEvents::default()
            },
        };
        let mut interrupt = Interrupt::new()?;
        let watch = Watch::open(link, &common.place, request, print::note).await?;
        let mut look = Look {
            watch,
            target,
            view: (!common.json).then(View::for_people),
            texts: Texts::default(),
        };
        tokio::select! {
            code = look.on() => code,
            () = interrupt.pressed() => Ok(look.detached()),
        }
    }
}

/// A look that goes on.
struct Look<'a> {
    watch: Watch<'a>,
    target: Target,
    /// `None`: programs look, and get the events.
    view: Option<View>,
    texts: Texts,
}

impl Look<'_> {
    /// Goes on until the run that is looked at has ended; a session has no end.
    async fn on(&mut self) -> Result<u8, Failure> {
        let mut frames = tokio::time::interval(FRAME);
        let mut quiet = 0;
        let mut news = true;
        loop {
            tokio::select! {
                seen = self.watch.seen() => news |= match seen? {
                    Some(Seen::Picture(_, whole)) => {
                        if self.view.is_none() {
                            print::object(&whole)?;
                        }
                        true
                    }
                    Some(Seen::Event(event)) => self.take(&event).await?,
                    None => {
                        let say = |text: &str| match &self.view {
                            // People are told, which cannot fail.
                            Some(view) => drop(view.tell(text, || serde_json::Value::Null)),
                            None => print::note(text),
                        };
                        self.watch.come_back(&say).await?;
                        true
                    }
                },
                _ = frames.tick() => {
                    quiet += 1;
                    if news || quiet >= QUIET_FRAMES {
                        (news, quiet) = (false, 0);
                        if let Some(code) = self.refresh().await? {
                            return Ok(code);
                        }
                    }
                }
            }
        }
    }

    /// Shows an event; may a run stand otherwise now?
    async fn take(&mut self, event: &Event) -> Result<bool, Failure> {
        let Some(view) = &mut self.view else {
            print::object(event)?;
            return Ok(true);
        };
        match event.kind.as_str() {
            "message.delta" | "message.partial" | "message.reset" => {
                let text: MessageText = link::read(&event.data)?;
                if text.channel.as_deref() == Some("thinking") {
                    return Ok(false);
                }
                self.texts.take(&event.kind, &text);
                view.comes(text.run_id, self.texts.of(text.message_id));
                Ok(false)
            }
            "message.added" => {
                if let Some(run) = event.run_id {
                    view.comes(run, "");
                }
                self.said(event).await?;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Prints what was said in the session that is looked at. A run's last text is its answer
    /// and comes with its end.
    async fn said(&mut self, event: &Event) -> Result<(), Failure> {
        let (Target::Session(key), Some(view)) = (&self.target, &self.view) else {
            return Ok(());
        };
        let (Some(seq), Some("text" | "announce" | "restart_notice")) =
            (event.data["seq"].as_i64(), event.data["kind"].as_str())
        else {
            return Ok(());
        };
        let request = GetHistory {
            session_key: key.clone(),
            before: None,
            after: Some(seq - 1),
            tools: Some(true),
            limit: PageSize(1),
        };
        let page: History = self.watch.link.ask("sessions.history", &request).await?;
        for message in &page.messages {
            view.says(&super::history::show(
                message,
                crate::clock::Clock::system().now(),
                false,
            ))?;
        }
        Ok(())
    }

    /// Reads how the runs stand and draws them; the exit code once the run that is looked at
    /// has ended.
    async fn refresh(&mut self) -> Result<Option<u8>, Failure> {
        let asked = match &self.target {
            Target::Run(id) => tree_of(&self.watch.link, *id).await,
            Target::Session(key) => self.turns(key).await,
        };
        let runs = match asked {
            Ok(runs) => runs,
            // The subscription finds the daemon again; until then the picture stands.
            Err(failure) if link::is_broken(&failure) || failure.kind == "unavailable" => {
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        if let Some(view) = &mut self.view {
            view.show(&self.watch.link, &runs).await?;
        }
        let Target::Run(id) = self.target else {
            return Ok(None);
        };
        let ended = runs
            .iter()
            .find(|run| run.run_id == id && tree::is_ended(&run.state));
        match ended {
            Some(run) => self.end(run).await.map(Some),
            None => Ok(None),
        }
    }

    /// The last turns of a session, oldest first.
    async fn turns(&self, key: &SessionKey) -> Result<Vec<Run>, Failure> {
        let request = ListRuns {
            session_key: Some(key.clone()),
            limit: PageSize(TURNS),
            ..ListRuns::default()
        };
        let mut runs = self
            .watch
            .link
            .ask::<Runs>("runs.list", &request)
            .await?
            .runs;
        runs.reverse();
        Ok(runs)
    }

    async fn end(&mut self, run: &Run) -> Result<u8, Failure> {
        let run = ids::details(&self.watch.link, run.run_id).await?;
        if self.view.take().is_some() {
            wait::result(&run, false)?;
        } else {
            print::object(&run)?;
        }
        Ok(exit::of_run(&run.state, run.needs_review))
    }

    /// After Ctrl-C: how to come back.
    fn detached(&mut self) -> u8 {
        self.view = None;
        let (what, code) = match &self.target {
            Target::Run(id) => (short(id), exit::WINDOW),
            Target::Session(key) => (key.to_string(), 0),
        };
        print::note(&format!(
            "detached; the work goes on. Come back: abide attach {what}"
        ));
        code
    }
}

/// Answers as far as they have come.
#[derive(Default)]
struct Texts(HashMap<MessageId, String>);

impl Texts {
    fn take(&mut self, kind: &str, text: &MessageText) {
        let known = self.0.entry(text.message_id).or_default();
        let said = text.text.as_deref().unwrap_or_default();
        match kind {
            "message.delta" => known.push_str(said),
            // All of it so far, or nothing of it counts.
            _ => said.clone_into(known),
        }
    }

    fn of(&self, message: MessageId) -> &str {
        self.0.get(&message).map_or("", String::as_str)
    }
}
