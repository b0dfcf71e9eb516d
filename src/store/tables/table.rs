//! Declares tables: [`table!`] names each column once, and the statements over all columns, the
//! decoder and what repair needs follow from it.

use std::sync::OnceLock;

use super::columns::width;
pub(crate) use super::columns::{Columns, Field};
pub(crate) use crate::store::tx::DbError;
use crate::store::tx::{BadRow, DbErrorKind, Param, Row, Tx, execute};

/// Declares the table of a file and the Rust type of its rows:
///
/// ```text
/// table! {
///     tasks: Task;
///     key { id }                                   // finds the row that is updated or damaged
///     insert { org, session(session_id), spent(tokens, cost) }    // written by `insert` only
///     update { title, done_at }                    // written by each update, too
///     changed { state(state, pause) }              // written by an update that changes any of them
///     version { ver }                              // raised by each update
///     beside { seq: i64, draft: Option<String> }   // in the table, but not in `Task`
///     primary { seq }                              // the primary key, if `key` is another one
///     undecodable Moved { "title" => "title = ''" }
/// }
/// ```
///
/// A field is followed by its column, or its columns, if the name differs. Its type decides how it
/// is stored: see [`Field`](super::columns::Field). `key { seq } of { session_id: SessionId }`
/// declares a part of the key that is not in the type; it is read with each row to name it. Further
/// types after the first have the same fields and are only read. The last line says what happens to
/// a row that does not decode, and which assignments repair it.
///
/// The file imports `table::{self, table}` and gets `COLUMNS`, the list for
/// `SELECT {COLUMNS} FROM …`, and [`TABLE`](Table). Then [`read`] decodes a row; [`insert`], [`put`]
/// and [`update`] write one. A unit test compares each declaration with the schema.
macro_rules! table {
    (
        $name:ident: $row:ty $(, $also:ty)*;
        key { $($($key:ident $(($key_column:ident))?),+)? } $(of { $($of:ident: $of_type:ty),+ })?
        $(insert { $($insert:tt)+ })?
        $(update { $($update:tt)+ })?
        $(changed { $($changed:tt)+ })*
        $(version { $version:ident })?
        $(beside { $($beside:ident: $beside_type:ty),+ })?
        $(primary { $($primary:ident),+ })?
        undecodable $fate:ident { $($damaged:literal => $repair:expr),* $(,)? }
    ) => {
        table! { @rows [$row $(, $also)*] {
            $({ Key $($key $(($key_column))?),+ })?
            $({ Once $($insert)+ })?
            $({ Always $($update)+ })?
            $({ IfChanged $($changed)+ })*
            $({ Version $version })?
        } [$($(stringify!($of), ", ",)+)?] }

        /// The declaration of the table.
        pub(crate) static TABLE: table::Table =
            table::Table {
                name: stringify!($name),
                columns: COLUMNS,
                beside: &[$($(stringify!($beside)),+)?],
                key: KEY,
                primary: {
                    const PRIMARY: &[&str] = &[$($(stringify!($primary)),+)?];
                    if PRIMARY.is_empty() { KEY } else { PRIMARY }
                },
                decode: |row| {
                    let mut columns = table::Columns::new(row);
                    <$row as table::Decoded>::decode(&mut columns)?;
                    $($(columns.take::<$of_type>()?;)+)?
                    $($(columns.take::<$beside_type>()?;)+)?
                    Ok(())
                },
                repairs: &[$(($damaged, $repair)),*],
                on_undecodable: table::OnUndecodable::$fate,
                statements: table::Statements::new(),
            };

        const KEY: &[&str] = &[
            $($(table!(@names $key $(($key_column))?),)+)?
            $($(stringify!($of),)+)?
        ];
    };

    (@rows [$row:ty $(, $also:ty)*] $sections:tt [$($of:tt)*]) => {
        table! { @columns $sections [$($of)*] }
        table! { @decoded $row, $sections }
        $(table! { @decoded $also, $sections })*
        table! { @stored $row, $sections }
    };

    (@columns {
        $({ $kind:ident $($field:ident $(($($column:ident),+))?),+ $(,)? })+
    } [$($of:tt)*]) => {
        /// The columns that each read of a row decodes, in its order.
        pub(crate) const COLUMNS: &str = table::trimmed(concat!(
            $($(table!(@names $field $(($($column),+))?), ", ",)+)+
            $($of)*
        ));
    };

    (@decoded $row:ty, {
        $({ $kind:ident $($field:ident $(($($column:ident),+))?),+ $(,)? })+
    }) => {
        impl table::Decoded for $row {
            fn table() -> &'static table::Table {
                &TABLE
            }

            fn decode(
                columns: &mut table::Columns<'_>,
            ) -> Result<Self, table::DbError> {
                Ok(Self { $($($field: columns.take()?,)+)+ })
            }
        }
    };

    (@stored $row:ty, {
        $({ $kind:ident $($field:ident $(($($column:ident),+))?),+ $(,)? })+
    }) => {
        impl table::Stored for $row {
            const SECTIONS: &'static [table::Section<Self>] = &[
                $(table::Section {
                    written: table::Written::$kind,
                    columns: table::trimmed(concat!($(
                        table!(@names $field $(($($column),+))?),
                        ", ",
                    )+)),
                    bind: |row, params| {
                        $(table::Field::bind(&row.$field, params);)+
                    },
                    differs: table!(@differs $kind $($field)+),
                },)+
            ];
        }
    };

    (@differs IfChanged $($field:ident)+) => {
        |before, row| $(before.$field != row.$field)||+
    };
    (@differs $kind:ident $($field:ident)+) => { |_, _| true };

    (@names $field:ident) => { stringify!($field) };
    (@names $field:ident ($first:ident $(, $more:ident)*)) => {
        concat!(stringify!($first) $(, ", ", stringify!($more))*)
    };
}
pub(crate) use table;

