//! Migrates a database to the schema of this program: numbered, append-only steps, one
//! transaction each. Called when a store is opened.

use std::path::Path;

use super::sqlite::Sqlite;
use super::tx::{DbError, DbErrorKind, Tx};

struct Migration {
    name: &'static str,
    sql: &'static str,
    /// It drops or rewrites data: the file is copied first.
    destructive: bool,
}

/// The history of the schema. Append only; a released step never changes.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "0001_sessions_and_runs",
        sql: include_str!("migrations/sqlite/0001_sessions_and_runs.sql"),
        destructive: false,
    },
    Migration {
        name: "0002_whole_registry",
        sql: include_str!("migrations/sqlite/0002_whole_registry.sql"),
        destructive: true,
    },
    Migration {
        name: "0003_lifecycle",
        sql: include_str!("migrations/sqlite/0003_lifecycle.sql"),
        destructive: false,
    },
    Migration {
        name: "0004_audit",
        sql: include_str!("migrations/sqlite/0004_audit.sql"),
        destructive: false,
    },
    Migration {
        name: "0005_agents_and_trust",
        sql: include_str!("migrations/sqlite/0005_agents_and_trust.sql"),
        destructive: false,
    },
    Migration {
        name: "0006_quarantine",
        sql: include_str!("migrations/sqlite/0006_quarantine.sql"),
        destructive: false,
    },
    Migration {
        name: "0007_event_log",
        sql: include_str!("migrations/sqlite/0007_event_log.sql"),
        destructive: false,
    },
    Migration {
        name: "0008_delegation",
        sql: include_str!("migrations/sqlite/0008_delegation.sql"),
        destructive: false,
    },
    Migration {
        name: "0009_clearings",
        sql: include_str!("migrations/sqlite/0009_clearings.sql"),
        destructive: false,
    },
    Migration {
        name: "0010_review_and_meta",
        sql: include_str!("migrations/sqlite/0010_review_and_meta.sql"),
        destructive: false,
    },
    Migration {
        name: "0011_budgets",
        sql: include_str!("migrations/sqlite/0011_budgets.sql"),
        destructive: false,
    },
    Migration {
        name: "0012_tools",
        sql: include_str!("migrations/sqlite/0012_tools.sql"),
        destructive: false,
    },
    Migration {
        name: "0013_delegation",
        sql: include_str!("migrations/sqlite/0013_delegation.sql"),
        destructive: false,
    },
    Migration {
        name: "0014_tool_servers",
        sql: include_str!("migrations/sqlite/0014_tool_servers.sql"),
        destructive: false,
    },
    Migration {
        name: "0015_skills",
        sql: include_str!("migrations/sqlite/0015_skills.sql"),
        destructive: false,
    },
    Migration {
        name: "0016_environment",
        sql: include_str!("migrations/sqlite/0016_environment.sql"),
        destructive: false,
    },
    Migration {
        name: "0017_called",
        sql: include_str!("migrations/sqlite/0017_called.sql"),
        destructive: false,
    },
    Migration {
        name: "0018_memory",
        sql: include_str!("migrations/sqlite/0018_memory.sql"),
        destructive: false,
    },
    Migration {
        name: "0019_usage",
        sql: include_str!("migrations/sqlite/0019_usage.sql"),
        destructive: false,
    },
    Migration {
        name: "0020_budget_trees",
        sql: include_str!("migrations/sqlite/0020_budget_trees.sql"),
        destructive: false,
    },
    Migration {
        name: "0021_agent_names",
        sql: include_str!("migrations/sqlite/0021_agent_names.sql"),
        destructive: false,
    },
    Migration {
        name: "0022_used_by_steps",
        sql: include_str!("migrations/sqlite/0022_used_by_steps.sql"),
        destructive: false,
    },
    Migration {
        name: "0023_stops",
        sql: include_str!("migrations/sqlite/0023_stops.sql"),
        destructive: false,
    },
];

/// The schema that all steps together produce. A new store is created from it directly: the steps
/// alter and rebuild tables, which takes five times as long. A test compares it with the steps,
/// and writes it.
const WHOLE: &str = include_str!("migrations/sqlite/whole.sql");

