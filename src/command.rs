//! The closed list of write commands. Each command is one savepoint: all of it or nothing. Each
//! may be submitted again when its outcome is unknown: it then changes nothing more, and returns
//! the first answer or `conflict`.

use std::collections::BTreeMap;

use crate::contract::rows::TrustedProject;
use crate::contract::servers::KnownServer;
use crate::kernel::ages::ClockTrust;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{
    AnnounceId, ApprovalId, BootId, MemoryId, MessageId, QuestionId, RunId, SessionId, SessionKey,
};
use crate::kernel::memory::Memory;
use crate::kernel::policy::approval::Approval;
use crate::kernel::question::Question;
use crate::kernel::run::Run;
use crate::kernel::run::recover::Loss;
use crate::kernel::run::step::{Intent, Step};
use crate::kernel::session::Session;
use crate::kernel::session::message::Message;
use crate::kernel::time::Timestamp;
use crate::store::tables::audit::Entry;
use crate::store::tx::BadRow;

mod agents;
mod announces;
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
pub use context::{Begun, Context, Delegation, Effect, MissedLog, PendingWait, Settings, Ticket};
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
pub(crate) use send::relation;
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
        /// The closed list of write commands. Each variant states what is true after its commit.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Command {
            $($(#[$doc])* $variant $($payload)*,)+
        }

        impl Command {
            /// The names of all commands, as failpoints use them.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name of this command, as in [`Command::NAMES`].
            pub fn name(&self) -> &'static str {
                match self { $(Command::$variant { .. } => $name,)+ }
            }
        }
    };
}