/// A table of decoded rows, as [`table!`] declares it.
pub struct Table {
    /// Name of the table.
    pub name: &'static str,
    /// The columns that each read of a row decodes, in its order: `a, b, c`.
    pub(crate) columns: &'static str,
    /// Its other columns.
    pub(crate) beside: &'static [&'static str],
    /// The columns that name a row in errors.
    pub(crate) key: &'static [&'static str],
    /// The columns of its primary key.
    pub primary: &'static [&'static str],
    /// Decodes all columns, those beside the row's type last.
    pub(crate) decode: fn(&dyn Row) -> Result<(), DbError>,
    /// For an undecodable column, the assignments that repair it. `$fresh` stands for the literal
    /// of a new id. A row with an undecodable column without an entry cannot be repaired.
    pub(crate) repairs: &'static [(&'static str, &'static str)],
    /// What happens to a row that cannot be repaired.
    pub on_undecodable: OnUndecodable,
    pub(crate) statements: Statements,
}

/// What happens to a row that cannot be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUndecodable {
    /// It is removed from its table.
    Moved,
    /// It stays, undecodable, because its absence would be misleading.
    Kept,
}

/// A type that rows of one table are decoded into.
pub trait Decoded: Sized {
    /// The table.
    fn table() -> &'static Table;
    /// Decodes a row; a failure names the column only.
    fn decode(columns: &mut Columns<'_>) -> Result<Self, DbError>;
}

/// A type that is written to rows of one table.
pub trait Stored: Decoded + 'static {
    /// All columns of the type; those of the key first.
    const SECTIONS: &'static [Section<Self>];
}

/// Columns that are written together.
pub struct Section<R> {
    /// When they are written.
    pub written: Written,
    /// Their names: `a, b, c`.
    pub columns: &'static str,
    /// Binds their values.
    pub bind: for<'a> fn(&'a R, &mut Vec<Param<'a>>),
    /// True if they must be written to turn the first row into the second.
    pub differs: fn(&R, &R) -> bool,
}

