//! The closed list of write commands, which the store's writer executes. The doc line of each says
//! what is true after its commit.

use std::collections::BTreeMap;

use crate::contract::commit::PendingWait;
use crate::contract::nodes::{ChangeNode, NodeNote, PairNode};
use crate::contract::rows::TrustedProject;
use crate::contract::servers::{KnownServer, NewServer, StoredServer};
use crate::contract::webhooks::{LetterChoice, WebhookRecord, WebhookTable};
use crate::kernel::ages::ClockTrust;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{
    AnnounceId, ApprovalId, BootId, MemoryId, MessageId, QuestionId, RunId, SessionId, SessionKey,
    StepId, TokenId,
};
use crate::kernel::memory::Memory;
use crate::kernel::node::{NodeInvite, PairedNode};
use crate::kernel::policy::approval::Approval;
use crate::kernel::question::Question;
use crate::kernel::run::Run;
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::recover::Loss;
use crate::kernel::run::step::{Intent, Step};
use crate::kernel::session::Session;
use crate::kernel::session::message::Message;
use crate::kernel::time::Timestamp;
use crate::kernel::token::AccessToken;
use crate::kernel::webhook::Webhook;
use crate::store::tables::audit::{self, AuditedCall};
use crate::store::tables::{boots, servers};
use crate::store::tx::BadRow;
use crate::store::write::{Command, Executed, QueueClass, Reply, Transaction};

mod agents;
mod announces;
mod cancel;
mod context;
mod delegation;
mod exchange;
mod gateway;
mod moves;
mod new_run;
mod nodes;
mod outside;
mod quarantine;
mod recovery;
mod remember;
mod removal;
mod run_end;
mod run_environment;
mod send;
mod session;
mod session_servers;
mod spawn;
mod steps;
mod sweep;
mod tokens;
mod turn;
mod user_requests;
mod waiting;
mod webhooks;

pub use agents::NoteSkills;
pub use agents::{MAX_AGENTS, MAX_TRUSTED, PutAgent};
pub use cancel::{Cancel, CancelTarget, Cancelled};
pub use context::Context;
pub use gateway::GatewayNote;
pub(crate) use new_run::first_answer;
pub use new_run::{Accepted, Key, NewRun};
pub use recovery::{Resolve, Verdict};
pub use remember::Remember;
pub use removal::DeleteSession;
pub use run_end::{AGENT_NAME, BREAKER};
pub use run_end::{Conclusion, TurnEnd};
pub use run_environment::{LackEnvironment, ProvideEnvironment};
pub(crate) use send::relation;
pub use send::{SendMessage, Sender};
pub use session::NewSession;
pub use session::{PatchSession, ResetSession};
pub use spawn::{Awaits, Begins, Spawn, SpawnedBy};
pub use steps::KeepOutput;
pub use steps::{Recorded, Then};
pub(crate) use sweep::is_due;
pub use sweep::{Sweep, Swept};
pub use turn::{Asks, RunTurn};
pub use user_requests::Ask;
pub use user_requests::{RequestApproval, ResolveApproval};
pub use waiting::{AwaitProvider, DoubtEffect, StepRef, WaitFor};

/// Declares the commands: each is a struct, or a payload declared in the file that executes it, with
/// its reply, its name in failpoints, and the call that executes it.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident $shape:tt -> $reply:ty as $text:literal $($class:ident)?, |$context:ident| $body:expr;)+) => {
        $(command! { $(#[$doc])* $name $shape -> $reply as $text $($class)?, |$context| $body })+

        /// The names of all commands, as failpoints use them.
        pub const NAMES: &[&str] = &[$($text),+];
    };
}

macro_rules! command {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* } -> $($rest:tt)+) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        command! { @impl $name [$name { $($field),* }] $($rest)+ }
    };
    ($(#[$doc:meta])* $name:ident($value:ident) -> $($rest:tt)+) => {
        command! { @impl $name [$value] $($rest)+ }
    };
    (@impl $name:ident [$($pattern:tt)+] $reply:ty as $text:literal $($class:ident)?, |$context:ident| $body:expr) => {
        impl Command for $name {
            type Reply = $reply;
            const NAME: &'static str = $text;
            $(const CLASS: QueueClass = QueueClass::$class;)?

            fn execute(&self, on: Transaction<'_>) -> Result<Executed<Self::Reply>, Fault> {
                let mut context = Context::new(on);
                let $($pattern)+ = self.clone();
                let $context = &mut context;
                let reply: Result<Self::Reply, Fault> = $body;
                let reply = reply?;
                Ok(Executed { reply, effects: context.finish()? })
            }
        }
    };
}