commands! {
    /// This boot is recorded; the reply says whether the previous one ended uncleanly.
    BeginBoot({ /** Its id. */ boot: BootId, /** Its process id. */ pid: u32 }) = "begin_boot",
    /// This boot is recorded as cleanly ended.
    EndBoot({ /** The boot that ends. */ boot: BootId }) = "end_boot",
    /// The event log has one more event about the daemon itself; a repeat adds another.
    NoteGateway({ /** The current boot. */ boot: BootId,
                  /** The state change to record. */ note: GatewayNote }) = "note_gateway",
    /// The session exists, new or unchanged.
    CreateSession((Box<NewSession>)) = "create_session",
    /// The child session, its first message and its queued run exist; on failure none of them.
    Spawn((Box<Spawn>)) = "spawn",
    /// The queued run and its session exist; on failure neither of them.
    RunTurn((Box<RunTurn>)) = "run_turn",
    /// The run holds its session's turn, its input is in the transcript, and its first steps are
    /// recorded as intents. The reply has every message that the caller has not seen yet.
    StartRun({ /** The run to start. */ run: RunId,
               /** Intents of its first steps. */ intents: Vec<Intent>,
               /** Seq of the last message that the caller has seen. */ seen: i64 })
        = "start_run",
    /// The effect of a step with effect class `once` may begin.
    BeginEffect({ /** The run. */ run: RunId, /** Seq of the step. */ step: u32,
                  /** Number of the attempt. */ attempt: u32 })
        = "begin_effect",
    /// The step's outcome is in the journal and the transcript, and the next steps are recorded
    /// as intents or the run has ended.
    RecordOutcome({
        /** The run of the step. */ run: RunId,
        /** Seq of the step. */ step: u32,
        /** The attempt that produced the outcome. */ attempt: u32,
        /** The outcome. */ outcome: Recorded,
        /** The next steps, or the end of the turn. */ then: Then,
    }) = "record_outcome",
    /// The run is queued again, at a step boundary.
    Park({ /** The run to queue. */ run: RunId }) = "park",
    /// The run has ended, or is marked to end.
    Conclude({ /** The run to end. */ run: RunId,
               /** Why it ends without an outcome of its own. */ why: Conclusion }) = "conclude",
    /// The pending announces of this session are in its transcript, unless a turn is in progress
    /// there; a run is queued if one is needed to see them.
    Deliver({
        /** The session that receives the announces. */ session: SessionId,
        /** The wake run to create if no other run would see them. */ wake: Option<Box<NewRun>>,
        /** Why no wake run can be created. */ unable: Option<String>,
    }) = "deliver",
    /// These announces are acknowledged, as far as they are in this session's inbox.
    Ack({ /** The tenant. */ org: String, /** Key of the inbox's session. */ session: SessionKey,
          /** The announces to acknowledge. */ ids: Vec<AnnounceId> }) = "ack",
    /// The open run that lost its executor is queued, paused, settling or ended, as
    /// [`crate::kernel::run::recover`] decides.
    Recover({
        /** The run to recover. */ run: RunId,
        /** How it lost its executor. */ loss: Loss,
        /** The time by which its age is computed; `None`: its age does not end it. */
        aged_at: Option<Timestamp>,
    }) = "recover",
    /// The message is queued as a turn of the target session, or stored in a client's session; a
    /// step that expects the reply waits for it.
    Send((Box<SendMessage>)) = "send",
    /// The follow-up of a turn that answered another session is recorded: the next turn of the
    /// exchange, or the outbox row that announces its end.
    Exchange({ /** The run of the turn that ended. */ run: RunId,
               /** The run of the next turn, if there can be one. */ next: Option<Box<NewRun>> })
        = "exchange",
    /// The step waits for these runs to end, or already has their ends as its outcome.
    WaitFor((WaitFor)) = "wait_for",
    /// The caller's event stream has this piece of the called run's output.
    NotePartial({
        /** The called run. */ run: RunId,
        /** Seq of the model step that produces the output. */ step: u32,
        /** Number of its attempt. */ attempt: u32,
        /** Byte offset of the piece in the output. */ offset: usize,
        /** The piece of text. */ text: String,
    }) = "note_partial",
    /// The question is open, and its step waits for the answer.
    Ask((Box<Ask>)) = "ask",
    /// The question is answered, and its step has the answer as its outcome.
    Answer({ /** The tenant. */ org: String, /** The question. */ id: QuestionId,
             /** Text of the answer. */ answer: String,
             /** The user or client that answers. */ by: String }) = "answer",
    /// The result, too long for the transcript, is stored and can be fetched.
    KeepOutput((Box<KeepOutput>)) = "keep_output",
    /// The text is in the long-term memory, in the namespace of the step's run.
    Remember((Remember)) = "remember",
    /// These memories are deleted.
    ForgetMemories({ /** The tenant. */ org: String,
                     /** The memories to delete. */ ids: Vec<MemoryId> })
        = "forget_memories",
    /// The approval is open and its step waits for it, or it is already decided.
    RequestApproval((Box<RequestApproval>)) = "request_approval",
    /// The approval is decided: its step is to be executed, or has the denial as its outcome.
    ResolveApproval((Box<ResolveApproval>)) = "resolve_approval",
    /// The remembered decision no longer applies.
    ForgetApproval({ /** The tenant. */ org: String,
                     /** The approval whose decision was remembered. */ id: ApprovalId })
        = "forget_approval",
    /// The step waits for values of its run's environment that could not be resolved.
    LackEnvironment((Box<LackEnvironment>)) = "lack_environment",
    /// The run has these environment values, and continues if no value is missing any more.
    ProvideEnvironment((Box<ProvideEnvironment>)) = "provide_environment",
    /// The event log says that no process has the ended run's environment any more.
    RestoreEnvironment({ /** The ended run. */ run: RunId }) = "restore_environment",
    /// The step waits for its model's provider until the deadline, or its run is ending.
    AwaitProvider((Box<AwaitProvider>)) = "await_provider",
    /// The wait has ended at its deadline; a waiting step has the progress so far as its outcome.
    WindowOver({ /** The wait. */ window: PendingWait }) = "window_over",
    /// The call has its audit row, which no other command wrote.
    Audit({
        /** The audited call. */ entry: Box<Entry>,
        /** Its outcome, as written to the audit row. */ outcome: &'static str,
    }) = "audit",
    /// The stored agent has this definition; storing an identical one changes nothing.
    PutAgent((Box<PutAgent>)) = "put_agent",
    /// The stored agent is deleted.
    DeleteAgent({ /** The tenant. */ org: String, /** Name of the agent. */ name: String,
                  /** The revision that it must have. */ if_revision: Option<i64> })
        = "delete_agent",
    /// The event log has an event for every change up to this set of agents.
    NoteAgents({ /** The tenant. */ org: String,
                 /** The current set: definition hash by name. */ now: BTreeMap<String, String>,
                 /** The set before the first event. */ built_in: BTreeMap<String, String>,
                 /** The cause of the change. */ reason: String }) = "note_agents",
    /// The tools that the MCP server offered at its last start are stored.
    KeepServer((Box<KnownServer>)) = "keep_server",
    /// The skills of the folder have this hash under a version number of their own.
    NoteSkills((NoteSkills)) = "note_skills",
    /// The project is trusted with its content as of this hash.
    TrustProject({ /** The tenant. */ org: String, /** The user who trusts it. */ user: String,
                   /** Folder of the project. */ folder: String,
                   /** Hash of the content that the trust covers. */ hash: String })
        = "trust_project",
    /// The project is not trusted.
    RevokeTrust({ /** The tenant. */ org: String, /** Folder of the project. */ folder: String })
        = "revoke_trust",
    /// The step has the outcome that a user decided on, or is executed again; or its run has
    /// ended.
    Resolve((Box<Resolve>)) = "resolve",
    /// The row is stored whole in quarantine; what can be decoded of it stays in its table.
    Quarantine({ /** The undecodable row. */ row: BadRow }) = "quarantine",
    /// The salvaged store is consistent: open runs that lost rows have ended, and ended runs that
    /// lost their announces have new ones.
    SettleSalvaged({ /** Open runs that lost rows. */ broken: Vec<RunId>,
                     /** Ended runs that lost their announces. */ untold: Vec<RunId> })
        = "settle_salvaged",
    /// The runs of the target and its descendants are marked to end; those without an executor
    /// have ended.
    Cancel((Box<Cancel>)) = "cancel",
    /// The text waits for the next model call of the run's turn.
    Steer({ /** The tenant. */ org: String, /** The run to steer. */ run: RunId,
            /** Id of the message; a repeat with it changes nothing. */ message: MessageId,
            /** The text. */ text: String })
        = "steer",
    /// The announce is shown again to its target session, or offered for delivery again.
    RetryAnnounce({ /** The tenant. */ org: String, /** The run that ended. */ run: RunId,
                    /** The wake run to create for it. */ wake: Option<Box<NewRun>> })
        = "retry_announce",
    /// The announce is not delivered any more.
    DismissAnnounce({ /** The tenant. */ org: String, /** The run that ended. */ run: RunId })
        = "dismiss_announce",
    /// The session has the new values.
    PatchSession((Box<PatchSession>)) = "patch_session",
    /// The session is reset, or will be when its open runs, which are marked to end, have ended.
    ResetSession((Box<ResetSession>)) = "reset_session",
    /// The session and its descendants are deleted, or will be when their open runs, which are
    /// marked to end, have ended.
    DeleteSession((Box<DeleteSession>)) = "delete_session",
    /// One bounded part of a deleted session's remaining rows is removed.
    Purge({ /** The deleted session. */ session: SessionId }) = "purge",
    /// One bounded part of the rows past their retention is archived or removed.
    Sweep((Sweep)) = "sweep",
    /// The run has these warnings, each once, and so has the event log.
    WarnRun({ /** The run. */ run: RunId, /** Warnings for its caller. */ warnings: Vec<String> })
        = "warn_run",
    /// The running time of open runs counts up to now against their limits, even after a kill.
    Touch({ /** The current boot. */ boot: BootId }) = "touch",
}

