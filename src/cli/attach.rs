//! `abide attach`: looks at a run or a session while it works.

use clap::Args;

use super::args::Common;
use super::failure::{Failure, exit};
use super::follow::{End, Interrupt, Task, follow};
use super::link::{self, Link};
use super::live::{Live, News};
use super::person::Person;
use super::text::short;
use super::view::{View, tree_of};
use super::watch::{Seen, Watch};
use super::{history, ids, print, tree, wait};
use crate::clock::Clock;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::events::{Event, SubscribeEvents};
use crate::wire::input::PageSize;
use crate::wire::runs::{ListRuns, Runs};
use crate::wire::sessions::{GetHistory, History};

/// So many turns of a session are shown.
const TURNS: u32 = 5;

/// Look at a run or a session while it works
///
/// Shows the runs with their last tool calls, and what they say while they say it. Looking
/// never starts or changes anything; what they ask can be answered here. Ctrl-C stops looking,
/// and the work goes on. A run's answer is printed on standard output once it has ended. A link
/// that is lost is found again. With --json each event is one line.
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
    /// At this run or session.
    pub(crate) fn to(what: String) -> Attach {
        Attach { what }
    }

    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = Link::open(&common.place).await?;
        let target = match ids::run(&link, &self.what).await {
            Ok(id) => Target::Run(id),
            Err(failure) if failure.code == exit::NOT_FOUND => {
                Target::Session(ids::session(&link, &self.what).await?)
            }
            Err(failure) => return Err(failure),
        };
        let mut interrupt = Interrupt::new()?;
        let mut person = Person::if_there();
        let code = match &target {
            _ if common.json => events(link, common, &target, &mut interrupt).await?,
            Target::Run(id) => {
                let ids = [*id];
                let task = Task {
                    ids: &ids,
                    any: false,
                    window: None,
                    show: true,
                    person: person.as_mut(),
                    conversation: None,
                };
                match follow(link, &common.place, task, &mut interrupt).await? {
                    End::Done(_) | End::Window(_) => Some(end(common, *id).await?),
                    End::Detached => None,
                }
            }
            Target::Session(key) => {
                let request = watched(&target);
                let view = Some(View::for_people());
                let person = person.as_mut();
                let live = Live::open(link, &common.place, request, view, person).await?;
                let mut look = Look { key, live };
                tokio::select! {
                    failure = look.on() => return Err(failure),
                    () = interrupt.pressed() => None,
                }
            }
        };
        Ok(code.unwrap_or_else(|| detached(&target)))
    }
}

/// The events of what is looked at.
fn watched(target: &Target) -> SubscribeEvents {
    let all = SubscribeEvents {
        deltas: true,
        ..SubscribeEvents::default()
    };
    match target {
        Target::Run(id) => SubscribeEvents {
            tree: Some(*id),
            ..all
        },
        Target::Session(key) => SubscribeEvents {
            session_key: Some(key.clone()),
            ..all
        },
    }
}

/// Prints each event, until the run that is looked at has ended; a session has no end. `None`:
/// nobody wants to see more.
async fn events(
    link: Link,
    common: &Common,
    target: &Target,
    interrupt: &mut Interrupt,
) -> Result<Option<u8>, Failure> {
    let mut watch = Watch::open(link, &common.place, watched(target), print::note).await?;
    loop {
        let seen = tokio::select! {
            seen = watch.next(print::note) => seen?,
            () = interrupt.pressed() => return Ok(None),
        };
        let may_have_ended = match seen {
            Seen::Picture(_, whole) => {
                print::object(&whole)?;
                true
            }
            Seen::Event(event) => {
                print::object(&event)?;
                event.kind == "run.ended"
            }
        };
        let Target::Run(id) = target else {
            continue;
        };
        if may_have_ended {
            let run = ids::details(&watch.link, *id).await?;
            if tree::is_ended(&run.state) {
                print::object(&run)?;
                return Ok(Some(exit::of_run(&run.state, run.needs_review)));
            }
        }
    }
}

/// Prints what a run has come to.
async fn end(common: &Common, id: RunId) -> Result<u8, Failure> {
    let link = Link::open(&common.place).await?;
    let run = ids::details(&link, id).await?;
    wait::result(&run, false)?;
    Ok(exit::of_run(&run.state, run.needs_review))
}

/// After Ctrl-C: how to come back.
fn detached(target: &Target) -> u8 {
    let (what, code) = match target {
        Target::Run(id) => (short(id), exit::WINDOW),
        Target::Session(key) => (key.to_string(), 0),
    };
    print::note(&format!(
        "detached; the work goes on. Come back: abide attach {what}"
    ));
    code
}

/// A look at a session that goes on.
struct Look<'a> {
    key: &'a SessionKey,
    live: Live<'a>,
}

impl Look<'_> {
    /// Goes on for ever: a session has no end.
    async fn on(&mut self) -> Failure {
        self.live.session = Some(self.key.clone());
        loop {
            if let Err(failure) = self.step().await {
                return failure;
            }
        }
    }

    async fn step(&mut self) -> Result<(), Failure> {
        match self.live.next().await? {
            News::Event(event) => match event.kind.as_str() {
                "message.added" => self.said(&event).await,
                "run.queued" => self.turns().await,
                _ => Ok(()),
            },
            News::Anew | News::Quiet => self.turns().await,
        }
    }

    /// Prints what was said in the session. A run's last text is its answer and comes with its
    /// end.
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
        let page: History = link.ask("sessions.history", &request).await?;
        for message in &page.messages {
            let text = history::show(message, Clock::system().now(), false);
            self.live.says(&text)?;
        }
        Ok(())
    }

    /// Reads how the last turns of the session stand, and what they have others do.
    async fn turns(&mut self) -> Result<(), Failure> {
        match self.read_turns().await {
            // The subscription finds the daemon again; until then the picture stands.
            Err(failure) if link::is_broken(&failure) || failure.kind == "unavailable" => Ok(()),
            read => read,
        }
    }

    async fn read_turns(&mut self) -> Result<(), Failure> {
        let request = ListRuns {
            session_key: Some(self.key.clone()),
            limit: PageSize(TURNS),
            ..ListRuns::default()
        };
        let Live { watch, view, .. } = &mut self.live;
        let link = &watch.link;
        let mut turns = link.ask::<Runs>("runs.list", &request).await?.runs;
        turns.reverse();
        let mut all = Vec::new();
        for turn in turns {
            match tree::is_ended(&turn.state) {
                true => all.push(turn),
                false => all.extend(tree_of(link, turn.run_id).await?),
            }
        }
        match view {
            Some(view) => view.take(link, all).await,
            None => Ok(()),
        }
    }
}
