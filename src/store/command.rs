//! The closed list of what can be written. Each command is one savepoint: all of it or
//! nothing. Each may be submitted again after an unclear end: it then changes nothing more,
//! and answers as the first time or with `conflict`.

use std::collections::BTreeMap;

use super::audit::Entry;
use crate::contract::catalog::Resolved;
use crate::contract::rows::TrustedProject;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{
    AgentId, AnnounceId, BootId, MessageId, QuestionId, RunId, SessionId, SessionKey,
};
use crate::kernel::message::{Block, Message};
use crate::kernel::question::Question;
use crate::kernel::recover::Loss;
use crate::kernel::run::{AnnouncePolicy, Run, RunError, Usage};
use crate::kernel::session::{Cleanup, Fork, Owner, Session, SessionMode};
use crate::kernel::step::{Intent, Step};
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;
use crate::store::tx::BadRow;

mod agents;
mod ask;
mod begin_effect;
mod cancel;
mod change_session;
mod cleanup;
mod clear;
mod conclude;
mod context;
mod create_session;
mod deliver;
mod exchange;
mod gateway;
mod moves;
mod quarantine;
mod record_outcome;
mod recover;
mod remove;
mod send;
mod spawn;
mod start_run;
mod steer;
mod subtree;
mod sweep;
mod telling;
mod turn;
mod waiting;

pub use agents::{MAX_AGENTS, MAX_TRUSTED, PutAgent};
pub use context::{Context, Effect, Settings, Ticket, Window};
pub(crate) use send::kinship;
pub(crate) use spawn::first_answer;
pub(crate) use sweep::is_due;

/// A new session or run needs its ids minted before the command, so that a repeat of the
/// command makes the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The tenant.
    pub org: String,
    /// Its address; made from agent and id if unset.
    pub key: Option<SessionKey>,
    /// Who answers in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// A name for look-ups.
    pub label: Option<String>,
    /// A heading for people.
    pub title: Option<String>,
    /// How much the model of its turns thinks; the agent's habit if unset.
    pub thinking: Option<Thinking>,
    /// The folder that its tools see.
    pub cwd: Option<String>,
    /// Give the session that is there (agent and owner being the same) instead of refusing.
    pub get_existing: bool,
}

/// What a repeat of a call is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Org, method, and parent or target.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Keyed hash of the canonical parameters.
    pub digest: Vec<u8>,
}

/// What every new run is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The user it belongs to.
    pub user: String,
    /// A name for people.
    pub label: Option<String>,
    /// What it is about, on one line.
    pub title: String,
    /// How long it may run, milliseconds; `None` = no limit.
    pub limit_ms: Option<u64>,
    /// Comes back unchanged.
    pub meta: Option<serde_json::Value>,
    /// The agent, its model and what is pinned of it.
    pub agent: Resolved,
    /// One trace through parent, child and restarts.
    pub trace_id: String,
    /// A safe repeat.
    pub key: Option<Key>,
    /// The run that it does again.
    pub retry_of: Option<RunId>,
}

/// A spawned run and its own session.
#[derive(Clone, Debug, PartialEq)]
pub struct Spawn {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: NewRun,
    /// The child session's id.
    pub session: SessionId,
    /// The first message's id.
    pub message: MessageId,
    /// What is to be done.
    pub task: String,
    /// Who asks and is told.
    pub parent: Option<SessionKey>,
    /// How the requester is told; by its kind of owner if unset.
    pub announce: Option<AnnouncePolicy>,
    /// The folder that its tools see; the parent session's if unset.
    pub cwd: Option<String>,
    /// A run asks for it; then its session is the parent.
    pub by: Option<SpawnedBy>,
    /// The thinking level that was asked for, kept for later turns of its session.
    pub thinking: Option<Thinking>,
    /// How long its session stays open for messages.
    pub mode: SessionMode,
    /// What becomes of its session once all is told.
    pub cleanup: Cleanup,
    /// What it knows of the parent's conversation.
    pub begins: Begins,
}

