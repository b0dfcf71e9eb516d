//! How the fields of rows are stored: values in one column each, and structs in a column for each
//! of their fields.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::kernel::delegation::{DelegationMode, Stream};
use crate::kernel::event::EventKind;
use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, MemoryId, MessageId, NodeId, QuestionId, RunId, SessionId,
    SessionKey, StepId, TokenId,
};
use crate::kernel::memory::MemorySource;
use crate::kernel::node::{Machine, Offer, OfferLimit};
use crate::kernel::policy::approval::{ApprovalState, Choice, Remember};
use crate::kernel::policy::overlay::EnvName;
use crate::kernel::question::QuestionState;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::step::{self, ModelUsage, StepKind, StepState, WaitKind};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::run::usage::Verdict;
use crate::kernel::run::{AnnouncePolicy, Lane, OnUncertain, RunOrigin, Usage};
use crate::kernel::scope::ScopeSet;
use crate::kernel::secret::Reference;
use crate::kernel::session::blocks::Blocks;
use crate::kernel::session::message::{self, Block, MessageKind, Role};
use crate::kernel::session::raw_metadata::RawMetadata;
use crate::kernel::session::stored_content::StoredContent;
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{OpenEvents, Selection};
use crate::store::tx::{DbError, Param, Row};

/// A value that is stored in one column.
pub trait Column: Sized {
    /// Decodes the column with this index; `None` if it is NULL.
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError>;
    /// The value to bind.
    fn param(&self) -> Param<'_>;
}

/// A field of a row, in one column or in several. An `Option` is NULL where there is no value; one
/// of several columns is `None` if its first column is NULL.
pub trait Field: Sized {
    /// Decodes the next columns.
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError>;
    /// Binds the values of its columns.
    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>);
}

/// The columns of a row, taken one after the other.
pub struct Columns<'a> {
    row: &'a dyn Row,
    next: usize,
}

impl<'a> Columns<'a> {
    /// All columns of the row.
    pub fn new(row: &'a dyn Row) -> Self {
        Columns { row, next: 0 }
    }

    /// The next field.
    pub fn take<T: Field>(&mut self) -> Result<T, DbError> {
        T::take(self)
    }

    /// The next field, decoded with the text of the column after it.
    pub fn take_two<T>(
        &mut self,
        decode: impl Fn(&str, Option<&str>) -> Option<T>,
    ) -> Result<T, DbError> {
        let at = self.skip(2);
        let (first, second) = (self.row.text(at)?, self.row.opt_text(at + 1)?);
        decode(first, second).ok_or_else(|| DbError::undecodable(at, format!("{first:?}")))
    }

    /// True if the next column is NULL; then the next `width` columns are skipped.
    pub fn skip_null(&mut self, width: usize) -> Result<bool, DbError> {
        let is_null = self.row.is_null(self.next)?;
        if is_null {
            self.skip(width);
        }
        Ok(is_null)
    }

    /// The index of the next column; the one after `width` columns is the next then.
    fn skip(&mut self, width: usize) -> usize {
        self.next += width;
        self.next - width
    }
}

/// Decodes the fields of a query that lists its columns itself.
pub fn values<T: Field>(row: &dyn Row) -> Result<T, DbError> {
    T::take(&mut Columns::new(row))
}

/// As [`values`], followed by the `key` columns of the row's table, which name the row in errors.
pub fn keyed<T: Field>(
    table: &'static str,
    key: &'static [&'static str],
) -> impl Fn(&dyn Row) -> Result<T, DbError> {
    move |row| {
        let mut columns = Columns::new(row);
        T::take(&mut columns).map_err(|fault| {
            let first = row.names().len() - key.len();
            super::table::unreadable(row, table, key.iter().copied().zip(first..), fault)
        })
    }
}

impl<T: Column> Field for T {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        let at = columns.skip(1);
        T::read(columns.row, at)?.ok_or_else(|| DbError::undecodable(at, "NULL"))
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        params.push(self.param());
    }
}

impl<T: Column> Field for Option<T> {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        let at = columns.skip(1);
        T::read(columns.row, at)
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        params.push(self.as_ref().map_or(Param::Null, T::param));
    }
}

