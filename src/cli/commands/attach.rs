//! `abide attach`: follows a run or a session live.

use clap::Args;
use serde_json::json;

use super::{history, wait};
use crate::cli::asking::needs::Needs;
use crate::cli::asking::person::Person;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::ids::RunOrSession;
use crate::cli::common::under_way::UnderWay;
use crate::cli::common::{Common, ids};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::link::watch::{EventWatch, WatchItem};
use crate::cli::live::follow::{CtrlC, FollowOutcome, Task, follow};
use crate::cli::live::view::{View, tree_of};
use crate::cli::live::{LiveDisplay, LiveUpdate, tree};
use crate::cli::output::print;
use crate::cli::output::text::short;
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::input::PageSize;
use crate::wire::runs::ListRuns;
use crate::wire::sessions::{GetHistory, History};

/// Maximum number of turns of a session that are shown.
const TURNS: u32 = 5;

/// Follow a run or a session live
///
/// Shows the runs with their last tool calls, and streams their output. Attaching never starts or
/// changes anything; requests of the runs can be answered here. Ctrl-C detaches, and the work goes
/// on. A run's answer is printed to standard output when it ends. A lost connection is retried for
/// 60 s. Without a terminal, each request that needs a user is printed with the command that
/// answers it, and the exit code is 8. With --json each event is one line.
#[derive(Debug, Args)]
#[command(after_help = "abide attach @last
abide attach agent:build:chat")]
pub(crate) struct Attach {
    /// A run or a session
    #[arg(value_name = "RUN|SESSION")]
    what: String,
}

impl Attach {
    /// The command that attaches to this run or session.
    pub(crate) fn to(what: String) -> Attach {
        Attach { what }
    }

    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let target = ids::either(&link, &self.what).await?;
        let mut interrupt = CtrlC::new()?;
        let mut person = Person::if_there();
        let code = match &target {
            _ if common.json => events(link, common, &target, &mut interrupt).await?,
            RunOrSession::Run(id) => {
                let ids = [*id];
                let task = Task {
                    ids: &ids,
                    any: false,
                    timeout: None,
                    show: true,
                    json: false,
                    person: person.as_mut(),
                    conversation: None,
                };
                match follow(link, &common.place, task, &mut interrupt).await? {
                    FollowOutcome::Done(_) | FollowOutcome::TimedOut(_) => {
                        Some(end(common, *id).await?)
                    }
                    FollowOutcome::NeedsPerson(_) => {
                        end(common, *id).await?;
                        Some(exit::NEEDS_USER)
                    }
                    FollowOutcome::Detached(_) => None,
                }
            }
            RunOrSession::Session(key) => {
                let request = watched(&target);
                let mut view = View::for_people();
                view.set_heading("latest turns, newest last:");
                let person = person.as_mut();
                let needs = Needs::new(false, person.is_some());
                let live =
                    LiveDisplay::open(link, &common.place, request, Some(view), person).await?;
                let mut look = AttachedSession { key, live, needs };
                tokio::select! {
                    code = look.on() => Some(code?),
                    () = interrupt.pressed() => None,
                }
            }
        };
        Ok(code.unwrap_or_else(|| detached(&target)))
    }
}

/// The subscription for the target: a run's subtree, or a session.
fn watched(target: &RunOrSession) -> SubscribeEvents {
    let all = SubscribeEvents {
        deltas: true,
        ..SubscribeEvents::default()
    };
    match target {
        RunOrSession::Run(id) => SubscribeEvents {
            tree: Some(*id),
            ..all
        },
        RunOrSession::Session(key) => SubscribeEvents {
            session_key: Some(key.clone()),
            ..all
        },
    }
}

/// Prints each event until the run has ended; a session never ends. Returns `None` after Ctrl-C.
async fn events(
    link: DaemonLink,
    common: &Common,
    target: &RunOrSession,
    interrupt: &mut CtrlC,
) -> Result<Option<u8>, Failure> {
    let mut needs = Needs::new(true, false);
    if let RunOrSession::Session(key) = target
        && let Some(text) = UnderWay::of(&link, key).await?.idle(key)
    {
        print::object(&json!({ "idle": { "sessionKey": key, "message": text } }))?;
    }
    let mut watch = EventWatch::open(link, &common.place, watched(target), print::note).await?;
    loop {
        let seen = tokio::select! {
            seen = watch.next(print::note) => seen?,
            () = interrupt.pressed() => return Ok(None),
        };
        let moved = match seen {
            WatchItem::Picture(_, whole) => {
                print::object(&whole)?;
                true
            }
            WatchItem::Event(event) => {
                print::object(&event)?;
                let kind = event.kind.as_str();
                let asks = kind.starts_with("question.") || kind.starts_with("approval.");
                asks || matches!(kind, "run.ended" | "run.paused")
            }
        };
        if !moved {
            continue;
        }
        let (session, waits) = match target {
            RunOrSession::Session(key) => {
                (key.clone(), UnderWay::of(&watch.link, key).await?.waits())
            }
            RunOrSession::Run(id) => {
                let run = ids::details(&watch.link, *id).await?;
                if tree::is_ended(&run.state) {
                    print::object(&run)?;
                    return Ok(Some(exit::of_run(&run.state, run.needs_review)));
                }
                (run.session_key, &*run.state != "running")
            }
        };
        if waits && needs.announce(&watch.link, &[session], print::note).await? {
            return Ok(Some(exit::NEEDS_USER));
        }
    }
}