/// What the transcript of a spawned session begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begins {
    /// The task alone.
    #[default]
    Isolated,
    /// The parent's transcript as it is now.
    Fork,
    /// The stretch that another fork began with.
    At(Fork),
}

/// The step of a run by which something is done. It must be open and in this try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRef {
    /// The run.
    pub run: RunId,
    /// The step's place in it.
    pub step: u32,
    /// Its try.
    pub attempt: u32,
}

/// A run that spawns another.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnedBy {
    /// By which step.
    pub step: StepRef,
    /// The agents that its agent may spawn.
    pub allowed: Vec<AgentId>,
    /// Levels below a root session, if its agent has a limit of its own.
    pub max_depth: Option<u32>,
}

/// Who says something in another session.
#[derive(Clone, Debug, PartialEq)]
pub enum Sender {
    /// A client, for nobody else: it is told of the reply by its call alone.
    Client,
    /// A client for a session that it owns, which gets a late reply.
    Session(SessionKey),
    /// A run for its session, which gets a late reply.
    Step(StepRef),
}

/// A message to a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SendMessage {
    /// The tenant.
    pub org: String,
    /// The run of the turn that answers.
    pub run: NewRun,
    /// The session.
    pub target: SessionId,
    /// What is said.
    pub message: String,
    /// Who says it.
    pub from: Sender,
    /// How long the reply is waited for, milliseconds; 0 = not at all.
    pub window_ms: u64,
}

/// A question of a run to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The step that asks.
    pub by: StepRef,
    /// What is asked.
    pub text: String,
    /// Answers that are proposed.
    pub choices: Vec<String>,
    /// How long it stands, milliseconds.
    pub window_ms: u64,
}

/// A run waits for runs that its session has asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitFor {
    /// The step that waits.
    pub by: StepRef,
    /// For these.
    pub runs: Vec<RunId>,
    /// One is enough.
    pub any: bool,
    /// Until then.
    pub until: Timestamp,
}

/// A turn in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTurn {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: NewRun,
    /// The session; made if there is none.
    pub session: SessionKey,
    /// The id of a session that must be made.
    pub new_session: SessionId,
    /// What is said.
    pub message: String,
    /// The model was named by the caller, for this turn.
    pub model_named: bool,
    /// The thinking level was named by the caller, for this turn.
    pub thinking_named: bool,
}

/// What is the outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// A model's answer.
    Answer {
        /// Text and tool calls.
        blocks: Vec<Block>,
        /// What it cost.
        usage: Usage,
    },
    /// A tool's answer.
    ToolResult {
        /// What it says.
        text: String,
        /// It says that it failed.
        is_error: bool,
    },
    /// The step failed, and the run with it.
    Failed(RunError),
}

/// What follows a step's outcome, in the same transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Other steps are still open.
    Wait,
    /// These steps.
    Steps(Vec<Intent>),
    /// The turn is over.
    EndTurn(TurnEnd),
    /// The run cannot go on.
    Fail(RunError),
}

/// The end of a turn, as its runner sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnEnd {
    /// The final text.
    pub text: Option<String>,
    /// Its next steps if something was said to it meanwhile; it then goes on with them.
    pub more: Vec<Intent>,
}

/// What is to be cancelled, and what below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A run.
    Run(RunId),
    /// Every run of a session.
    Session(SessionKey),
}

/// A cancel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The tenant.
    pub org: String,
    /// What is to end.
    pub target: CancelTarget,
    /// Who asks.
    pub by: String,
    /// Why, for people.
    pub reason: Option<String>,
}

/// New values for a session; `None` = as it is, `Some(None)` = none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSession {
    /// The tenant.
    pub org: String,
    /// Which.
    pub key: SessionKey,
    /// A name for look-ups.
    pub label: Option<Option<String>>,
    /// A heading for people.
    pub title: Option<Option<String>>,
    /// The model of its turns.
    pub model: Option<Option<String>>,
    /// How much the model of its turns thinks.
    pub thinking: Option<Option<Thinking>>,
    /// The folder that its tools see.
    pub cwd: Option<Option<String>>,
    /// Only if its version is this one.
    pub if_revision: Option<i64>,
}