/// The edges at which every command has a failpoint.
pub const EDGES: &[&str] = &["begin", "applied", "committed", "answered"];

impl Command {
    /// True if the command accepts new work, which is refused on a nearly full disk.
    pub fn makes_work(&self) -> bool {
        matches!(
            self,
            Command::Spawn(_) | Command::RunTurn(_) | Command::CreateSession(_)
        )
    }

    /// True if the command may wait until another command starts a batch.
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

/// A run after a command, with the rows that the command added or changed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAfter {
    /// The run in its new state.
    pub run: Run,
    /// Messages that the command appended to its transcript.
    pub messages: Vec<Message>,
    /// Steps that the command created or changed.
    pub steps: Vec<Step>,
}

/// The reply of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The command is done and has nothing to return.
    Done,
    /// The reply to [`Command::BeginBoot`].
    Boot {
        /// True if the previous boot ended uncleanly.
        unclean: bool,
        /// How far the wall clock can be trusted.
        sight: ClockTrust,
    },
    /// The session, and whether the command created it.
    Session(Box<Session>, bool),
    /// The first answer to this request; a repeat gets the same one.
    Accepted(Accepted),
    /// The run after the command.
    Run(Box<RunAfter>),
    /// The announces that this command acknowledged.
    Acked(Vec<AnnounceId>),
    /// The question after the command.
    Question(Box<Question>),
    /// The approval after the command.
    Approval(Box<Approval>),
    /// The revision number of the stored item.
    Revision(i64),
    /// Whether this command removed the item.
    Removed(bool),
    /// The memory, and whether the command created it.
    Remembered(Box<Memory>, bool),
    /// The memories that this command deleted.
    Forgotten(Vec<MemoryId>),
    /// The project that is now trusted.
    Trusted(TrustedProject),
    /// The result of a cancel.
    Cancelled(Cancelled),
    /// Scheduled: done when these runs, which are marked to end, have ended.
    Stopping(Vec<RunId>),
    /// The wake run that was created to show an announce, if one was needed.
    Woken(Option<RunId>),
    /// The progress of a sweep.
    Swept(Swept),
}

/// Executes one command inside the current transaction.
pub fn execute(context: &mut Context<'_>, command: Command) -> Result<Reply, Fault> {
    match command {
        Command::BeginBoot { boot, pid } => gateway::begin_boot(context, boot, pid),
        Command::EndBoot { boot } => {
            crate::store::tables::boots::end(context.tx, boot, context.now)?;
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
            crate::store::tables::audit::insert(context.tx, seq, now, &entry, None, outcome)?;
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
            crate::store::tables::servers::put(context.tx, &known)?;
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
        Command::RetryAnnounce { org, run, wake } => announces::retry(context, &org, run, wake),
        Command::DismissAnnounce { org, run } => announces::dismiss(context, &org, run),
        Command::PatchSession(patch) => change_session::patch(context, *patch),
        Command::ResetSession(reset) => change_session::reset(context, *reset),
        Command::DeleteSession(delete) => remove::delete(context, *delete),
        Command::Purge { session } => remove::purge(context, session),
        Command::Sweep(what) => sweep::sweep(context, &what),
        Command::WarnRun { run, warnings } => warn::run(context, run, warnings),
        Command::Touch { boot } => {
            let steady = context.now.steady;
            crate::store::tables::boots::set_alive(context.tx, boot, steady)?;
            Ok(Reply::Done)
        }
    }
}