/// The schema version of this program.
pub const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// Why a database cannot be migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A newer program wrote it. Nothing was written to it.
    #[error(
        "the store has schema version {found}, this program knows {known}: it was written by a \
         newer abide. Nothing was changed; use that version, or another state folder"
    )]
    Newer {
        /// The schema version of the file.
        found: i64,
        /// The schema version of this program.
        known: i64,
    },
    /// A step failed. The file is unchanged.
    #[error("migration {name} failed: {source}. The store is as it was{copy}")]
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

/// Once this returns, the file at `path` has the schema of this program.
pub fn migrate(db: &mut Sqlite, path: &Path) -> Result<(), MigrateError> {
    run(db, path, MIGRATIONS)
}

/// Once this returns, the empty database has the schema of this program.
pub fn make_whole(db: &mut Sqlite) -> Result<(), DbError> {
    db.batch(&format!(
        "BEGIN IMMEDIATE;\n{WHOLE}\nPRAGMA user_version = {SCHEMA};\nCOMMIT;"
    ))
}

/// Once this returns, the empty database has the schema of `version`, which this program must
/// know.
pub fn make(db: &mut Sqlite, version: i64) -> Result<(), DbError> {
    let steps = usize::try_from(version).unwrap_or(0).min(MIGRATIONS.len());
    // An empty database is not copied, so the path is not used.
    run(db, Path::new(""), &MIGRATIONS[..steps]).map_err(|fault| match fault {
        MigrateError::Db(fault) | MigrateError::Failed { source: fault, .. } => fault,
        fault @ MigrateError::Newer { .. } => DbError {
            kind: DbErrorKind::Other,
            message: fault.to_string(),
        },
    })
}