/// A session that is to begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetSession {
    /// The tenant.
    pub org: String,
    /// Which.
    pub key: SessionKey,
    /// Cancel its open runs first.
    pub force: bool,
    /// The generation that is to end; where another has begun already, nothing is done.
    pub if_generation: Option<i64>,
    /// Who asks.
    pub by: String,
}

/// A session that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteSession {
    /// The tenant.
    pub org: String,
    /// Which.
    pub key: SessionKey,
    /// Cancel the open runs in it and below it first.
    pub force: bool,
    /// Who asks.
    pub by: String,
}

/// What age takes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Sessions of one task are put aside.
    Archive {
        /// Whose last run ended before this point.
        before: Timestamp,
        /// Of this tenant.
        org: String,
        /// After this place.
        after: i64,
    },
    /// Ended runs go.
    Runs {
        /// Those that ended before this point.
        before: Timestamp,
        /// Unless their key was first used after this one.
        keys_before: Timestamp,
        /// After this place.
        after: i64,
    },
    /// Events go.
    Events {
        /// Those from before this point.
        before: Timestamp,
    },
    /// Bodies that no run names, and ids of removed runs.
    Leftovers {
        /// Bodies that were last used before this point.
        before: Timestamp,
        /// Ids of runs that were removed before this one.
        ids_before: Timestamp,
    },
}

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Where to go on; `None`: it has seen everything that may be old enough.
    pub next: Option<i64>,
}

impl Swept {
    fn more_if(more: bool) -> Self {
        Swept {
            next: more.then_some(0),
        }
    }
}

/// What a cancel has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// These have ended by it.
    pub cancelled: Vec<RunId>,
    /// The run that was named had ended before.
    pub already_ended: Vec<RunId>,
    /// These end when their executors are gone.
    pub stopping: Vec<RunId>,
}

/// Why an open run is to end without an outcome of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// Its cancel was asked for and its executor has stopped.
    ExecutorGone,
    /// Its turn is over, and no step's outcome says so.
    EndTurn(TurnEnd),
    /// Its limit passed; checked again in the transaction.
    TimedOut,
    /// It cannot go on.
    Failed(RunError),
}

/// What the daemon itself does, for the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayNote {
    /// It takes no work.
    Draining {
        /// What follows: `stop`, `restart` or `resume`.
        then: &'static str,
        /// How long steps in flight may go on.
        timeout_ms: u64,
    },
    /// It takes work again.
    Resumed {
        /// What it comes back from: `drain` or `sleep`.
        after: &'static str,
        /// How long that was.
        away_ms: u64,
    },
}

macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident ($($payload:tt)*) = $name:literal,)+) => {
        /// The closed list of what can be written.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Command {
            $($(#[$doc])* $variant $($payload)*,)+
        }

        impl Command {
            /// The name of every command, as failpoints use it.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// This command's name.
            pub fn name(&self) -> &'static str {
                match self { $(Command::$variant { .. } => $name,)+ }
            }
        }
    };
}

