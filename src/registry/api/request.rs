//! Who calls the registry. The requests are those of the wire; the answers that the wire shows in
//! another form are in `answer`.

use std::net::IpAddr;
use std::sync::Arc;

pub use crate::command::{Accepted, CancelTarget, Verdict};
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::scope::{OWNER_ORG, Scope, ScopeSet};
use crate::registry::LiveToken;

/// The identity that a call is made for.
#[derive(Clone, Debug)]
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
    /// The access token that it has presented; `None` for the owner of the daemon and for runs.
    pub token: Option<Arc<LiveToken>>,
    /// The inbound webhook that calls, by its name; `None` for all others.
    pub hook: Option<Arc<str>>,
    /// The address of the client, of a call over TCP; behind trusted proxies that of their client.
    pub address: Option<IpAddr>,
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
            token: None,
            hook: None,
            address: None,
        }
    }

    /// An inbound webhook, which its sender has proved to be allowed to use. It starts work of the
    /// owner, and reads and changes nothing else.
    pub fn of_hook(name: &str) -> Self {
        Principal {
            with_token: true,
            scopes: [Scope::Run].into_iter().collect(),
            hook: Some(name.into()),
            ..Principal::owner()
        }
    }

    /// A program or tool that acts for `run`, a run of this org and user.
    pub fn of_run(run: RunId, org: String, user: String) -> Self {
        Principal {
            org,
            user,
            run: Some(run),
            scopes: [Scope::Read, Scope::Run].into_iter().collect(),
            ..Principal::owner()
        }
    }

    /// The holder of an access token.
    pub fn of_token(token: Arc<LiveToken>) -> Self {
        let known = token.token();
        Principal {
            org: known.org.clone(),
            user: known.user.clone(),
            run: None,
            with_token: true,
            scopes: known.scopes,
            token: Some(token),
            hook: None,
            address: None,
        }
    }

    /// Whether it is the owner of the daemon, and not the holder of an access token or a webhook.
    pub fn is_owner(&self) -> bool {
        self.run.is_none() && self.token.is_none() && self.hook.is_none()
    }

    /// Whether it operates the daemon: the owner, or an administrator of the owner's org.
    pub fn is_operator(&self) -> bool {
        let administers = self.is_of_owner_org() && self.scopes.contains(Scope::Admin);
        self.is_owner() || (self.run.is_none() && administers)
    }

    /// Whether it belongs to the org of the daemon's owner.
    pub fn is_of_owner_org(&self) -> bool {
        self.org == OWNER_ORG
    }

    /// Returns the fault of its access token when that is revoked or expires; pending forever
    /// without one.
    pub async fn ended(&self) -> Fault {
        match &self.token {
            Some(token) => token.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Maximum number of open runs of its user while it may request another one.
    pub(crate) fn max_open_runs(&self) -> Option<u32> {
        self.token.as_ref()?.token().limits.open_runs
    }

    /// The actor recorded for its calls: `run:<id>`, `user:<name> token:<id>` for the holder of an
    /// access token, `hook:<name>`, or `owner`.
    pub fn recorded(&self) -> String {
        match (self.run, &self.token, &self.hook) {
            (Some(run), ..) => format!("run:{run}"),
            (None, Some(token), _) => format!("user:{} token:{}", self.user, token.token().id),
            (None, None, Some(hook)) => format!("hook:{hook}"),
            (None, None, None) => "owner".to_owned(),
        }
    }

    /// The actor recorded in rows about runs: the run or webhook or, without one, the user.
    pub(crate) fn by(&self) -> String {
        match (self.run, &self.hook) {
            (None, None) => self.user.clone(),
            _ => self.recorded(),
        }
    }
}
