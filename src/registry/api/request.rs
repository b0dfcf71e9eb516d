//! Who calls the registry. The requests are those of the wire; the answers that the wire shows in
//! another form are in `answer`.

pub use crate::command::{Accepted, CancelTarget, Verdict};
use crate::kernel::ids::RunId;
use crate::kernel::scope::{OWNER_ORG, ScopeSet};

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
    /// What the caller may do. Programs of runs have further restrictions.
    pub scopes: ScopeSet,
}

impl Principal {
    /// The owner of the daemon, who may do everything.
    pub fn owner() -> Self {
        Principal {
            org: OWNER_ORG.to_owned(),
            user: "admin".to_owned(),
            run: None,
            with_token: false,
            scopes: ScopeSet::all(),
        }
    }

    /// A program or tool that acts for `run`, a run of this org and user.
    pub fn of_run(run: RunId, org: String, user: String) -> Self {
        Principal {
            org,
            user,
            run: Some(run),
            ..Principal::owner()
        }
    }

    /// Whether it belongs to the org of the daemon's owner.
    pub fn is_of_owner_org(&self) -> bool {
        self.org == OWNER_ORG
    }

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
