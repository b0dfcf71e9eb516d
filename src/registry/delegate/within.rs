//! Checks whether an object belongs to a run: the run itself, its session, or its descendants. The
//! RPC layer asks on behalf of programs that the run started.

use crate::command::relation;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::policy::Relation;
use crate::registry::{Principal, Registry};
use crate::store::tables::{runs, sessions};

/// A run or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// By run id.
    Run(RunId),
    /// By session key.
    Session(SessionKey),
}

impl Registry {
    /// The principal for which a program of `run` calls; `None` if the run is gone.
    pub fn principal_of(&self, run: RunId) -> Result<Option<Principal>, Fault> {
        let found = self.inner.store.read_now(|tx| runs::get(tx, run))?;
        Ok(found.map(|run| Principal::of_run(run.id, run.org, run.user)))
    }

    /// True if the object is the run itself, its session, or a descendant; false if it is missing.
    pub fn owns(&self, run: RunId, object: &Object) -> Result<bool, Fault> {
        let mut stands = Ok(Relation::Other);
        self.inner.store.read_now(|tx| {
            let Some(own) = runs::get(tx, run)? else {
                return Ok(());
            };
            let session = match object {
                Object::Session(key) => sessions::by_key(tx, &own.org, key)?,
                Object::Run(id) => match runs::get(tx, *id)? {
                    // Other turns in its session do not belong to the run; runs in descendant
                    // sessions do.
                    Some(other) if other.session == own.session && other.id != own.id => None,
                    Some(other) => sessions::by_id(tx, other.session)?,
                    None => None,
                },
            };
            if let Some(session) = session {
                stands = relation(tx, own.session, &session);
            }
            Ok(())
        })?;
        Ok(stands? != Relation::Other)
    }
}