/// When the columns of a [`Section`] are written, after the insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Never; they select the row.
    Key,
    /// Never.
    Once,
    /// By each update.
    Always,
    /// By an update that changes any of them.
    IfChanged,
    /// By each update, which raises it by one.
    Version,
}

/// The texts of a table's statements, each made at its first use.
pub(crate) struct Statements {
    insert: OnceLock<String>,
    put: OnceLock<String>,
    /// By the `changed` sections that an update writes.
    updates: [OnceLock<String>; UPDATES],
}

/// The number of forms of an update: with and without each of two `changed` sections, and with and
/// without a check of the version.
const UPDATES: usize = 8;
/// The form of an update that checks the version.
const CHECKED: usize = 4;

impl Statements {
    pub(crate) const fn new() -> Self {
        Statements {
            insert: OnceLock::new(),
            put: OnceLock::new(),
            updates: [const { OnceLock::new() }; UPDATES],
        }
    }
}

/// A list of columns without the separator at its end.
pub(crate) const fn trimmed(list: &str) -> &str {
    list.split_at(list.len() - 2).0
}

/// Decodes a row from the `COLUMNS` of its table; a failure names the row, so that it can be
/// quarantined.
pub fn read<R: Decoded>(row: &dyn Row) -> Result<R, DbError> {
    R::decode(&mut Columns::new(row)).map_err(|fault| R::table().unreadable(row, fault))
}

/// As [`read`], from the `COLUMNS` and one further column, the row's list position.
pub fn read_with_seq<R: Decoded>(row: &dyn Row) -> Result<(i64, R), DbError> {
    Ok((row.int(width(R::table().columns))?, read(row)?))
}

/// The table has this row; `beside` has the values of the columns that are not in its type.
pub fn insert<'a, R: Stored>(
    tx: &mut dyn Tx,
    row: &'a R,
    beside: impl IntoIterator<Item = Param<'a>>,
) -> Result<(), DbError> {
    let table = R::table();
    let sql = table.statements.insert.get_or_init(|| table.insert_sql());
    execute(tx, sql, &all_values(row, beside))
}

/// As [`insert`]; an earlier row with this key is replaced, but keeps its `insert` columns.
pub fn put<'a, R: Stored>(
    tx: &mut dyn Tx,
    row: &'a R,
    beside: impl IntoIterator<Item = Param<'a>>,
) -> Result<(), DbError> {
    let table = R::table();
    let sql = table.statements.put.get_or_init(|| {
        let always = R::SECTIONS
            .iter()
            .filter(|of| of.written == Written::Always);
        let names = always.flat_map(|of| of.columns.split(", "));
        let set: Vec<String> = names
            .chain(table.beside.iter().copied())
            .map(|name| format!("{name} = excluded.{name}"))
            .collect();
        let (insert, key) = (table.insert_sql(), table.key.join(", "));
        format!(
            "{insert} ON CONFLICT ({key}) DO UPDATE SET {}",
            set.join(", ")
        )
    });
    execute(tx, sql, &all_values(row, beside))
}

/// The row with the key of `row` has its `update` and `changed` columns.
pub fn update<R: Stored>(tx: &mut dyn Tx, row: &R) -> Result<(), DbError> {
    write(tx, None, row).map(drop)
}

/// As [`update`], if the row still has the version of `before`; returns whether it had. Of the
/// `changed` columns, only those that differ from `before` are written.
pub fn update_from<R: Stored>(tx: &mut dyn Tx, before: &R, row: &R) -> Result<bool, DbError> {
    write(tx, Some(before), row)
}