commands! {
    /// This life of the daemon is known, and whether the one before it ended uncleanly.
    BeginBoot({ /** Its id. */ boot: BootId, /** The process. */ pid: u32 }) = "begin_boot",
    /// This life of the daemon has ended cleanly.
    EndBoot({ /** Its id. */ boot: BootId }) = "end_boot",
    /// The event log says what the daemon itself does; a repeat says it again.
    NoteGateway({ /** This life. */ boot: BootId, /** What. */ note: GatewayNote }) = "note_gateway",
    /// The session is there, new or as it was.
    CreateSession((Box<NewSession>)) = "create_session",
    /// The child session, its first message and the queued run are there, or nothing is.
    Spawn((Box<Spawn>)) = "spawn",
    /// The queued run is there, and its session, or nothing is.
    RunTurn((Box<RunTurn>)) = "run_turn",
    /// The run holds its session's turn, its input stands in the transcript, and its first
    /// steps are intended. The answer has every message that the caller has not seen yet.
    StartRun({ /** The run. */ run: RunId, /** Its first steps. */ intents: Vec<Intent>,
               /** The last message that the caller has seen. */ seen: i64 })
        = "start_run",
    /// The effect of a `once` step may begin.
    BeginEffect({ /** The run. */ run: RunId, /** The step. */ step: u32, /** Its try. */ attempt: u32 })
        = "begin_effect",
    /// The step's outcome stands in journal and transcript, and what follows it is intended
    /// or ended.
    RecordOutcome({
        /** The run. */ run: RunId,
        /** The step. */ step: u32,
        /** The try whose outcome this is. */ attempt: u32,
        /** What came out. */ outcome: Recorded,
        /** What follows. */ then: Then,
    }) = "record_outcome",
    /// The run is back in its queue, at a step boundary.
    Park({ /** The run. */ run: RunId }) = "park",
    /// The run has ended, or is marked to end.
    Conclude({ /** The run. */ run: RunId, /** Why. */ why: Conclusion }) = "conclude",
    /// What waits to be told to this session stands in its transcript, unless a turn is going
    /// on there; a run that must see it is queued.
    Deliver({
        /** The session. */ session: SessionId,
        /** The run that is made when nobody else would see it. */ wake: Option<Box<NewRun>>,
        /** Why no such run can be made. */ unable: Option<String>,
    }) = "deliver",
    /// These announces are acknowledged, as far as they stand in this session's inbox.
    Ack({ /** The tenant. */ org: String, /** The session. */ session: SessionKey,
          /** Which. */ ids: Vec<AnnounceId> }) = "ack",
    /// The open run without an executor is queued, paused, settling or ended, as
    /// [`crate::kernel::recover`] says.
    Recover({ /** The run. */ run: RunId, /** How it lost its executor. */ loss: Loss }) = "recover",
    /// The message waits for its turn in the target's session, or stands in a client's; a step
    /// that wants the reply waits for it.
    Send((Box<SendMessage>)) = "send",
    /// What follows the end of a turn that answers another session is there: the next turn of
    /// their exchange, or the outbox row that tells its end.
    Exchange({ /** The turn's run. */ run: RunId,
               /** The run of a next turn. */ next: Option<Box<NewRun>> }) = "exchange",
    /// The step waits for the ends of these runs, or has them as its outcome.
    WaitFor((WaitFor)) = "wait_for",
    /// The question is open, and its step waits for the answer.
    Ask((Box<Ask>)) = "ask",
    /// The question is answered, and its step has the answer as its outcome.
    Answer({ /** The tenant. */ org: String, /** The question. */ id: QuestionId,
             /** What is answered. */ answer: String, /** By whom. */ by: String }) = "answer",
    /// The window is over: who waits is told how far things are.
    WindowOver({ /** Which. */ window: Window }) = "window_over",
    /// The audit row of a call that no other command has taken along is there.
    Audit({
        /** Whose call. */ entry: Box<Entry>,
        /** How it ended. */ outcome: &'static str,
    }) = "audit",
    /// The stored agent has this definition; a definition that it has already is no change.
    PutAgent((Box<PutAgent>)) = "put_agent",
    /// The stored agent is gone.
    DeleteAgent({ /** The tenant. */ org: String, /** Its name. */ name: String,
                  /** It must have this revision. */ if_revision: Option<i64> }) = "delete_agent",
    /// The event log has told of every change up to these agents.
    NoteAgents({ /** The tenant. */ org: String,
                 /** By name the hash of what counts now. */ now: BTreeMap<String, String>,
                 /** What counted before anything was told. */ built_in: BTreeMap<String, String>,
                 /** What brought the change about. */ reason: String }) = "note_agents",
    /// The project is trusted as it is at this hash.
    TrustProject({ /** The tenant. */ org: String, /** Who trusts. */ user: String,
                   /** The project. */ folder: String,
                   /** Of what the trust covers. */ hash: String }) = "trust_project",
    /// The project is not trusted.
    RevokeTrust({ /** The tenant. */ org: String, /** The project. */ folder: String })
        = "revoke_trust",
    /// The row lies in quarantine, whole; what can be read of it stays where it was.
    Quarantine({ /** What was found of it. */ row: BadRow }) = "quarantine",
    /// The store that was saved out of a damaged file fits together: these open runs, of which
    /// rows were lost, have ended, and the ends of those are told whose announces were lost.
    SettleSalvaged({ /** Open runs. */ broken: Vec<RunId>, /** Ended runs. */ untold: Vec<RunId> })
        = "settle_salvaged",
    /// The runs of the target and below it are marked to end; those that nothing holds have
    /// ended.
    Cancel((Box<Cancel>)) = "cancel",
    /// The text waits for the next model call of the run's turn.
    Steer({ /** The tenant. */ org: String, /** The run. */ run: RunId,
            /** The id of its message. */ message: MessageId, /** What is said. */ text: String })
        = "steer",
    /// The announce is shown once more to whom it is addressed, or offered again.
    RetryAnnounce({ /** The tenant. */ org: String, /** The run that ended. */ run: RunId,
                    /** The run that is made for it. */ wake: Option<Box<NewRun>> })
        = "retry_announce",
    /// The announce is told to nobody any more.
    DismissAnnounce({ /** The tenant. */ org: String, /** The run that ended. */ run: RunId })
        = "dismiss_announce",
    /// The session has the new values.
    PatchSession((Box<PatchSession>)) = "patch_session",
    /// The session begins anew, or does so with the end of its open runs, which are marked to.
    ResetSession((Box<ResetSession>)) = "reset_session",
    /// The session and those below it are gone, or go with the end of their open runs, which
    /// are marked to.
    DeleteSession((Box<DeleteSession>)) = "delete_session",
    /// A part of what a deleted session left is gone.
    Purge({ /** The session. */ session: SessionId }) = "purge",
    /// A part of what is old enough is put aside or gone.
    Sweep((Sweep)) = "sweep",
    /// These runs' used time is written.
    Touch({ /** The runs. */ runs: Vec<RunId> }) = "touch",
}