commands! {
    /// This boot is recorded; the reply says whether the previous one ended uncleanly.
    BeginBoot {
        /// Its id.
        boot: BootId,
        /// Its process id.
        pid: u32,
    } -> BootReport as "begin_boot",
        |context| gateway::begin_boot(context, boot, pid);
    /// This boot is recorded as cleanly ended.
    EndBoot {
        /// The boot that ends.
        boot: BootId,
    } -> () as "end_boot",
        |context| Ok(boots::end(context.tx, boot, context.now)?);
    /// The event log has one more event about the daemon itself; a repeat adds another.
    NoteGateway {
        /// The current boot.
        boot: BootId,
        /// The state change to record.
        note: GatewayNote,
    } -> () as "note_gateway",
        |context| gateway::note_gateway(context, boot, note);
    /// The session exists, new or unchanged.
    NewSession(new) -> SessionAfter as "create_session" NewWork,
        |context| session::create_session(context, new);
    /// The child session, its first message and its queued run exist; on failure none of them.
    Spawn(spawn) -> Accepted as "spawn" NewWork,
        |context| spawn::spawn(context, spawn);
    /// The queued run and its session exist; on failure neither of them.
    RunTurn(turn) -> Accepted as "run_turn" NewWork,
        |context| turn::run_turn(context, turn);
    /// The run holds its session's turn, its input is in the transcript, and its first steps are
    /// recorded as intents. The reply has every message that the caller has not seen yet.
    StartRun {
        /// The run to start.
        run: RunId,
        /// Intents of its first steps.
        intents: Vec<Intent>,
        /// Seq of the last message that the caller has seen.
        seen: i64,
    } -> RunAfter as "start_run",
        |context| steps::start_run(context, run, intents, seen);
    /// The effect of a step with effect class `once` may begin.
    BeginEffect {
        /// The run.
        run: RunId,
        /// Seq of the step.
        step: u32,
        /// Number of the attempt.
        attempt: u32,
    } -> RunAfter as "begin_effect",
        |context| steps::begin_effect(context, run, step, attempt);
    /// The step's outcome is in the journal and the transcript, and the next steps are recorded
    /// as intents or the run has ended.
    RecordOutcome {
        /// The run of the step.
        run: RunId,
        /// Seq of the step.
        step: u32,
        /// The attempt that produced the outcome.
        attempt: u32,
        /// The outcome.
        outcome: Recorded,
        /// The next steps, or the end of the turn.
        then: Then,
    } -> RunAfter as "record_outcome",
        |context| steps::record_outcome(context, run, step, attempt, outcome, then);
    /// The run is queued again, at a step boundary.
    Park {
        /// The run to queue.
        run: RunId,
    } -> RunAfter as "park",
        |context| run_end::park(context, run);
    /// The run has ended, or is marked to end.
    Conclude {
        /// The run to end.
        run: RunId,
        /// Why it ends without an outcome of its own.
        why: Conclusion,
    } -> RunAfter as "conclude",
        |context| run_end::conclude(context, run, why);
    /// The pending announces of this session are in its transcript, unless a turn is in progress
    /// there; a run is queued if one is needed to see them.
    Deliver {
        /// The session that receives the announces.
        session: SessionId,
        /// The wake run to create if no other run would see them.
        wake: Option<Box<NewRun>>,
        /// Why no wake run can be created.
        unable: Option<String>,
    } -> () as "deliver",
        |context| announces::deliver(context, session, wake, unable.as_deref());
    /// These announces are acknowledged, as far as they are in this session's inbox.
    Ack {
        /// The tenant.
        org: String,
        /// Key of the inbox's session.
        session: SessionKey,
        /// The announces to acknowledge.
        ids: Vec<AnnounceId>,
    } -> Vec<AnnounceId> as "ack",
        |context| announces::ack(context, &org, &session, ids);
    /// The open run that lost its executor is queued, paused, settling or ended, as
    /// [`crate::kernel::run::recover`] decides.
    Recover {
        /// The run to recover.
        run: RunId,
        /// How it lost its executor.
        loss: Loss,
        /// The time by which its age is computed; `None`: its age does not end it.
        aged_at: Option<Timestamp>,
    } -> RunAfter as "recover",
        |context| recovery::recover(context, run, loss, aged_at);
    /// The message is queued as a turn of the target session, or stored in a client's session; a
    /// step that expects the reply waits for it.
    SendMessage(message) -> Accepted as "send",
        |context| send::send(context, message);
    /// The follow-up of a turn that answered another session is recorded: the next turn of the
    /// exchange, or the outbox row that announces its end.
    Exchange {
        /// The run of the turn that ended.
        run: RunId,
        /// The run of the next turn, if there can be one.
        next: Option<Box<NewRun>>,
    } -> () as "exchange",
        |context| exchange::exchange(context, run, next);
    /// The step waits for these runs to end, or already has their ends as its outcome.
    WaitFor(wait) -> () as "wait_for",
        |context| waiting::wait_for(context, wait);
    /// The caller's event stream has this piece of the called run's output.
    NotePartial {
        /// The called run.
        run: RunId,
        /// Seq of the model step that produces the output.
        step: u32,
        /// Number of its attempt.
        attempt: u32,
        /// Byte offset of the piece in the output.
        offset: usize,
        /// The piece of text.
        text: String,
    } -> () as "note_partial",
        |context| delegation::note_partial(context, run, (step, attempt), offset, &text);
    /// The question is open, and its step waits for the answer.
    Ask(ask) -> () as "ask",
        |context| user_requests::ask(context, ask);
    /// The question is answered, and its step has the answer as its outcome.
    Answer {
        /// The tenant.
        org: String,
        /// The question.
        id: QuestionId,
        /// Text of the answer.
        answer: String,
        /// The user or client that answers.
        by: String,
    } -> Question as "answer",
        |context| user_requests::answer(context, &org, id, &answer, &by);
    /// The result, too long for the transcript, is stored and can be fetched.
    KeepOutput(keep) -> () as "keep_output",
        |context| steps::keep_output(context, keep);
    /// The text is in the long-term memory, in the namespace of the step's run.
    Remember(new) -> Remembered as "remember",
        |context| remember::remember(context, &new);
    /// These memories are deleted.
    ForgetMemories {
        /// The tenant.
        org: String,
        /// The memories to delete.
        ids: Vec<MemoryId>,
    } -> Vec<MemoryId> as "forget_memories",
        |context| remember::forget(context, &org, ids);
    /// The approval is open and its step waits for it, or it is already decided.
    RequestApproval(asked) -> Approval as "request_approval",
        |context| user_requests::request_approval(context, asked);
    /// The approval is decided: its step is to be executed, or has the denial as its outcome.
    ResolveApproval(said) -> Approval as "resolve_approval",
        |context| user_requests::resolve_approval(context, said);
    /// The remembered decision no longer applies.
    ForgetApproval {
        /// The tenant.
        org: String,
        /// The approval whose decision was remembered.
        id: ApprovalId,
    } -> bool as "forget_approval",
        |context| user_requests::forget_approval(context, &org, id);
    /// The step waits for values of its run's environment that could not be resolved.
    LackEnvironment(lack) -> () as "lack_environment",
        |context| run_environment::lack(context, lack);
    /// The run has these environment values, and continues if no value is missing any more.
    ProvideEnvironment(given) -> RunAfter as "provide_environment",
        |context| run_environment::provide(context, given);
    /// The event log says that no process has the ended run's environment any more.
    RestoreEnvironment {
        /// The ended run.
        run: RunId,
    } -> () as "restore_environment",
        |context| run_environment::restore(context, run);
    /// The step waits for its model's provider until the deadline, or its run is ending.
    AwaitProvider(wait) -> () as "await_provider",
        |context| waiting::await_provider(context, wait);
    /// The step whose effect may have happened waits for a person's review, or is to be carried out
    /// again.
    DoubtEffect(doubt) -> RunAfter as "doubt_effect",
        |context| waiting::doubt_effect(context, doubt);
    /// The step of an outside agent's turn has the session in which the agent is prompted.
    KeepTurn {
        /// The step of the prompt.
        by: StepRef,
        /// The session.
        turn: OutsideTurn,
    } -> () as "keep_turn",
        |context| outside::keep_turn(context, by, &turn);
    /// The call that an outside agent makes is a step of its run.
    BeginCall {
        /// The step of the prompt.
        by: StepRef,
        /// The call.
        call: Box<Intent>,
    } -> () as "begin_call",
        |context| outside::begin_call(context, by, *call);
    /// The answer to an outside agent's call may be given.
    AnswerCall {
        /// The step of the call.
        by: StepRef,
    } -> () as "answer_call",
        |context| outside::answer_call(context, by);
    /// The call whose question an outside agent has dropped does not wait for a person any more.
    EndCall {
        /// The run.
        run: RunId,
        /// The step of the call.
        call: StepId,
        /// Why, as the outcome of the call.
        why: String,
    } -> () as "end_call",
        |context| outside::end_call(context, run, call, &why);
    /// The wait has ended at its deadline; a waiting step has the progress so far as its outcome.
    WindowOver {
        /// The wait.
        window: PendingWait,
    } -> () as "window_over",
        |context| waiting::window_over(context, window);
    /// The call has its audit row, which no other command wrote.
    Audit {
        /// The audited call.
        entry: Box<AuditedCall>,
        /// Its outcome, as written to the audit row.
        outcome: &'static str,
    } -> () as "audit" Soft,
        |context| {
            let (seq, now) = (context.take_seq()?, context.now.wall);
            audit::insert(context.tx, seq, now, &entry, None, outcome)?;
            Ok(())
        };
    /// The stored agent has this definition; storing an identical one changes nothing.
    PutAgent(new) -> i64 as "put_agent",
        |context| agents::put_agent(context, new);
    /// The stored agent is deleted.
    DeleteAgent {
        /// The tenant.
        org: String,
        /// Name of the agent.
        name: String,
        /// The revision that it must have.
        if_revision: Option<i64>,
    } -> bool as "delete_agent",
        |context| agents::delete_agent(context, &org, &name, if_revision);
    /// The event log has an event for every change up to this set of agents.
    NoteAgents {
        /// The tenant.
        org: String,
        /// The current set: definition hash by name.
        now: BTreeMap<String, String>,
        /// The set before the first event.
        built_in: BTreeMap<String, String>,
        /// The cause of the change.
        reason: String,
    } -> () as "note_agents",
        |context| agents::note_agents(context, &org, now, built_in, &reason);
    /// The tools that the MCP server offered at its last start are stored.
    KeepServer {
        /// The server.
        known: KnownServer,
    } -> () as "keep_server",
        |context| Ok(servers::put(context.tx, &known)?);
    /// The session has exactly these MCP servers.
    SetServers {
        /// The tenant.
        org: String,
        /// The session.
        session: SessionId,
        /// Its key, for the refusal if it is gone.
        key: SessionKey,
        /// The servers.
        servers: Vec<NewServer>,
    } -> Vec<StoredServer> as "set_servers",
        |context| session_servers::set(context, &org, (session, &key), servers);
    /// The row of the session's MCP server has the tools that it listed, or why it did not.
    KeepTools {
        /// The session.
        session: SessionId,
        /// Name of the server.
        name: String,
        /// Digest of how it was started or reached.
        digest: String,
        /// The tools as JSON, or why they are not known.
        listed: Result<String, String>,
    } -> () as "keep_tools",
        |context| session_servers::keep_tools(context, session, &name, &digest, listed);
    /// The skills of the folder have this hash under a version number of their own.
    NoteSkills(found) -> i64 as "note_skills",
        |context| agents::note_skills(context, &found);
    /// The project is trusted with its content as of this hash.
    TrustProject {
        /// The tenant.
        org: String,
        /// The user who trusts it.
        user: String,
        /// Folder of the project.
        folder: String,
        /// Hash of the content that the trust covers.
        hash: String,
    } -> TrustedProject as "trust_project",
        |context| agents::trust_project(context, org, user, folder, hash);
    /// The project is not trusted.
    RevokeTrust {
        /// The tenant.
        org: String,
        /// Folder of the project.
        folder: String,
    } -> bool as "revoke_trust",
        |context| agents::revoke_trust(context, &org, &folder);
    /// The node is paired, and the invitation that it used is used up.
    PairNode(new) -> PairedNode as "pair_node",
        |context| nodes::pair(context, new);
    /// The node has changed.
    ChangeNode(wanted) -> PairedNode as "change_node",
        |context| nodes::change(context, wanted);
    /// The invitation can be used once, until it expires.
    AddInvite {
        /// The invitation.
        invite: NodeInvite,
    } -> () as "add_invite",
        |context| nodes::invite(context, invite);
    /// The event log has this event about a node.
    NoteNode {
        /// The tenant.
        org: String,
        /// The event.
        note: NodeNote,
    } -> () as "note_node",
        |context| nodes::note(context, &org, note);
    /// The access token is valid.
    CreateToken {
        /// The token.
        token: AccessToken,
    } -> AccessToken as "create_token",
        |context| tokens::create(context, token);
    /// The access token is refused.
    RevokeToken {
        /// The org that it must belong to; `None`: any.
        org: Option<String>,
        /// The token.
        id: TokenId,
    } -> AccessToken as "revoke_token",
        |context| tokens::revoke(context, org.as_deref(), id);
    /// The rows say when these access tokens were last used.
    NoteTokenUses {
        /// Each token with its last use.
        uses: Vec<(TokenId, Timestamp)>,
    } -> () as "note_token_uses" Soft,
        |context| tokens::note_uses(context, &uses);
    /// Exactly these webhooks are configured; the reply has their rows.
    ConfigureWebhooks {
        /// The webhooks of the settings.
        tables: Vec<WebhookTable>,
    } -> Vec<Webhook> as "configure_webhooks",
        |context| webhooks::configure(context, tables);
    /// The webhook's progress is stored. The reply is false if it is not known any more.
    RecordWebhook {
        /// Its progress.
        record: WebhookRecord,
    } -> bool as "record_webhook" Soft,
        |context| webhooks::record(context, record);
    /// These dead letters are to be delivered again; the reply has their cursors.
    ReplayLetters {
        /// The webhook.
        webhook: String,
        /// The dead letters.
        letters: LetterChoice,
    } -> Vec<i64> as "replay_letters",
        |context| webhooks::replay(context, &webhook, letters);
    /// These dead letters are deleted; the reply has their cursors.
    DropLetters {
        /// The webhook.
        webhook: String,
        /// The dead letters.
        letters: LetterChoice,
    } -> Vec<i64> as "drop_letters",
        |context| webhooks::discard(context, &webhook, letters);
    /// The step has the outcome that a user decided on, or is executed again; or its run has
    /// ended.
    Resolve(said) -> RunAfter as "resolve",
        |context| recovery::resolve(context, said);
    /// The row is stored whole in quarantine; what can be decoded of it stays in its table.
    Quarantine {
        /// The undecodable row.
        row: BadRow,
    } -> () as "quarantine",
        |context| quarantine::quarantine(context, &row);
    /// The salvaged store is consistent: open runs that lost rows have ended, and ended runs that
    /// lost their announces have new ones.
    SettleSalvaged {
        /// Open runs that lost rows.
        broken: Vec<RunId>,
        /// Ended runs that lost their announces.
        untold: Vec<RunId>,
    } -> () as "settle_salvaged",
        |context| quarantine::settle_salvaged(context, &broken, &untold);
    /// The runs of the target and its descendants are marked to end; those without an executor
    /// have ended.
    Cancel(cancel) -> Cancelled as "cancel",
        |context| cancel::cancel(context, cancel);
    /// The text waits for the next model call of the run's turn.
    Steer {
        /// The tenant.
        org: String,
        /// The run to steer.
        run: RunId,
        /// Id of the message; a repeat with it changes nothing.
        message: MessageId,
        /// The text.
        text: String,
    } -> () as "steer",
        |context| turn::steer(context, &org, run, message, &text);
    /// The announce is shown again to its target session, or offered for delivery again.
    RetryAnnounce {
        /// The tenant.
        org: String,
        /// The run that ended.
        run: RunId,
        /// The wake run to create for it.
        wake: Option<Box<NewRun>>,
    } -> Option<RunId> as "retry_announce",
        |context| announces::retry_announce(context, &org, run, wake);
    /// The announce is not delivered any more.
    DismissAnnounce {
        /// The tenant.
        org: String,
        /// The run that ended.
        run: RunId,
    } -> () as "dismiss_announce",
        |context| announces::dismiss_announce(context, &org, run);
    /// The session has the new values.
    PatchSession(patch) -> Session as "patch_session",
        |context| session::patch_session(context, patch);
    /// The session is reset, or will be when its open runs, which are marked to end, have ended.
    ResetSession(reset) -> Clearance<Session> as "reset_session",
        |context| session::reset_session(context, reset);
    /// The session and its descendants are deleted, or will be when their open runs, which are
    /// marked to end, have ended.
    DeleteSession(delete) -> Clearance<()> as "delete_session",
        |context| removal::delete_session(context, delete);
    /// One bounded part of a deleted session's remaining rows is removed.
    Purge {
        /// The deleted session.
        session: SessionId,
    } -> () as "purge" Soft,
        |context| removal::purge(context, session);
    /// One bounded part of the rows past their retention is archived or removed.
    Sweep(what) -> Swept as "sweep" Soft,
        |context| sweep::sweep(context, &what);
    /// The run has these warnings, each once, and so has the event log.
    WarnRun {
        /// The run.
        run: RunId,
        /// Warnings for its caller.
        warnings: Vec<String>,
    } -> () as "warn_run",
        |context| run_end::warn_run(context, run, warnings);
    /// The running time of open runs counts up to now against their limits, even after a kill.
    Touch {
        /// The current boot.
        boot: BootId,
    } -> () as "touch" Soft,
        |context| Ok(boots::set_alive(context.tx, boot, context.now.steady)?);
}