/// Stores tuples and structs in a column for each of their fields. With `optional`, the struct may
/// be missing: then each column is NULL, or has the value after `or`.
macro_rules! columns_of {
    (($($part:ident $name:ident),+)) => {
        impl<$($part: Field),+> Field for ($($part,)+) {
            fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
                Ok(($(columns.take::<$part>()?,)+))
            }

            fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
                let ($($name,)+) = self;
                $($name.bind(params);)+
            }
        }
    };
    ($type:ty { $($field:ident),+ }) => {
        impl $crate::store::tables::columns::Field for $type {
            fn take(
                columns: &mut $crate::store::tables::columns::Columns<'_>,
            ) -> Result<Self, $crate::store::tx::DbError> {
                Ok(Self { $($field: columns.take()?,)+ })
            }

            fn bind<'a>(&'a self, params: &mut Vec<$crate::store::tx::Param<'a>>) {
                $($crate::store::tables::columns::Field::bind(&self.$field, params);)+
            }
        }
    };
    (optional $type:ident { $($field:ident $(or $missing:literal)?),+ }) => {
        impl $crate::store::tables::columns::Field for Option<$type> {
            fn take(
                columns: &mut $crate::store::tables::columns::Columns<'_>,
            ) -> Result<Self, $crate::store::tx::DbError> {
                if columns.skip_null([$(stringify!($field)),+].len())? {
                    return Ok(None);
                }
                Ok(Some($type { $($field: columns.take()?,)+ }))
            }

            fn bind<'a>(&'a self, params: &mut Vec<$crate::store::tx::Param<'a>>) {
                use $crate::store::tables::columns::{Field, columns_of};
                match self {
                    Some(value) => { $(Field::bind(&value.$field, params);)+ }
                    None => params.extend([$(columns_of!(@missing $($missing)?)),+]),
                }
            }
        }
    };
    (@missing) => { $crate::store::tx::Param::Null };
    (@missing $missing:literal) => { $crate::store::tx::Param::from($missing) };
}
pub(crate) use columns_of;

columns_of!((A a, B b));
columns_of!((A a, B b, C c));
columns_of!((A a, B b, C c, D d));
columns_of!(Usage {
    model_calls,
    input_tokens,
    output_tokens,
    cost_micros
});

impl<A: Column, B: Column> Field for Option<(A, B)> {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        if columns.skip_null(2)? {
            return Ok(None);
        }
        columns.take::<(A, B)>().map(Some)
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        match self {
            Some((first, second)) => params.extend([first.param(), second.param()]),
            None => params.extend([Param::Null, Param::Null]),
        }
    }
}

/// Integers, with the fault of one that is out of range.
macro_rules! integers {
    ($($type:ty: $fault:literal, $to_int:expr;)+) => {
        $(impl Column for $type {
            fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
                let found = row.opt_int(at)?.map(<$type>::try_from).transpose();
                found.map_err(|_| DbError::undecodable(at, $fault))
            }

            fn param(&self) -> Param<'_> {
                Param::Int($to_int(*self))
            }
        })+
    };
}
integers! {
    i64: "a number out of range", i64::from;
    u32: "a count out of range", i64::from;
    u64: "a negative amount", to_int;
}

impl Column for bool {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        Ok(row.opt_int(at)?.map(|value| value != 0))
    }

    fn param(&self) -> Param<'_> {
        (*self).into()
    }
}

impl Column for Timestamp {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        Ok(row.opt_int(at)?.map(Timestamp))
    }

    fn param(&self) -> Param<'_> {
        self.0.into()
    }
}

impl Column for String {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        Ok(row.opt_text(at)?.map(str::to_owned))
    }

    fn param(&self) -> Param<'_> {
        self.into()
    }
}

impl Column for Vec<u8> {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        Ok(row.opt_bytes(at)?.map(<[u8]>::to_vec))
    }

    fn param(&self) -> Param<'_> {
        Param::Bytes(self)
    }
}

impl Column for Uuid {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        let found = row.opt_bytes(at)?.map(Uuid::from_slice).transpose();
        found.map_err(|_| DbError::undecodable(at, "bytes that are not an id"))
    }

    fn param(&self) -> Param<'_> {
        self.into()
    }
}

macro_rules! ids {
    ($($type:ident),+) => {
        $(impl Column for $type {
            fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
                Ok(Uuid::read(row, at)?.map($type))
            }

            fn param(&self) -> Param<'_> {
                (&self.0).into()
            }
        }

        impl<'a> From<&'a $type> for Param<'a> {
            fn from(id: &'a $type) -> Self {
                id.param()
            }
        })+
    };
}
ids!(
    RunId, SessionId, StepId, MessageId, AnnounceId, QuestionId, ApprovalId, MemoryId, NodeId,
    TokenId
);

/// Values with a text form, which `parse` decodes and `as_str` returns.
macro_rules! texts {
    ($($type:ty: $parse:expr;)+) => {
        $(impl $crate::store::tables::columns::Column for $type {
            fn read(
                row: &dyn $crate::store::tx::Row,
                at: usize,
            ) -> Result<Option<Self>, $crate::store::tx::DbError> {
                $crate::store::tables::columns::parsed(row, at, $parse)
            }

            fn param(&self) -> $crate::store::tx::Param<'_> {
                self.as_str().into()
            }
        })+
    };
}
pub(crate) use texts;
texts! {
    AgentId: |text| AgentId::parse(text).ok();
    SessionKey: |text| SessionKey::parse(text).ok();
    AnnouncePolicy: AnnouncePolicy::parse;
    ApprovalState: ApprovalState::parse;
    Choice: Choice::parse;
    Cleanup: Cleanup::parse;
    DelegationMode: DelegationMode::parse;
    EventKind: EventKind::parse;
    Lane: Lane::parse;
    MemorySource: MemorySource::parse;
    MessageKind: MessageKind::parse;
    OnUncertain: OnUncertain::parse;
    Owner: Owner::parse;
    QuestionState: QuestionState::parse;
    Remember: Remember::parse;
    Role: Role::parse;
    RunOrigin: RunOrigin::parse;
    SessionMode: SessionMode::parse;
    StepKind: StepKind::parse;
    StepState: StepState::parse;
    Stream: Stream::parse;
    Thinking: Thinking::parse;
    Verdict: Verdict::parse;
    WaitKind: WaitKind::parse;
    message::Origin: message::Origin::parse;
    step::EffectClass: step::EffectClass::parse;
}

