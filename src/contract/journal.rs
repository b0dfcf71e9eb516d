//! What a runner sees of the journal: the run, its session's transcript, its steps. It sees
//! a copy; only store commands write.

use std::sync::Arc;

use super::pin::Pin;
use crate::kernel::env::Environment;
use crate::kernel::message::Message;
use crate::kernel::redact::Redactor;
use crate::kernel::run::Run;
use crate::kernel::step::Step;

/// A run as its runner sees it. Everything that a runner decides, it decides from this, so
/// that after a restart it decides the same.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// The agent's definition as pinned at spawn: the JSON that the catalog gave.
    pub agent: Pin,
    /// The tools' schemas as pinned at spawn: the JSON that the catalog gave.
    pub tools: Pin,
    /// Its skills as pinned at spawn: JSON of [`super::skills::SkillSet`]; `None`: it has none.
    pub skills: Option<Pin>,
    /// What its session may do at most, as pinned at spawn: JSON of
    /// [`crate::kernel::gate::Bundle`]; `None`: it is bound by its own definition alone.
    pub bundle: Option<Pin>,
    /// What its programs have in their environment.
    pub environment: Arc<RunEnvironment>,
    /// The transcript, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The run's steps, oldest first.
    pub steps: Vec<Arc<Step>>,
}

/// What the programs of a run have in their environment, with the values: made when the run
/// takes a slot, the same for everything that it starts, and stored nowhere.
#[derive(Clone, Debug, Default)]
pub struct RunEnvironment {
    /// All of it, the base included.
    pub variables: Environment,
    /// Names without a value, each with the reason: nothing is started before they have one.
    pub lacks: Vec<(String, String)>,
    /// Takes its secrets out of what the run says.
    pub redactor: Redactor,
}

impl RunView {
    /// The seq of the transcript's last message; 0 when it is empty.
    pub fn last_seq(&self) -> i64 {
        self.messages.last().map_or(0, |message| message.seq)
    }
}
