//! The copy of a store that is made before its schema changes: the program that used it until then can
//! read it. Called when a store is opened.

use std::path::{Path, PathBuf};

use super::backup;
use super::files;
use super::migrate::SCHEMA;
use super::own_backups::{self, head_of, last_change};
use super::sqlite::{Sqlite, header_version};
use super::tx::{DbError, DbErrorKind};
use crate::clock::Clock;
use crate::failpoint::reach;
use crate::kernel::fault::Kind;

/// Prefix of the names of these copies, followed by the schema version that the store then got.
const PREFIX: &str = "before-schema-";

/// Once this returns, the backup folder has a checked copy of the open store at `database`, whose schema
/// has version `found`, as it is now. A start that repeats an interrupted migration makes no second
/// copy.
pub fn copy(
    db: &mut Sqlite,
    database: &Path,
    found: i64,
    clock: &Clock,
) -> Result<PathBuf, DbError> {
    let present = last_change(db)?;
    let same = |path: &PathBuf| {
        header_version(path).is_ok_and(|version| version <= found) && head_of(path) == Some(present)
    };
    if let Some(made) = list(database).into_iter().find(same) {
        return Ok(made);
    }
    let folder = backup::folder(database);
    files::private_folder(&folder)?;
    let time = clock.now().to_string().replace(':', "-");
    let path = folder.join(format!("{PREFIX}{SCHEMA}-{time}.db"));
    let copy = backup::copy(database, Some(path), clock).map_err(|fault| DbError {
        kind: match fault.kind {
            Kind::Unavailable => DbErrorKind::Full,
            Kind::Busy => DbErrorKind::Busy,
            Kind::InvalidParams => DbErrorKind::ReadOnly,
            _ => DbErrorKind::Other,
        },
        message: format!(
            "no backup could be made before the migration: {}",
            fault.message
        ),
    })?;
    reach("migrate.copied");
    Ok(copy.path)
}

/// The newest copy that was made before a migration and that this program can read.
pub fn newest(database: &Path) -> Option<PathBuf> {
    let made = list(database).into_iter();
    made.rev()
        .find(|path| header_version(path).is_ok_and(|version| version <= SCHEMA))
}

/// The copies, oldest first.
fn list(database: &Path) -> Vec<PathBuf> {
    let backups = own_backups::list(&backup::folder(database)).unwrap_or_default();
    let paths = backups.into_iter().map(|one| one.path);
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(PREFIX.as_bytes())
    };
    paths.filter(is_copy).collect()
}
