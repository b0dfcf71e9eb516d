//! Compares each declaration with the table in a fresh store.

use super::columns::values;
use super::table::Table;
use crate::store::migrate;
use crate::store::repair::tables::TABLES;
use crate::store::sqlite::{Sqlite, Use};
use crate::store::tx::{all, first};

fn fresh() -> (tempfile::TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("abide.db");
    let mut db = Sqlite::open(&path, Use::Write).unwrap();
    migrate::migrate(&mut db, None).unwrap();
    (folder, db)
}

/// The columns of a table by name, and its primary key in order.
fn real(db: &mut Sqlite, table: &Table) -> (Vec<String>, Vec<String>) {
    let names = |db: &mut Sqlite, rest: &str| {
        let sql = format!("SELECT name FROM pragma_table_info(?1) {rest}");
        all(db, &sql, &[table.name.into()], values).unwrap()
    };
    (
        names(db, "ORDER BY name"),
        names(db, "WHERE pk > 0 ORDER BY pk"),
    )
}

#[test]
fn each_table_is_declared_with_the_columns_and_the_key_that_it_has() {
    let (_folder, mut db) = fresh();
    for table in TABLES {
        let (columns, primary) = real(&mut db, table);
        let mut declared = table.all_columns();
        declared.sort_unstable();
        assert_eq!(declared, columns, "{}", table.name);
        let name = table.name;
        // A row with several parts of its key in one field has fewer names in errors.
        let finds = primary
            .iter()
            .all(|column| declared.contains(&column.as_str()));
        assert!(finds && table.primary == primary, "{name}: {primary:?}");
        for column in table.key {
            assert!(
                table.columns.split(", ").any(|read| read == *column),
                "{name}.{column}"
            );
        }
        for (column, assignments) in table.repairs {
            assert!(declared.contains(column), "{name}.{column}");
            let sql = format!("UPDATE {name} SET {}", assignments.replace("$fresh", "x''"));
            first(&mut db, &sql, &[], |_| Ok(())).unwrap();
        }
    }
}
