//! The outline of a database file: its schema with the root page of each table. A copy is kept
//! beside the database, so that rows can still be found when the first page or the schema is
//! damaged.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::store::sqlite::Sqlite;
use crate::store::tx::{DbError, all};
use crate::store::{files, sqlite};

/// One entry of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaEntry {
    /// `table`, `index` or `trigger`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// The table that it belongs to.
    pub table: String,
    /// Its root page; 0 if it has none.
    pub root: i64,
    /// The statement that created it; `None` for an index of a constraint.
    pub sql: Option<String>,
}

/// The schema of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// Its schema version.
    pub version: i64,
    /// Its entries.
    pub lines: Vec<SchemaEntry>,
}

impl Outline {
    /// The schema as stored in the file itself.
    pub fn of(db: &mut Sqlite) -> Result<Outline, DbError> {
        let version = db.read_pragma("user_version")?;
        let lines = all(
            db,
            "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master ORDER BY rowid",
            &[],
            |row| {
                Ok(SchemaEntry {
                    kind: row.text(0)?.to_owned(),
                    name: row.text(1)?.to_owned(),
                    table: row.text(2)?.to_owned(),
                    root: row.opt_int(3)?.unwrap_or(0),
                    sql: row.opt_text(4)?.map(str::to_owned),
                })
            },
        )?;
        Ok(Outline { version, lines })
    }

    /// The copy beside the database, if it can be read.
    pub fn kept(path: &Path) -> Option<Outline> {
        serde_json::from_slice(&fs::read(files::outline(path)).ok()?).ok()
    }

    /// The copy beside the database is equal to this outline.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        if Outline::kept(path).as_ref() == Some(self) {
            return Ok(());
        }
        let half = files::beside(path, ".outline.new");
        files::private(&half)?;
        fs::write(&half, crate::store::tables::columns::to_json(self))?;
        fs::rename(half, files::outline(path))
    }

    /// True if the outlines have the same version and differ, apart from root pages.
    pub fn differs(&self, other: &Outline) -> bool {
        let lines = |outline: &Outline| {
            let mut lines = outline.lines.clone();
            for line in &mut lines {
                line.root = 0;
            }
            lines.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
            lines
        };
        self.version == other.version && lines(self) != lines(other)
    }

    /// The file at `copy` has this outline as its schema, whatever its first page was. It must be
    /// closed and have no WAL.
    pub fn impose(&self, copy: &Path) -> Result<(), DbError> {
        self.put_first_page(copy)?;
        let lines = self.lines.iter().map(|line| {
            let name = |text: &str| text.replace('\'', "''");
            let sql = line.sql.as_deref();
            format!(
                "INSERT INTO sqlite_master VALUES ('{}', '{}', '{}', {}, {});",
                name(&line.kind),
                name(&line.name),
                name(&line.table),
                line.root,
                sql.map_or("NULL".to_owned(), |sql| format!("'{}'", name(sql)))
            )
        });
        sqlite::write_schema(copy, &lines.collect::<String>())
    }

    /// Writes a first page with an empty schema, for a file of this length.
    fn put_first_page(&self, copy: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(copy)?;
        let whole = file.metadata()?.len().div_ceil(files::PAGE as u64);
        let pages = u32::try_from(whole).unwrap_or(u32::MAX);
        let mut page = vec![0; files::PAGE];
        page[..16].copy_from_slice(b"SQLite format 3\0");
        page[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        page[18..20].fill(1);
        // Payload fractions that the format fixes.
        page[21..24].copy_from_slice(&[64, 32, 32]);
        let mut number = |at: usize, value: u32| {
            page[at..at + 4].copy_from_slice(&value.to_be_bytes());
        };
        // Change counter, page count, schema cookie, schema format, UTF-8, version, and the change
        // counter for which the page count is valid.
        number(24, 1);
        number(28, pages);
        number(40, 1);
        number(44, 4);
        number(56, 1);
        number(60, u32::try_from(self.version).unwrap_or(0));
        number(92, 1);
        number(96, 3_051_003);
        // An empty table leaf page.
        page[100] = 0x0d;
        page[105..107].copy_from_slice(&4096_u16.to_be_bytes());
        file.write_all_at(&page, 0)
    }
}