fn write<R: Stored>(tx: &mut dyn Tx, before: Option<&R>, row: &R) -> Result<bool, DbError> {
    let (mut written, mut params, mut form) = (Vec::new(), Vec::new(), 0);
    for of in R::SECTIONS {
        let is_written = match of.written {
            Written::Key | Written::Always => true,
            Written::Once | Written::Version => false,
            Written::IfChanged => {
                let differs = before.is_none_or(|before| (of.differs)(before, row));
                form = form << 1 | usize::from(differs);
                differs
            }
        };
        if is_written {
            (of.bind)(row, &mut params);
            written.push(of);
        }
    }
    let mut sections = R::SECTIONS.iter();
    let version = sections.find(|of| of.written == Written::Version);
    if let Some((version, before)) = version.zip(before) {
        (version.bind)(before, &mut params);
        form |= CHECKED;
    }
    let table = R::table();
    let sql = table.statements.updates[form].get_or_init(|| {
        let names = written.iter().flat_map(|of| of.columns.split(", "));
        let assigned = names
            .zip(1..)
            .map(|(name, place)| format!("{name} = ?{place}"));
        let mut key: Vec<String> = assigned.collect();
        let mut set = key.split_off(written[0].columns.split(", ").count());
        if let Some(version) = version.map(|of| of.columns) {
            set.push(format!("{version} = {version} + 1"));
            if before.is_some() {
                key.push(format!("{version} = ?{}", params.len()));
            }
        }
        let (set, key) = (set.join(", "), key.join(" AND "));
        format!("UPDATE {} SET {set} WHERE {key}", table.name)
    });
    Ok(tx.execute(sql, &params)? == 1)
}

/// The values of all columns, in the order of [`Table::insert_sql`].
fn all_values<'a, R: Stored>(
    row: &'a R,
    beside: impl IntoIterator<Item = Param<'a>>,
) -> Vec<Param<'a>> {
    let mut values = Vec::with_capacity(width(R::table().columns) + 4);
    for of in R::SECTIONS {
        (of.bind)(row, &mut values);
    }
    values.extend(beside);
    values
}

impl Table {
    /// All columns, in the order of [`Table::decode`].
    pub(crate) fn all_columns(&self) -> Vec<&'static str> {
        let read = self.columns.split(", ");
        read.chain(self.beside.iter().copied()).collect()
    }

    /// The columns of `COLUMNS`, each after the name of the table, for a join.
    pub(crate) fn qualified(&self) -> String {
        let columns = self.columns.split(", ");
        let columns: Vec<String> = columns
            .map(|name| format!("{}.{name}", self.name))
            .collect();
        columns.join(", ")
    }

    fn insert_sql(&self) -> String {
        let columns = self.all_columns();
        let places: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
        let (columns, places) = (columns.join(", "), places.join(", "));
        format!("INSERT INTO {} ({columns}) VALUES ({places})", self.name)
    }

    /// For a row that does not decode, an error that names it by its key; other errors unchanged.
    fn unreadable(&self, row: &dyn Row, fault: DbError) -> DbError {
        let key = self.key.iter().filter_map(|name| {
            let at = self
                .columns
                .split(", ")
                .position(|column| column == *name)?;
            Some((*name, at))
        });
        unreadable(row, self.name, key, fault)
    }
}

/// For a value that does not decode, an error that names its row by the table and the values of
/// its `key` columns (name and index in the result); other errors unchanged.
pub(crate) fn unreadable(
    row: &dyn Row,
    table: &'static str,
    key: impl IntoIterator<Item = (&'static str, usize)>,
    fault: DbError,
) -> DbError {
    if !matches!(
        fault.kind,
        DbErrorKind::Column(_) | DbErrorKind::Undecodable
    ) {
        return fault;
    }
    let key = key.into_iter().map(|(name, at)| Ok((name, row.raw(at)?)));
    match key.collect() {
        Ok(key) => DbError::unreadable(BadRow {
            table,
            key,
            why: fault.message,
        }),
        Err(fault) => fault,
    }
}