/// The edges at which a failpoint stands in every command.
pub const EDGES: &[&str] = &["begin", "applied", "committed", "answered"];

impl Command {
    /// Does it make work that nobody has accepted yet?
    pub fn makes_work(&self) -> bool {
        matches!(
            self,
            Command::Spawn(_) | Command::RunTurn(_) | Command::CreateSession(_)
        )
    }

    /// May it wait for another command to ride along with?
    pub fn is_soft(&self) -> bool {
        matches!(
            self,
            Command::Touch { .. }
                | Command::Purge { .. }
                | Command::Sweep(_)
                | Command::Audit { .. }
        )
    }
}

/// A run after a command, and what the command added.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAfter {
    /// The run as it now is.
    pub run: Run,
    /// Messages that were appended to its transcript.
    pub messages: Vec<Message>,
    /// Steps that were made or changed.
    pub steps: Vec<Step>,
}

/// What a command answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done.
    Done,
    /// The life before ended uncleanly.
    Boot {
        /// Whether it did.
        unclean: bool,
    },
    /// The session, and whether it is new.
    Session(Box<Session>, bool),
    /// The first answer to this request, JSON of [`Accepted`].
    Accepted(Accepted),
    /// The run after the command.
    Run(Box<RunAfter>),
    /// The announces that are acknowledged now.
    Acked(Vec<AnnounceId>),
    /// The question as it is now.
    Question(Box<Question>),
    /// The revision of what was stored.
    Revision(i64),
    /// Whether this command took it away.
    Removed(bool),
    /// The project that is trusted now.
    Trusted(TrustedProject),
    /// What a cancel has done.
    Cancelled(Cancelled),
    /// Not yet: it is done when these runs, which are marked to end, have ended.
    Stopping(Vec<RunId>),
    /// The run that was made to show an announce, if there had to be one.
    Woken(Option<RunId>),
    /// How far a sweep has come.
    Swept(Swept),
}

