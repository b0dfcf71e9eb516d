//! Whether something belongs to a run: itself, its session, and what is below that. The doors
//! ask on behalf of programs that the run has started.

use super::Registry;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::policy::Kinship;
use crate::store::command::kinship;
use crate::store::{runs, sessions};

/// A run or a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A run.
    Run(RunId),
    /// A session.
    Session(SessionKey),
}

impl Registry {
    /// Is it the run itself, its session, or below that? Nobody owns what is not there.
    pub fn owns(&self, run: RunId, object: &Object) -> Result<bool, Fault> {
        let mut stands = Ok(Kinship::Other);
        self.inner.store.read_now(|tx| {
            let Some(own) = runs::get(tx, run)? else {
                return Ok(());
            };
            let session = match object {
                Object::Session(key) => sessions::by_key(tx, &own.org, key)?,
                Object::Run(id) => match runs::get(tx, *id)? {
                    // Other turns of its session are not its own, those below are.
                    Some(other) if other.session == own.session && other.id != own.id => None,
                    Some(other) => sessions::by_id(tx, other.session)?,
                    None => None,
                },
            };
            if let Some(session) = session {
                stands = kinship(tx, own.session, &session);
            }
            Ok(())
        })?;
        Ok(stands? != Kinship::Other)
    }
}
