//! The closed list of what can be written. Each command is one savepoint: all of it or
//! nothing. Each may be submitted again after an unclear end: it then changes nothing more,
//! and answers as the first time or with `conflict`.

use std::collections::BTreeMap;

use super::audit::Entry;
use crate::contract::rows::TrustedProject;
use crate::contract::servers::KnownServer;
use crate::kernel::ages::Sight;
use crate::kernel::approval::Approval;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{
    AnnounceId, ApprovalId, BootId, MemoryId, MessageId, QuestionId, RunId, SessionId, SessionKey,
};
use crate::kernel::memory::Memory;
use crate::kernel::message::Message;
use crate::kernel::question::Question;
use crate::kernel::recover::Loss;
use crate::kernel::run::Run;
use crate::kernel::session::Session;
use crate::kernel::step::{Intent, Step};
use crate::kernel::time::Timestamp;
use crate::store::tx::BadRow;

mod agents;
mod approve;
mod ask;
mod begin_effect;
mod breaker;
mod called;
mod cancel;
mod change_session;
mod cleanup;
mod clear;
mod conclude;
mod context;
mod create_session;
mod delegated;
mod deliver;
mod environment;
mod exchange;
mod gateway;
mod keep_output;
mod moves;
mod new_run;
mod quarantine;
mod record_outcome;
mod recover;
mod remember;
mod remove;
mod resolve;
mod send;
mod skills;
mod spawn;
mod start_run;
mod steer;
mod stop;
mod subtree;
mod sweep;
mod telling;
mod turn;
mod usage;
mod waiting;
mod wake;
mod warn;

pub use agents::{MAX_AGENTS, MAX_TRUSTED, PutAgent};
pub use approve::{RequestApproval, ResolveApproval};
pub use ask::Ask;
pub use breaker::{AGENT_NAME, BREAKER};
pub use cancel::{Cancel, CancelTarget, Cancelled};
pub use change_session::{PatchSession, ResetSession};
pub use conclude::{Conclusion, TurnEnd};
pub use context::{Begun, Context, Delegation, Effect, Settings, Ticket, Untold, Window};
pub use create_session::NewSession;
pub use environment::{LackEnvironment, ProvideEnvironment};
pub use gateway::GatewayNote;
pub use keep_output::KeepOutput;
pub(crate) use new_run::first_answer;
pub use new_run::{Accepted, Key, NewRun};
pub use record_outcome::{Recorded, Then};
pub use remember::Remember;
pub use remove::DeleteSession;
pub use resolve::{Resolve, Verdict};
pub(crate) use send::kinship;
pub use send::{SendMessage, Sender};
pub use skills::NoteSkills;
pub use spawn::{Awaits, Begins, Spawn, SpawnedBy};
pub(crate) use sweep::is_due;
pub use sweep::{Sweep, Swept};
pub use turn::{Asks, RunTurn};
pub use usage::Thresholds;
pub use waiting::{AwaitProvider, StepRef, WaitFor};

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
    Recover({
        /** The run. */ run: RunId,
        /** How it lost its executor. */ loss: Loss,
        /** The time by which its age counts; `None`: it does not end by its age. */
        aged_at: Option<Timestamp>,
    }) = "recover",
    /// The message waits for its turn in the target's session, or stands in a client's; a step
    /// that wants the reply waits for it.
    Send((Box<SendMessage>)) = "send",
    /// What follows the end of a turn that answers another session is there: the next turn of
    /// their exchange, or the outbox row that tells its end.
    Exchange({ /** The turn's run. */ run: RunId,
               /** The run of a next turn. */ next: Option<Box<NewRun>> }) = "exchange",
    /// The step waits for the ends of these runs, or has them as its outcome.
    WaitFor((WaitFor)) = "wait_for",
    /// The caller's stream has this piece of what the called run says.
    NotePartial({
        /** The called run. */ run: RunId,
        /** The step that answers. */ step: u32,
        /** Its try. */ attempt: u32,
        /** How many bytes came before it. */ offset: usize,
        /** The piece. */ text: String,
    }) = "note_partial",
    /// The question is open, and its step waits for the answer.
    Ask((Box<Ask>)) = "ask",
    /// The question is answered, and its step has the answer as its outcome.
    Answer({ /** The tenant. */ org: String, /** The question. */ id: QuestionId,
             /** What is answered. */ answer: String, /** By whom. */ by: String }) = "answer",
    /// The result, too long for the transcript, can be fetched.
    KeepOutput((Box<KeepOutput>)) = "keep_output",
    /// The text is in the long-term memory, in the name space of the step's run.
    Remember((Remember)) = "remember",
    /// These memories are gone.
    ForgetMemories({ /** The tenant. */ org: String, /** Which. */ ids: Vec<MemoryId> })
        = "forget_memories",
    /// The approval stands and its step waits for it, or it is decided already.
    RequestApproval((Box<RequestApproval>)) = "request_approval",
    /// The approval is decided: its step is to be carried out, or has the refusal as its outcome.
    ResolveApproval((Box<ResolveApproval>)) = "resolve_approval",
    /// The remembered decision counts no more.
    ForgetApproval({ /** The tenant. */ org: String, /** Of which approval. */ id: ApprovalId })
        = "forget_approval",
    /// The step waits for values of its run's environment that are not to be had.
    LackEnvironment((Box<LackEnvironment>)) = "lack_environment",
    /// The run has these values in its environment, and goes on if it lacks nothing any more.
    ProvideEnvironment((Box<ProvideEnvironment>)) = "provide_environment",
    /// The event log says that nothing carries the ended run's environment any more.
    RestoreEnvironment({ /** The run. */ run: RunId }) = "restore_environment",
    /// The step waits for the provider of its run's model until then, or its run is ending.
    AwaitProvider((Box<AwaitProvider>)) = "await_provider",
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
    /// These are the tools that the server offered when it last started.
    KeepServer((Box<KnownServer>)) = "keep_server",
    /// The skills of the folder have this hash under a version of their own.
    NoteSkills((NoteSkills)) = "note_skills",
    /// The project is trusted as it is at this hash.
    TrustProject({ /** The tenant. */ org: String, /** Who trusts. */ user: String,
                   /** The project. */ folder: String,
                   /** Of what the trust covers. */ hash: String }) = "trust_project",
    /// The project is not trusted.
    RevokeTrust({ /** The tenant. */ org: String, /** The project. */ folder: String })
        = "revoke_trust",
    /// The step has the outcome that a person gives it, or is carried out once more; or its run
    /// has ended.
    Resolve((Box<Resolve>)) = "resolve",
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
    /// The run has these warnings, each once, and the event log says so.
    WarnRun({ /** The run. */ run: RunId, /** What its caller should know. */ warnings: Vec<String> })
        = "warn_run",
    /// The time of this process counts up to now for the limits of its runs, also if it is killed.
    Touch({ /** This boot. */ boot: BootId }) = "touch",
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
        /// How far the clock can be believed.
        sight: Sight,
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
    /// The approval as it is now.
    Approval(Box<Approval>),
    /// The revision of what was stored.
    Revision(i64),
    /// Whether this command took it away.
    Removed(bool),
    /// The memory, and whether it is new.
    Remembered(Box<Memory>, bool),
    /// The memories that this command took away.
    Forgotten(Vec<MemoryId>),
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