/// A run that is in the store.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The session that it works in.
    pub session: SessionKey,
    /// Who does it.
    pub agent: AgentId,
    /// With which model.
    pub model: String,
    /// Levels below a root session.
    pub depth: u32,
    /// The session was made by this call.
    pub created: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// There is no run: a client owns the session, and this message stands in its transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
}

/// Carries out one command.
pub fn execute(context: &mut Context<'_>, command: Command) -> Result<Reply, Fault> {
    match command {
        Command::BeginBoot { boot, pid } => gateway::begin_boot(context, boot, pid),
        Command::EndBoot { boot } => {
            let now = context.now.wall;
            super::boots::end(context.tx, boot, now).map_err(super::db_fault)?;
            Ok(Reply::Done)
        }
        Command::NoteGateway { boot, note } => gateway::note(context, boot, note),
        Command::CreateSession(new) => create_session::create(context, *new),
        Command::Spawn(spawn) => spawn::spawn(context, *spawn),
        Command::RunTurn(turn) => turn::run_turn(context, *turn),
        Command::StartRun { run, intents, seen } => start_run::start(context, run, intents, seen),
        Command::BeginEffect { run, step, attempt } => {
            begin_effect::begin(context, run, step, attempt)
        }
        Command::RecordOutcome {
            run,
            step,
            attempt,
            outcome,
            then,
        } => record_outcome::record(context, run, step, attempt, outcome, then),
        Command::Park { run } => conclude::park(context, run),
        Command::Conclude { run, why } => conclude::conclude(context, run, why),
        Command::Deliver {
            session,
            wake,
            unable,
        } => deliver::deliver(context, session, wake, unable.as_deref()),
        Command::Ack { org, session, ids } => deliver::ack(context, &org, &session, ids),
        Command::Recover { run, loss } => recover::recover(context, run, loss),
        Command::Send(message) => send::send(context, *message),
        Command::Exchange { run, next } => exchange::exchange(context, run, next),
        Command::WaitFor(wait) => waiting::wait_for(context, wait),
        Command::Ask(ask) => ask::ask(context, *ask),
        Command::Answer {
            org,
            id,
            answer,
            by,
        } => ask::answer(context, &org, id, &answer, &by),
        Command::WindowOver { window } => waiting::window_over(context, window),
        Command::Audit { entry, outcome } => {
            let (seq, now) = (context.take_seq()?, context.now.wall);
            super::audit::insert(context.tx, seq, now, &entry, None, outcome)
                .map_err(super::db_fault)?;
            Ok(Reply::Done)
        }
        Command::PutAgent(new) => agents::put(context, *new),
        Command::DeleteAgent {
            org,
            name,
            if_revision,
        } => agents::delete(context, &org, &name, if_revision),
        Command::NoteAgents {
            org,
            now,
            built_in,
            reason,
        } => agents::note(context, &org, now, built_in, &reason),
        Command::TrustProject {
            org,
            user,
            folder,
            hash,
        } => agents::trust_project(context, org, user, folder, hash),
        Command::RevokeTrust { org, folder } => agents::revoke_trust(context, &org, &folder),
        Command::Quarantine { row } => quarantine::quarantine(context, &row),
        Command::SettleSalvaged { broken, untold } => {
            quarantine::settle_salvaged(context, &broken, &untold)
        }
        Command::Cancel(cancel) => cancel::cancel(context, *cancel),
        Command::Steer {
            org,
            run,
            message,
            text,
        } => steer::steer(context, &org, run, message, &text),
        Command::RetryAnnounce { org, run, wake } => telling::retry(context, &org, run, wake),
        Command::DismissAnnounce { org, run } => telling::dismiss(context, &org, run),
        Command::PatchSession(patch) => change_session::patch(context, *patch),
        Command::ResetSession(reset) => change_session::reset(context, *reset),
        Command::DeleteSession(delete) => remove::delete(context, *delete),
        Command::Purge { session } => remove::purge(context, session),
        Command::Sweep(what) => sweep::sweep(context, &what),
        Command::Touch { runs } => conclude::touch(context, runs),
    }
}
