//! What a tool may ask of the registry on behalf of the run that calls it. The registry
//! answers; tools never see it.
//!
//! Each call names the run's step, which is its idempotency key: a repeat after a kill makes
//! nothing new and gives the same answer. A refusal is a [`Fault`], which the tool puts into
//! words for the model.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::BoxFuture;
use super::skills::{PinnedSkill, SkillSet};
use crate::kernel::delegation::{Face, Stream};
use crate::kernel::fault::Fault;
use crate::kernel::gate::Bundle;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::session::{Cleanup, SessionMode};
use crate::kernel::thinking::Thinking;

/// The step of a run on whose behalf a tool acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The run.
    pub run: RunId,
    /// The step, the idempotency key of its effect.
    pub id: StepId,
    /// The step's place in the run.
    pub step: u32,
    /// Its try.
    pub attempt: u32,
}

/// What a tool is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// This, as JSON for the model; a text is told as it is.
    Now(Value),
    /// Nothing yet: the step waits, and gets its outcome from elsewhere.
    Waits,
}

/// A session as models name it: empty texts stand for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// By its key.
    pub key: Option<String>,
    /// By its label.
    pub label: Option<String>,
}

/// A spawn by a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnAsk {
    /// What is to be done.
    pub task: String,
    /// Who does it; the run's own agent if unset.
    pub agent: Option<String>,
    /// A name for it.
    pub label: Option<String>,
    /// How long it may run, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// In place of the agent's model, `provider/name`.
    pub model: Option<String>,
    /// In place of the agent's thinking level.
    pub thinking: Option<Thinking>,
    /// What becomes of its session once all is told.
    pub cleanup: Cleanup,
    /// How long its session stays open for messages.
    pub mode: SessionMode,
    /// Its transcript begins with the caller's as it is now.
    pub fork: bool,
    /// What its runs may do at most.
    pub bundle: Bundle,
}

/// A call of a tool that another agent carries out, while its caller waits.
#[derive(Clone, Debug, PartialEq)]
pub struct DelegateAsk {
    /// Which tool.
    pub face: Face,
    /// Who carries it out.
    pub agent: String,
    /// What is to be done.
    pub task: String,
    /// What it is about, on one line; the start of the task if unset.
    pub title: Option<String>,
    /// The key of the session of an earlier one that goes on.
    pub goes_on: Option<String>,
    /// How long it may run, milliseconds; as its agent or the setting `delegation.timeout` says
    /// if unset, and never longer than its caller.
    pub timeout_ms: Option<u64>,
    /// How much of what it says is shown while it comes, if it is called.
    pub stream: Option<Stream>,
    /// What its runs may do at most.
    pub bundle: Bundle,
}

/// A message by a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SendAsk {
    /// To whom.
    pub to: Named,
    /// What is said.
    pub message: String,
    /// How long the reply is waited for, milliseconds; 0 = not at all.
    pub window_ms: u64,
}

/// A wait for runs that the session has spawned.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAsk {
    /// Which, as ids; all that are open if empty.
    pub runs: Vec<String>,
    /// One is enough.
    pub any: bool,
    /// How long, milliseconds.
    pub window_ms: u64,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionAsk {
    /// What is asked.
    pub text: String,
    /// Answers that are proposed.
    pub choices: Vec<String>,
    /// How long it stands, milliseconds.
    pub window_ms: u64,
}

/// What a run looks for in its long-term memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecallAsk {
    /// Words; may be empty.
    pub query: String,
    /// Memories by their ids.
    pub ids: Vec<String>,
    /// How many at most.
    pub limit: u32,
}

/// A skill as the caller's run has pinned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedText {
    /// What is known of it.
    pub skill: PinnedSkill,
    /// Its body.
    pub body: String,
}

/// What tools may ask of the registry.
pub trait Delegate: Send + Sync + 'static {
    /// Spawns a run below the caller's session; it is in the store once this returns.
    fn spawn(&self, site: Site, ask: SpawnAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Has another agent carry out this call; it is in the store once this returns.
    fn delegate(&self, site: Site, ask: DelegateAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Says something in another session; it is in the store once this returns.
    fn send(&self, site: Site, ask: SendAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Waits for runs that the caller's session has spawned.
    fn wait(&self, site: Site, ask: WaitAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Asks a person.
    fn ask(&self, site: Site, ask: QuestionAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Ends a run that lies below the caller's session, and all below it.
    fn cancel(
        &self,
        site: Site,
        run: String,
        reason: Option<String>,
    ) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Whether something will be told to the caller's session by itself, so that its turn may
    /// end and wait for that.
    fn awaits(&self, site: Site) -> BoxFuture<'static, Result<Told, Fault>>;

    /// The sessions within the caller's reach.
    fn sessions(&self, site: Site) -> BoxFuture<'static, Result<Told, Fault>>;

    /// The last messages of a session.
    fn history(&self, site: Site, of: Named, limit: u32)
    -> BoxFuture<'static, Result<Told, Fault>>;

    /// How a session and its open runs are; the caller's own if it names none.
    fn status(&self, site: Site, of: Named) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Keeps all that a call has answered, which is too long to be shown whole; it is in the
    /// store once this returns.
    fn keep(&self, site: Site, text: String) -> BoxFuture<'static, Result<(), Fault>>;

    /// At most `most` bytes of a long answer of a call in the caller's session, from `offset` on.
    fn output(
        &self,
        site: Site,
        tool_call: String,
        offset: u64,
        most: usize,
    ) -> BoxFuture<'static, Result<Told, Fault>>;

    /// The skills that the caller's run has pinned.
    fn skills(&self, site: Site) -> BoxFuture<'static, Result<SkillSet, Fault>>;

    /// One of them.
    fn skill(&self, site: Site, name: String) -> BoxFuture<'static, Result<PinnedText, Fault>>;

    /// Keeps a text in the caller's long-term memory; it is in the store once this returns.
    fn remember(&self, site: Site, text: String) -> BoxFuture<'static, Result<Told, Fault>>;

    /// Looks into the memory that the caller may read.
    fn recall(&self, site: Site, ask: RecallAsk) -> BoxFuture<'static, Result<Told, Fault>>;

    /// The agents that the caller may spawn.
    fn agents(&self, site: Site) -> BoxFuture<'static, Result<Told, Fault>>;
}

/// Where the registry is put once it is there: tools are made before it, since it needs a
/// runner and the runner needs them.
pub type DelegateSlot = Arc<OnceLock<Arc<dyn Delegate>>>;