/// Carries out one command.
pub fn execute(context: &mut Context<'_>, command: Command) -> Result<Reply, Fault> {
    match command {
        Command::BeginBoot { boot, pid } => gateway::begin_boot(context, boot, pid),
        Command::EndBoot { boot } => {
            super::boots::end(context.tx, boot, context.now).map_err(super::db_fault)?;
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
        Command::Recover { run, loss, aged_at } => recover::recover(context, run, loss, aged_at),
        Command::Send(message) => send::send(context, *message),
        Command::Exchange { run, next } => exchange::exchange(context, run, next),
        Command::WaitFor(wait) => waiting::wait_for(context, wait),
        Command::NotePartial {
            run,
            step,
            attempt,
            offset,
            text,
        } => called::note_partial(context, run, (step, attempt), offset, &text),
        Command::Ask(ask) => ask::ask(context, *ask),
        Command::Answer {
            org,
            id,
            answer,
            by,
        } => ask::answer(context, &org, id, &answer, &by),
        Command::KeepOutput(keep) => keep_output::keep(context, *keep),
        Command::Remember(new) => remember::remember(context, &new),
        Command::ForgetMemories { org, ids } => remember::forget(context, &org, ids),
        Command::RequestApproval(asked) => approve::request(context, *asked),
        Command::ResolveApproval(said) => approve::resolve(context, *said),
        Command::ForgetApproval { org, id } => approve::forget(context, &org, id),
        Command::LackEnvironment(lack) => environment::lack(context, *lack),
        Command::ProvideEnvironment(given) => environment::provide(context, *given),
        Command::RestoreEnvironment { run } => environment::restore(context, run),
        Command::AwaitProvider(wait) => waiting::await_provider(context, *wait),
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
        Command::KeepServer(known) => {
            super::servers::put(context.tx, &known).map_err(super::db_fault)?;
            Ok(Reply::Done)
        }
        Command::NoteSkills(found) => skills::note(context, &found),
        Command::TrustProject {
            org,
            user,
            folder,
            hash,
        } => agents::trust_project(context, org, user, folder, hash),
        Command::RevokeTrust { org, folder } => agents::revoke_trust(context, &org, &folder),
        Command::Resolve(said) => resolve::resolve(context, *said),
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
        Command::WarnRun { run, warnings } => warn::run(context, run, warnings),
        Command::Touch { boot } => {
            let steady = context.now.steady;
            super::boots::set_alive(context.tx, boot, steady).map_err(super::db_fault)?;
            Ok(Reply::Done)
        }
    }
}