/// A text column, decoded by `parse`.
pub(crate) fn parsed<T>(
    row: &dyn Row,
    at: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, DbError> {
    let Some(text) = row.opt_text(at)? else {
        return Ok(None);
    };
    let value = parse(text).ok_or_else(|| DbError::undecodable(at, format!("{text:?}")))?;
    Ok(Some(value))
}

/// JSON; NULL if the list is empty.
impl Field for Vec<EnvName> {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        let at = columns.skip(1);
        let text = columns.row.opt_text(at)?;
        text.map_or(Ok(Vec::new()), serde_json::from_str)
            .map_err(|fault| unexpected_json(at, fault))
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        params.push((!self.is_empty()).then(|| to_json(self)).into());
    }
}

impl Column for Reference {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        parsed(row, at, |text| Reference::parse(text).ok())
    }

    fn param(&self) -> Param<'_> {
        self.to_string().into()
    }
}

impl Column for ScopeSet {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        parsed(row, at, |text| ScopeSet::parse(text).ok())
    }

    fn param(&self) -> Param<'_> {
        self.to_string().into()
    }
}

/// JSON, decoded by the function.
macro_rules! json_columns {
    ($($type:ty: $read:expr;)+) => {
        $(impl Column for $type {
            fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
                let found = row.opt_text(at)?.map($read).transpose();
                found.map_err(|fault| unexpected_json(at, fault))
            }

            fn param(&self) -> Param<'_> {
                to_json(self).into()
            }
        })+
    };
}
json_columns! {
    Value: serde_json::from_str;
    Box<RawValue>: serde_json::from_str;
    RawMetadata: serde_json::from_str;
    Budget: serde_json::from_str;
    ModelUsage: serde_json::from_str;
    Vec<String>: serde_json::from_str;
    Vec<SessionId>: serde_json::from_str;
    BTreeMap<String, String>: serde_json::from_str;
    StoredContent: StoredContent::read;
    Machine: serde_json::from_str;
    Offer: serde_json::from_str;
    OfferLimit: serde_json::from_str;
    Selection: serde_json::from_str;
    OpenEvents: serde_json::from_str;
}

impl Column for Blocks {
    fn read(row: &dyn Row, at: usize) -> Result<Option<Self>, DbError> {
        let found = row.opt_text(at)?.map(Blocks::stored).transpose();
        found.map_err(|fault| unexpected_json(at, fault))
    }

    fn param(&self) -> Param<'_> {
        to_json::<[Block]>(self).into()
    }
}

fn unexpected_json(at: usize, fault: serde_json::Error) -> DbError {
    DbError::undecodable(at, format!("JSON of an unexpected form: {fault}"))
}

/// The index of `name` in a list of columns, counted from 0; an unknown name does not compile.
pub const fn place(columns: &str, name: &str) -> usize {
    let (list, name) = (columns.as_bytes(), name.as_bytes());
    let (mut at, mut column) = (0, 0);
    while at < list.len() {
        let mut same = 0;
        while same < name.len() && at + same < list.len() && list[at + same] == name[same] {
            same += 1;
        }
        let ends = at + same == list.len() || list[at + same] == b',';
        if same == name.len() && ends {
            return column;
        }
        while at < list.len() && list[at] != b',' {
            at += 1;
        }
        // Skip the comma and the space.
        at += 2;
        column += 1;
    }
    panic!("no such column");
}

/// The number of columns in a list: the index of a query's first further column.
pub const fn width(columns: &str) -> usize {
    let list = columns.as_bytes();
    let (mut at, mut width) = (0, 1);
    while at < list.len() {
        if list[at] == b',' {
            width += 1;
        }
        at += 1;
    }
    width
}

/// An amount as a database integer; too large ones become `i64::MAX`.
pub fn to_int(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// A value as JSON text. JSON escapes U+0000, which a text column must not contain.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> String {
    // These types contain only strings, numbers, lists and maps with text keys.
    serde_json::to_string(value).expect("plain data has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_its_whole_name() {
        let list = "id, id_of, of";
        assert_eq!(
            ["id", "id_of", "of"].map(|name| place(list, name)),
            [0, 1, 2]
        );
        assert_eq!(width(list), 3);
        for none in ["i", "d", "id_", "o", ""] {
            assert!(
                std::panic::catch_unwind(|| place(list, none)).is_err(),
                "{none}"
            );
        }
    }
}