/// The edges at which every command has a failpoint.
pub const EDGES: &[&str] = &["begin", "applied", "committed", "answered"];

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

impl RunAfter {
    /// A run whose transcript the command did not change.
    fn with_steps(run: Run, steps: Vec<Step>) -> RunAfter {
        RunAfter {
            run,
            messages: Vec::new(),
            steps,
        }
    }
}

impl Reply for RunAfter {
    fn object(&self) -> Option<String> {
        Some(self.run.id.to_string())
    }
}

impl Reply for Accepted {
    fn object(&self) -> Option<String> {
        Some(self.run.to_string())
    }
}

/// The session of a request that creates it if it does not exist.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionAfter {
    /// The session.
    pub session: Session,
    /// True if this command created it.
    pub is_new: bool,
}

impl Reply for SessionAfter {
    fn object(&self) -> Option<String> {
        self.session.object()
    }
}

impl Reply for AccessToken {
    fn object(&self) -> Option<String> {
        Some(self.id.to_string())
    }
}

impl Reply for Session {
    fn object(&self) -> Option<String> {
        Some(self.key.to_string())
    }
}

/// A reset or deletion of a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Clearance<T> {
    /// It is done.
    Done(T),
    /// It will be done when these runs, which are marked to end, have ended.
    Stopping(Vec<RunId>),
}

impl<T: Reply> Reply for Clearance<T> {
    fn object(&self) -> Option<String> {
        match self {
            Clearance::Done(cleared) => cleared.object(),
            Clearance::Stopping(_) => None,
        }
    }
}

/// What the store knows about the time before this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootReport {
    /// True if the previous boot ended uncleanly.
    pub unclean: bool,
    /// How far the wall clock can be trusted.
    pub sight: ClockTrust,
}

/// A memory, and whether it is a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// The memory.
    pub memory: Memory,
    /// True if this command created it.
    pub is_new: bool,
}

macro_rules! without_object {
    ($($reply:ty),+) => { $(impl Reply for $reply {})+ };
}

without_object!(
    (),
    bool,
    i64,
    Vec<i64>,
    Option<RunId>,
    Vec<AnnounceId>,
    Vec<MemoryId>,
    Approval,
    BootReport,
    Cancelled,
    Question,
    Remembered,
    Swept,
    TrustedProject
);
