//! Migrates a database to the schema of this program: numbered, append-only steps, one
//! transaction each. Called when a store is opened, after its copy was made.

use std::path::Path;

use super::sqlite::Sqlite;
use super::tx::{DbError, DbErrorKind, Tx};

struct Migration {
    name: &'static str,
    sql: &'static str,
}

/// The history of the schema. Append only: a released step never changes.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "0001_schema",
        sql: include_str!("migrations/sqlite/0001_schema.sql"),
    },
    Migration {
        name: "0002_nodes",
        sql: include_str!("migrations/sqlite/0002_nodes.sql"),
    },
    Migration {
        name: "0003_tokens",
        sql: include_str!("migrations/sqlite/0003_tokens.sql"),
    },
    Migration {
        name: "0004_delegation",
        sql: include_str!("migrations/sqlite/0004_delegation.sql"),
    },
    Migration {
        name: "0005_kept_steps",
        sql: include_str!("migrations/sqlite/0005_kept_steps.sql"),
    },
    Migration {
        name: "0006_audit_client",
        sql: include_str!("migrations/sqlite/0006_audit_client.sql"),
    },
    Migration {
        name: "0007_webhooks",
        sql: include_str!("migrations/sqlite/0007_webhooks.sql"),
    },
    Migration {
        name: "0008_session_servers",
        sql: include_str!("migrations/sqlite/0008_session_servers.sql"),
    },
];

/// The schema version of this program.
pub const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// Why a database cannot be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Another version wrote it: a newer one, or a build from before the first release. Nothing was
    /// written to it.
    #[error("the store has schema version {found}, this program knows {known}")]
    Newer {
        /// The schema version of the file.
        found: i64,
        /// The schema version of this program.
        known: i64,
    },
    /// A step failed. The file is unchanged.
    #[error("migration {name} failed: {source}. The store is unchanged{copy}")]
    Failed {
        /// Name of the step.
        name: &'static str,
        /// `, with a copy at …`, or empty.
        copy: String,
        /// The engine's error.
        source: DbError,
    },
    /// The file cannot be read at all.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// The schema version of the file.
pub fn version(db: &Sqlite) -> Result<i64, DbError> {
    db.read_pragma("user_version")
}

/// Refuses a file with a newer schema.
pub fn check_not_newer(found: i64) -> Result<(), MigrateError> {
    if found > SCHEMA {
        return Err(MigrateError::Newer {
            found,
            known: SCHEMA,
        });
    }
    Ok(())
}

/// Is the schema of the open store older than that of this program? Not for a new, empty file.
pub fn is_needed(db: &Sqlite) -> Result<Option<i64>, DbError> {
    let found = version(db)?;
    Ok((1..SCHEMA).contains(&found).then_some(found))
}

/// Once this returns, the open store has the schema of this program. An error names `copy`, where the
/// store is as it was before.
pub fn migrate(db: &mut Sqlite, copy: Option<&Path>) -> Result<(), MigrateError> {
    run(db, copy, MIGRATIONS)
}

/// Once this returns, the empty database has the schema of `version`, which this program must
/// know.
pub fn make(db: &mut Sqlite, version: i64) -> Result<(), DbError> {
    let steps = usize::try_from(version).unwrap_or(0).min(MIGRATIONS.len());
    run(db, None, &MIGRATIONS[..steps]).map_err(|fault| match fault {
        MigrateError::Db(fault) | MigrateError::Failed { source: fault, .. } => fault,
        fault @ MigrateError::Newer { .. } => DbError {
            kind: DbErrorKind::Other,
            message: fault.to_string(),
        },
    })
}

fn run(db: &mut Sqlite, copy: Option<&Path>, migrations: &[Migration]) -> Result<(), MigrateError> {
    let found = version(db)?;
    let known = migrations.len() as i64;
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    for (index, migration) in migrations.iter().enumerate() {
        let to = index as i64 + 1;
        if to <= found {
            continue;
        }
        // A table that is rebuilt is dropped while others refer to it, so references are checked
        // before the commit instead.
        let sql = format!(
            "PRAGMA foreign_keys = 0;\nBEGIN IMMEDIATE;\n{}",
            migration.sql
        );
        let done = db
            .batch(&sql)
            .and_then(|()| check_references(db))
            .and_then(|()| db.batch(&format!("PRAGMA user_version = {to};\nCOMMIT;")));
        if done.is_err() {
            // No transaction is open if the error itself rolled it back.
            let _ = db.batch("ROLLBACK");
        }
        db.batch("PRAGMA foreign_keys = 1")?;
        if let Err(source) = done {
            let copy = copy.map(|copy| format!(", with a copy at {}", copy.display()));
            return Err(MigrateError::Failed {
                name: migration.name,
                copy: copy.unwrap_or_default(),
                source,
            });
        }
        crate::failpoint::reach("migrate.step");
    }
    Ok(())
}

/// Fails unless every reference between rows is valid.
fn check_references(db: &mut Sqlite) -> Result<(), DbError> {
    let mut lost = None;
    db.query("PRAGMA foreign_key_check", &[], &mut |row| {
        lost = Some(row.text(0)?.to_owned());
        Ok(())
    })?;
    match lost {
        None => Ok(()),
        Some(table) => Err(DbError {
            kind: DbErrorKind::Other,
            message: format!("rows of {table} refer to missing rows"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::Use;
    use crate::store::tx::number;

    const GOOD: Migration = Migration {
        name: "good",
        sql: "CREATE TABLE kept (n INTEGER); INSERT INTO kept VALUES (7);",
    };
    const BROKEN: Migration = Migration {
        name: "broken",
        sql: "DROP TABLE kept; CREATE TABLE nonsense (",
    };

    #[test]
    fn g5_10_a_failed_migration_leaves_the_old_store_and_names_its_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        run(&mut db, None, &[GOOD]).unwrap();
        let copy = dir.path().join("copy.db");
        let error = run(&mut db, Some(&copy), &[GOOD, BROKEN]).unwrap_err();
        assert!(
            matches!(error, MigrateError::Failed { name: "broken", .. }),
            "{error}"
        );
        assert_eq!(version(&db).unwrap(), 1);
        assert_eq!(number(&mut db, "SELECT n FROM kept", &[]).unwrap(), 7);
        assert!(error.to_string().contains("copy.db"), "{error}");
    }

    #[test]
    fn g5_11_a_newer_schema_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        db.batch("PRAGMA user_version = 99").unwrap();
        let error = migrate(&mut db, None).unwrap_err().to_string();
        assert!(
            error.contains("99") && error.contains(&SCHEMA.to_string()),
            "{error}"
        );
        assert_eq!(version(&db).unwrap(), 99);
        assert_eq!(
            number(&mut db, "SELECT count(*) FROM sqlite_master", &[]).unwrap(),
            0
        );
    }
}