fn run(db: &mut Sqlite, path: &Path, migrations: &[Migration]) -> Result<(), MigrateError> {
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
        let mut copy = String::new();
        if migration.destructive && found > 0 {
            let beside = path.with_extension(format!("before-{}.db", migration.name));
            // A copy left by a failed earlier attempt is of the same old file, so it is replaced.
            let _ = std::fs::remove_file(&beside);
            db.copy_to(&beside)?;
            copy = format!(", with a copy at {}", beside.display());
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
            return Err(MigrateError::Failed {
                name: migration.name,
                copy,
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
            message: format!("rows of {table} refer to rows that are not there"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::Use;
    use crate::store::tx::{all, first, number};

    const GOOD: Migration = Migration {
        name: "good",
        sql: "CREATE TABLE kept (n INTEGER); INSERT INTO kept VALUES (7);",
        destructive: false,
    };
    const BROKEN: Migration = Migration {
        name: "broken",
        sql: "DROP TABLE kept; CREATE TABLE nonsense (",
        destructive: true,
    };

    #[test]
    fn g5_10_a_failed_migration_leaves_the_old_store_and_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        run(&mut db, &path, &[GOOD]).unwrap();
        let error = run(&mut db, &path, &[GOOD, BROKEN]).unwrap_err();
        assert!(
            matches!(error, MigrateError::Failed { name: "broken", .. }),
            "{error}"
        );
        assert_eq!(version(&db).unwrap(), 1);
        assert_eq!(number(&mut db, "SELECT n FROM kept", &[]).unwrap(), 7);
        let copy = dir.path().join("abide.before-broken.db");
        let mut copy = Sqlite::open(&copy, Use::Write).unwrap();
        assert_eq!(number(&mut copy, "SELECT n FROM kept", &[]).unwrap(), 7);
        assert!(
            error.to_string().contains("abide.before-broken.db"),
            "{error}"
        );
    }

    #[test]
    fn g5_11_a_newer_schema_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        db.batch("PRAGMA user_version = 99").unwrap();
        let error = migrate(&mut db, &path).unwrap_err().to_string();
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

    /// The whole content of a database, as statements that create it.
    fn statements(db: &mut Sqlite) -> String {
        // Shadow tables are created with their virtual table.
        let schema = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL \
             AND name NOT IN (SELECT name FROM pragma_table_list WHERE type = 'shadow') \
             ORDER BY rowid";
        let lines = all(db, schema, &[], |row| {
            let texts = [row.text(0)?, row.text(1)?, row.text(2)?];
            Ok(texts.map(str::to_owned))
        });
        let mut written = String::new();
        for [kind, name, sql] in lines.unwrap() {
            written += &format!("{sql};\n\n");
            if kind != "table" {
                continue;
            }
            let columns = columns(db, &name);
            let quoted: Vec<String> = columns
                .split(',')
                .map(|column| format!("quote({column})"))
                .collect();
            let values = format!("SELECT {} FROM {name}", quoted.join(" || ', ' || "));
            for row in all(db, &values, &[], |row| Ok(row.text(0)?.to_owned())).unwrap() {
                written += &format!("INSERT INTO {name} ({columns}) VALUES ({row});\n\n");
            }
        }
        written
    }

    /// `ABIDE_WRITE_SCHEMA=1` rewrites the file after a step was added.
    #[test]
    fn a_new_store_is_what_all_steps_make_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("steps.db");
        let mut by_steps = Sqlite::open(&path, Use::Make).unwrap();
        migrate(&mut by_steps, &path).unwrap();
        let expected = statements(&mut by_steps);
        if std::env::var_os("ABIDE_WRITE_SCHEMA").is_some() {
            let file = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/store/migrations/sqlite/whole.sql"
            );
            std::fs::write(file, &expected).unwrap();
        }
        let mut whole = Sqlite::open(&dir.path().join("whole.db"), Use::Make).unwrap();
        make_whole(&mut whole).unwrap();
        assert_eq!(version(&whole).unwrap(), SCHEMA);
        assert_eq!(
            statements(&mut whole),
            expected,
            "run this test with ABIDE_WRITE_SCHEMA=1 after a step was added"
        );
    }

    /// All rows of a table, each as one text of the columns that the first schema had.
    fn rows(db: &mut Sqlite, table: &str, columns: &str) -> Vec<String> {
        let quoted: Vec<String> = columns
            .split(',')
            .map(|one| format!("quote({one})"))
            .collect();
        let sql = format!("SELECT {} FROM {table}", quoted.join(" || '|' || "));
        let mut found = all(db, &sql, &[], |row| Ok(row.text(0)?.to_owned())).unwrap();
        found.sort_unstable();
        found
    }

    fn columns(db: &mut Sqlite, table: &str) -> String {
        let sql = format!("SELECT group_concat(name) FROM pragma_table_info('{table}')");
        first(db, &sql, &[], |row| Ok(row.text(0)?.to_owned()))
            .unwrap()
            .unwrap()
    }

    #[test]
    fn every_row_of_the_first_schema_survives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abide.db");
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        run(&mut db, &path, &MIGRATIONS[..1]).unwrap();
        // The dump orders tables by name, not by their references.
        db.batch("PRAGMA foreign_keys = 0").unwrap();
        db.batch(include_str!("tests/fixtures/schema_1.sql"))
            .unwrap();
        let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let tables = all(&mut db, names, &[], |row| Ok(row.text(0)?.to_owned())).unwrap();
        assert!(tables.len() >= 11, "{tables:?}");
        let before: Vec<(String, String, Vec<String>)> = tables
            .into_iter()
            .map(|table| {
                let columns = columns(&mut db, &table);
                let rows = rows(&mut db, &table, &columns);
                assert!(!rows.is_empty(), "the fixture has no {table}");
                (table, columns, rows)
            })
            .collect();
        migrate(&mut db, &path).unwrap();
        for (table, columns, expected) in before {
            assert_eq!(rows(&mut db, &table, &columns), expected, "{table}");
        }
        assert!(
            dir.path()
                .join("abide.before-0002_whole_registry.db")
                .exists()
        );
        // Runs that ended before usage was counted are counted by the migration.
        let ended = "SELECT count(*) FROM runs WHERE ended_at IS NOT NULL";
        let ended = number(&mut db, ended, &[]).unwrap();
        let counted = number(&mut db, "SELECT sum(runs) FROM usage_runs", &[]).unwrap();
        assert!(ended > 0 && counted == ended, "{counted} of {ended}");
        // Constraints of the schema are in force again.
        let changed = db.execute("UPDATE runs SET state = 'error' WHERE state = 'ok'", &[]);
        assert_eq!(changed.unwrap_err().kind, DbErrorKind::Constraint);
        let orphan = db.execute(
            "UPDATE steps SET run_id = x'00' WHERE ended_at IS NULL",
            &[],
        );
        assert_eq!(orphan, Ok(0), "the fixture's steps have all ended");
        let orphan = db.execute("DELETE FROM runs", &[]);
        assert_eq!(orphan.unwrap_err().kind, DbErrorKind::Constraint);
    }
}
