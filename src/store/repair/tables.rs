//! How rows of each table are searched, checked and repaired, from the declaration of the table. The
//! quarantine works from this list; a new table of decoded rows needs an entry.

pub use crate::store::tables::table::{OnUndecodable, Table};
use crate::store::tables::{
    agents, approvals, audit, blobs, bundles, dead_letters, environment, events, idempotency,
    invites, memories, messages, nodes, outbox, outputs, questions, remembered, runs, sends,
    servers, session_servers, sessions, skills, steers, steps, tokens, trust, usage, webhooks,
};
use crate::store::tx::{DbError, DbErrorKind, Param, Raw, Tx};

/// Every table of decoded rows.
pub static TABLES: &[&Table] = &[
    &sessions::TABLE,
    &runs::TABLE,
    &messages::TABLE,
    &steps::TABLE,
    &outbox::TABLE,
    &events::TABLE,
    &idempotency::TABLE,
    &blobs::TABLE,
    &steers::TABLE,
    &questions::TABLE,
    &approvals::TABLE,
    &remembered::TABLE,
    &bundles::TABLE,
    &outputs::TABLE,
    &outputs::parts::TABLE,
    &sends::TABLE,
    &agents::TABLE,
    &agents::sets::TABLE,
    &trust::TABLE,
    &servers::TABLE,
    &session_servers::TABLE,
    &environment::TABLE,
    &skills::TABLE,
    &memories::TABLE,
    &nodes::TABLE,
    &invites::TABLE,
    &tokens::TABLE,
    &webhooks::TABLE,
    &dead_letters::TABLE,
    &usage::runs::TABLE,
    &usage::models::TABLE,
    &audit::TABLE,
];

/// The table with that name.
pub fn find(name: &str) -> Option<&'static Table> {
    TABLES.iter().copied().find(|table| table.name == name)
}

/// The primary key values of a row.
pub type RowKey = Vec<Raw>;

impl Table {
    /// The primary keys of the rows that match `clause`.
    pub fn places(
        &self,
        tx: &mut dyn Tx,
        clause: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<RowKey>, DbError> {
        let sql = format!(
            "SELECT {} FROM {} WHERE {clause}",
            self.primary.join(", "),
            self.name
        );
        let mut places = Vec::new();
        tx.query(&sql, params, &mut |row| {
            let place = (0..self.primary.len()).map(|at| row.raw(at));
            places.push(place.collect::<Result<_, _>>()?);
            Ok(())
        })?;
        Ok(places)
    }

    /// Every column of the row at `place`, not decoded; `None` if there is no such row.
    pub fn whole_row(
        &self,
        tx: &mut dyn Tx,
        place: &RowKey,
    ) -> Result<Option<Vec<(String, Raw)>>, DbError> {
        let sql = format!("SELECT * FROM {} WHERE {}", self.name, self.at());
        let mut found = None;
        tx.query(&sql, &params(place), &mut |row| {
            let mut columns = Vec::new();
            for (at, name) in row.names().into_iter().enumerate() {
                columns.push((name, row.raw(at)?));
            }
            found = Some(columns);
            Ok(())
        })?;
        Ok(found)
    }

    /// `Ok` if the row at `place` decodes, else the first column that does not, and why.
    pub fn check(
        &self,
        tx: &mut dyn Tx,
        place: &RowKey,
    ) -> Result<Result<(), (String, String)>, DbError> {
        let columns = self.all_columns();
        let (list, name) = (columns.join(", "), self.name);
        let sql = format!("SELECT {list} FROM {name} WHERE {}", self.at());
        let mut verdict = Ok(());
        tx.query(&sql, &params(place), &mut |row| {
            if let Err(fault) = (self.decode)(row) {
                let column = match fault.kind {
                    DbErrorKind::Column(at) => columns.get(at).copied(),
                    _ => None,
                };
                verdict = Err((column.unwrap_or_default().to_owned(), fault.message));
            }
            Ok(())
        })?;
        Ok(verdict)
    }

    /// The assignments that repair `column`; `None` if it cannot be repaired.
    pub fn repair(&self, column: &str) -> Option<&'static str> {
        let mend = self.repairs.iter().find(|(name, _)| *name == column);
        mend.map(|(_, assignments)| *assignments)
    }

    /// The row at `place` has these assignments.
    pub fn assign(
        &self,
        tx: &mut dyn Tx,
        place: &RowKey,
        assignments: &str,
    ) -> Result<(), DbError> {
        let sql = format!("UPDATE {} SET {assignments} WHERE {}", self.name, self.at());
        tx.execute(&sql, &params(place)).map(drop)
    }

    /// The row at `place` is deleted.
    pub fn remove(&self, tx: &mut dyn Tx, place: &RowKey) -> Result<(), DbError> {
        let sql = format!("DELETE FROM {} WHERE {}", self.name, self.at());
        tx.execute(&sql, &params(place)).map(drop)
    }

    /// The condition that selects the row at a place.
    fn at(&self) -> String {
        let parts = self.primary.iter().enumerate();
        let parts: Vec<String> = parts
            .map(|(at, name)| format!("{name} = ?{}", at + 1))
            .collect();
        parts.join(" AND ")
    }
}

fn params(place: &RowKey) -> Vec<Param<'_>> {
    place.iter().map(Param::Raw).collect()
}