/// Prints the outcome of a run and returns its exit code.
async fn end(common: &Common, id: RunId) -> Result<u8, Failure> {
    let link = DaemonLink::open(&common.place).await?;
    let run = ids::details(&link, id).await?;
    wait::print_pause(&common.place, &run).await;
    wait::result(&run, false)?;
    Ok(exit::of_run(&run.state, run.needs_review))
}

/// Prints how to attach again after Ctrl-C and returns the exit code.
fn detached(target: &RunOrSession) -> u8 {
    let (what, code) = match target {
        RunOrSession::Run(id) => (short(id), exit::NOT_ENDED),
        RunOrSession::Session(key) => (key.to_string(), 0),
    };
    print::note(&format!(
        "detached; the work continues. Attach again: abide attach {what}"
    ));
    code
}

/// A live view of a session.
struct AttachedSession<'a> {
    key: &'a SessionKey,
    live: LiveDisplay<'a>,
    needs: Needs,
}

impl AttachedSession<'_> {
    /// Runs until a user is needed and none is present; a session never ends by itself.
    async fn on(&mut self) -> Result<u8, Failure> {
        self.live.session = Some(self.key.clone());
        self.live.next().await?;
        if let Some(text) = self.turns().await?.and_then(|open| open.idle(self.key)) {
            self.live.note(&text);
        }
        loop {
            let is_blocked = match self.live.next().await? {
                LiveUpdate::Event(event) => match event.kind.as_str() {
                    "message.added" => {
                        self.said(&event).await?;
                        false
                    }
                    "run.queued" | "run.paused" => self.is_blocked().await?,
                    _ => false,
                },
                LiveUpdate::Anew | LiveUpdate::Quiet | LiveUpdate::Left => {
                    self.is_blocked().await?
                }
            };
            if is_blocked {
                return Ok(exit::NEEDS_USER);
            }
        }
    }

    /// Refreshes the view; `true` if the session is blocked until a user acts and none is present.
    async fn is_blocked(&mut self) -> Result<bool, Failure> {
        match self.turns().await? {
            Some(open) if open.waits() => {
                let LiveDisplay { watch, view, .. } = &mut self.live;
                let say = |text: &str| match view {
                    Some(view) => view.note(text),
                    None => print::note(text),
                };
                let key = std::slice::from_ref(self.key);
                self.needs.announce(&watch.link, key, say).await
            }
            _ => Ok(false),
        }
    }

    /// Prints a new message of the session. A run's last text is its answer and is printed when it
    /// ends.
    async fn said(&mut self, event: &Event) -> Result<(), Failure> {
        let (Some(seq), Some("text" | "announce" | "restart_notice")) =
            (event.data["seq"].as_i64(), event.data["kind"].as_str())
        else {
            return Ok(());
        };
        let request = GetHistory {
            session_key: self.key.clone(),
            before: None,
            after: Some(seq - 1),
            tools: Some(true),
            limit: PageSize(1),
        };
        let link = &self.live.watch.link;
        let page: History = link.ask(&request).await?;
        for message in &page.messages {
            let text = history::show(message, Clock::system().now(), false);
            self.live.says(&text)?;
        }
        Ok(())
    }

    /// Reads the session's last turns and their subtrees into the view; `None` while the daemon is
    /// unreachable.
    async fn turns(&mut self) -> Result<Option<UnderWay>, Failure> {
        match self.read_turns().await {
            // The subscription reconnects; until then the last view stays on the screen.
            Err(failure) if link::is_broken(&failure) || failure.kind == "unavailable" => Ok(None),
            read => read.map(Some),
        }
    }

    async fn read_turns(&mut self) -> Result<UnderWay, Failure> {
        let request = ListRuns {
            session_key: Some(self.key.clone()),
            limit: PageSize(TURNS),
            ..ListRuns::default()
        };
        let LiveDisplay { watch, view, .. } = &mut self.live;
        let link = &watch.link;
        let mut turns = link.ask(&request).await?.runs;
        turns.reverse();
        let mut all = Vec::new();
        for turn in turns {
            match tree::is_ended(&turn.state) {
                true => all.push(turn),
                false => all.extend(tree_of(link, turn.run_id).await?),
            }
        }
        let open = UnderWay::of(link, self.key).await?;
        if let Some(view) = view {
            view.take(link, all).await?;
        }
        Ok(open)
    }
}
