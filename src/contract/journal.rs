//! The runner's view of the journal: the run, its session's transcript, its steps. It is a copy;
//! only store commands write.

use std::sync::Arc;

use super::pin::Pin;
use crate::kernel::policy::env::Environment;
use crate::kernel::run::Run;
use crate::kernel::run::step::Step;
use crate::kernel::session::message::Message;
use crate::kernel::text::redact::Redactor;

/// A run as its runner sees it. A runner decides from this view alone, so that it decides the same
/// after a restart.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// The agent's definition as pinned at spawn: the catalog's JSON.
    pub agent: Pin,
    /// The tools' schemas as pinned at spawn: the catalog's JSON.
    pub tools: Pin,
    /// Its skills as pinned at spawn: JSON of [`super::skills::SkillSet`]; `None` if it has none.
    pub skills: Option<Pin>,
    /// The upper bound of its session's permissions as pinned at spawn: JSON of
    /// [`crate::kernel::policy::gate::Bundle`]; `None` if only its own definition limits it.
    pub bundle: Option<Pin>,
    /// The environment of its programs.
    pub environment: Arc<RunEnvironment>,
    /// The transcript, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The run's steps, oldest first.
    pub steps: Vec<Arc<Step>>,
}

/// The environment of a run's programs, with values. Made when the run takes a slot, the same for
/// everything that it starts, and never stored.
#[derive(Clone, Debug, Default)]
pub struct RunEnvironment {
    /// All variables, the base included.
    pub variables: Environment,
    /// Names without a value, each with the reason; nothing is started while there are any.
    pub missing: Vec<(String, String)>,
    /// Masks the run's secrets in its output.
    pub redactor: Redactor,
}

impl RunView {
    /// The seq of the transcript's last message; 0 when it is empty.
    pub fn last_seq(&self) -> i64 {
        self.messages.last().map_or(0, |message| message.seq)
    }
}
