//! Who calls the registry. The requests are those of the wire; the answers that the wire shows in
//! another form are in `answer`.

pub use crate::command::{Accepted, CancelTarget, Verdict};
use crate::kernel::ids::RunId;

/// The identity that a call is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The tenant.
    pub org: String,
    /// The user.
    pub user: String,
    /// The run whose program calls; `None` for a client's call.
    pub run: Option<RunId>,
    /// The caller has presented the access token. Without it a caller cannot decide for the user.
    pub with_token: bool,
}

impl Principal {
    /// The actor recorded for its calls: `run:<id>`, or `owner` for a client.
    pub fn recorded(&self) -> String {
        match self.run {
            Some(run) => format!("run:{run}"),
            None => "owner".to_owned(),
        }
    }

    /// The actor recorded in rows about runs: the run or, without a run, the user.
    pub(crate) fn by(&self) -> String {
        match self.run {
            Some(_) => self.recorded(),
            None => self.user.clone(),
        }
    }
}
