//! Operations of the registry that a tool may call on behalf of its run. The registry implements
//! them; tools never see it directly.
//!
//! Each call carries the run's step as its idempotency key: a repeat after a kill creates nothing
//! new and returns the same answer. A refusal is a [`Fault`], which the tool rewords for the model.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::BoxFuture;
use super::servers::SessionServer;
use super::skills::{PinnedSkill, SkillSet};
use crate::kernel::delegation::{DelegationMode, Stream};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::gate::Bundle;
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::step::Intent;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::{Cleanup, SessionMode};

/// The step of a run on whose behalf a tool acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The run.
    pub run: RunId,
    /// The step, which is the idempotency key of its effect.
    pub id: StepId,
    /// The step's sequence number in the run.
    pub step: u32,
    /// The attempt number of the step.
    pub attempt: u32,
}

/// The result that a tool gets.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolReply {
    /// This value, as JSON for the model; a string is passed on unquoted.
    Now(Value),
    /// No result yet: the step waits, and the registry delivers its outcome later.
    Pending,
}

/// A session as named by a model; empty strings count as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRef {
    /// The session key.
    pub key: Option<String>,
    /// The session's label.
    pub label: Option<String>,
}

/// A spawn requested by a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnArgs {
    /// The task text.
    pub task: String,
    /// The agent to run; the requester's own agent if unset.
    pub agent: Option<String>,
    /// A label for the child.
    pub label: Option<String>,
    /// Time limit of the child run, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Overrides the agent's model, `provider/name`.
    pub model: Option<String>,
    /// Overrides the agent's thinking level.
    pub thinking: Option<Thinking>,
    /// Whether the child's session is kept or deleted once its end has been delivered.
    pub cleanup: Cleanup,
    /// How long the child's session accepts messages.
    pub mode: SessionMode,
    /// The child's transcript starts as a copy of the caller's current one.
    pub fork: bool,
    /// Upper bound of the child's permissions.
    pub bundle: Bundle,
}

/// A tool call that another agent carries out while the caller waits.
#[derive(Clone, Debug, PartialEq)]
pub struct DelegateArgs {
    /// Which delegation tool is called.
    pub mode: DelegationMode,
    /// The agent that carries it out.
    pub agent: String,
    /// The task text.
    pub task: String,
    /// One-line title; the start of the task if unset.
    pub title: Option<String>,
    /// Session key of an earlier delegation to continue.
    pub resume_session: Option<String>,
    /// Time limit, milliseconds. Unset: that of its agent, else the setting `delegation.timeout`.
    /// Never longer than the caller's own limit.
    pub timeout_ms: Option<u64>,
    /// How much of the child's text is streamed while it works, for a `call_` tool.
    pub stream: Option<Stream>,
    /// Upper bound of the child's permissions.
    pub bundle: Bundle,
}

/// A message sent by a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SendArgs {
    /// The receiving session.
    pub to: SessionRef,
    /// The message text.
    pub message: String,
    /// How long to wait for the reply, milliseconds; 0 = do not wait.
    pub timeout_ms: u64,
}

/// A wait for runs that the session has spawned.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitArgs {
    /// Run ids to wait for; all open runs if empty.
    pub runs: Vec<String>,
    /// Return when the first of them ends.
    pub any: bool,
    /// Timeout, milliseconds.
    pub timeout_ms: u64,
}

/// A question to a user.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionArgs {
    /// The question.
    pub text: String,
    /// Suggested answers.
    pub choices: Vec<String>,
    /// How long the question stays open, milliseconds.
    pub timeout_ms: u64,
}

/// A query of a run on its long-term memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecallArgs {
    /// Search words; may be empty.
    pub query: String,
    /// Ids of memories to return.
    pub ids: Vec<String>,
    /// Maximum number of results.
    pub limit: u32,
}

/// A skill as pinned by the caller's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedText {
    /// Its metadata.
    pub skill: PinnedSkill,
    /// Its body.
    pub body: String,
}

/// Operations of the registry that tools may call.
pub trait Delegate: Send + Sync + 'static {
    /// Spawns a run below the caller's session; it is in the store once this returns.
    fn spawn(&self, site: Site, ask: SpawnArgs) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Delegates this call to another agent; it is in the store once this returns.
    fn delegate(
        &self,
        site: Site,
        ask: DelegateArgs,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Sends a message to another session; it is in the store once this returns.
    fn send(&self, site: Site, ask: SendArgs) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Waits for runs that the caller's session has spawned.
    fn wait(&self, site: Site, ask: WaitArgs) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Asks a user a question; the step waits for the answer.
    fn ask(&self, site: Site, ask: QuestionArgs) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Ends a run below the caller's session, with all its descendants.
    fn cancel(
        &self,
        site: Site,
        run: String,
        reason: Option<String>,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Whether something will be delivered to the caller's session by itself, so that its turn may
    /// end and wait for that.
    fn awaits(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// The sessions that the caller may list.
    fn sessions(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// The last `limit` messages of a session.
    fn history(
        &self,
        site: Site,
        of: SessionRef,
        limit: u32,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// The state of a session and its open runs; the caller's own session if none is named.
    fn status(&self, site: Site, of: SessionRef) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Keeps the full answer of a call that is too long to be shown; it is in the store once this
    /// returns.
    fn keep(&self, site: Site, text: String) -> BoxFuture<'static, Result<(), Fault>>;

    /// At most `most` bytes, from `offset` on, of a long answer of a call in the caller's session.
    fn output(
        &self,
        site: Site,
        tool_call: String,
        offset: u64,
        most: usize,
    ) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// The skills that the caller's run has pinned.
    fn skills(&self, site: Site) -> BoxFuture<'static, Result<SkillSet, Fault>>;

    /// The skill of this name, with its body.
    fn skill(&self, site: Site, name: String) -> BoxFuture<'static, Result<PinnedText, Fault>>;

    /// Keeps a text in the caller's long-term memory; it is in the store once this returns.
    fn remember(&self, site: Site, text: String) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Searches the memories that the caller may read.
    fn recall(&self, site: Site, ask: RecallArgs) -> BoxFuture<'static, Result<ToolReply, Fault>>;

    /// Keeps the session in which an outside agent is prompted; it is in the store once this
    /// returns.
    fn keep_turn(&self, site: Site, turn: OutsideTurn) -> BoxFuture<'static, Result<(), Fault>>;

    /// Begins a call that an outside agent makes in its turn; it is in the store once this returns.
    fn begin_call(&self, site: Site, call: Intent) -> BoxFuture<'static, Result<(), Fault>>;

    /// The answer to this call of an outside agent may be given, and only in this process; that is in
    /// the store once this returns.
    fn answer_call(&self, site: Site) -> BoxFuture<'static, Result<(), Fault>>;

    /// Ends the wait of a call whose question an outside agent has dropped, with this outcome; the
    /// approval is closed once this returns.
    fn end_call(
        &self,
        run: RunId,
        call: StepId,
        why: String,
    ) -> BoxFuture<'static, Result<(), Fault>>;

    /// How the MCP server of this name of the caller's session is started or reached.
    fn session_server(
        &self,
        site: Site,
        name: String,
    ) -> BoxFuture<'static, Result<SessionServer, Fault>>;

    /// The agents that the caller may spawn.
    fn agents(&self, site: Site) -> BoxFuture<'static, Result<ToolReply, Fault>>;
}

/// Slot for the registry, filled after it is created. Tools are made before the registry, since it
/// needs a runner and the runner needs tools.
pub type DelegateSlot = Arc<OnceLock<Arc<dyn Delegate>>>;
