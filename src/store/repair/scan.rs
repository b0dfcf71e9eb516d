//! Reads the rows of a table in a damaged file: from both ends up to the damage, then by probing
//! for keys in between, so that an unreadable page costs only its own rows.

use std::collections::{BTreeSet, VecDeque};

use crate::store::tx::{DbError, Param, Raw, Row, Tx};

/// Limits for consecutive misses before the rest of a table is given up: for keys that it should
/// have, and for keys between two known ones (largest gaps first).
const HINTS_IN_VAIN: usize = 20_000;
const PROBES_IN_VAIN: usize = 300;
/// After this many consecutive rows that were read before, a scan has met the known part.
const MOST_AGAIN: usize = 500;

/// A table to read.
pub struct ScannedTable<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// All columns that are read.
    pub columns: &'a [String],
    /// The columns of the primary key, in order.
    pub key: &'a [String],
}

/// Receives a row: its values, in the order of [`Source::columns`].
pub type Take<'a> = dyn FnMut(Vec<Raw>) -> Result<(), DbError> + 'a;

type ScanKey = Vec<Raw>;

/// The state of a scan.
struct TableScan<'a> {
    source: &'a ScannedTable<'a>,
    take: &'a mut Take<'a>,
    /// Keys of rows that were taken.
    seen: BTreeSet<ScanKey>,
    /// A row was found out of order, so the end of a part that the engine reports may not be
    /// its real end.
    disorder: bool,
}

/// An unread part of the table between two keys; `None` is an end of the table.
struct Gap {
    after: Option<ScanKey>,
    before: Option<ScanKey>,
}

impl Gap {
    /// True if it is the single row with a known key.
    fn is_one(&self) -> bool {
        self.after.is_some() && self.after == self.before
    }

    /// True if the key is between the ends.
    fn holds(&self, key: &ScanKey) -> bool {
        self.after.as_ref().is_none_or(|after| after < key)
            && self.before.as_ref().is_none_or(|before| key < before)
    }
}

/// Passes every readable row to `take`, each key once. `hints` are keys that rows may have.
/// Returns whether the whole table was read.
pub fn scan<'a>(
    db: &mut dyn Tx,
    source: &'a ScannedTable<'a>,
    hints: impl IntoIterator<Item = Vec<Raw>>,
    take: &'a mut Take<'a>,
) -> Result<bool, DbError> {
    let mut scan = TableScan {
        source,
        take,
        seen: BTreeSet::new(),
        disorder: false,
    };
    let mut whole = Gap {
        after: None,
        before: None,
    };
    let (last, done) = scan.read(db, &whole, false)?;
    if done {
        return Ok(true);
    }
    let (first, _) = scan.read(db, &whole, true)?;
    (whole.after, whole.before) = (last, first);
    let mut gaps = VecDeque::from([whole]);
    let mut in_vain = 0;
    for hint in hints {
        if in_vain < HINTS_IN_VAIN {
            count(&mut in_vain, scan.split_at(db, &mut gaps, &hint)?);
        }
    }
    in_vain = 0;
    while in_vain < PROBES_IN_VAIN {
        let Some(gap) = gaps.pop_front() else { break };
        let Some(middle) = middle(&gap) else { continue };
        gaps.push_front(gap);
        count(&mut in_vain, scan.split_at(db, &mut gaps, &middle)?);
    }
    Ok(false)
}

/// Counts consecutive misses; a hit resets the count.
fn count(in_vain: &mut usize, found: bool) {
    *in_vain = if found { 0 } else { *in_vain + 1 };
}

impl TableScan<'_> {
    /// Probes `key` and its neighbours in the gap that contains it. Returns whether a row was
    /// found, or nothing was left to read.
    fn split_at(
        &mut self,
        db: &mut dyn Tx,
        gaps: &mut VecDeque<Gap>,
        key: &ScanKey,
    ) -> Result<bool, DbError> {
        let Some(at) = gaps.iter().position(|gap| gap.holds(key)) else {
            return Ok(true);
        };
        let Some(gap) = gaps.remove(at) else {
            return Ok(true);
        };
        let before = self.seen.len();
        // The row at the key itself is on neither side.
        let here = Gap {
            after: Some(key.clone()),
            before: Some(key.clone()),
        };
        self.read(db, &here, false)?;
        let mut below = Gap {
            after: gap.after,
            before: Some(key.clone()),
        };
        let mut above = Gap {
            after: Some(key.clone()),
            before: gap.before,
        };
        // Only away from the key: the far ends are known to be damaged.
        let (last, below_done) = self.read(db, &below, true)?;
        below.before = last.or(below.before);
        if !below_done {
            gaps.push_back(below);
        }
        let (last, above_done) = self.read(db, &above, false)?;
        above.after = last.or(above.after);
        if !above_done {
            gaps.push_back(above);
        }
        Ok(self.seen.len() > before || (below_done && above_done))
    }

    /// Reads from one end of a part until an error or the known part. Returns the last key read in
    /// order, and whether no error occurred. The other end is not used as a bound: a damaged page
    /// may contain any key, and the engine would take it for the end. A part with equal bounds is
    /// that one row.
    fn read(
        &mut self,
        db: &mut dyn Tx,
        gap: &Gap,
        downwards: bool,
    ) -> Result<(Option<ScanKey>, bool), DbError> {
        let (sql, params) = self.source.question(gap, downwards);
        let places = self.source.places();
        let mut last: Option<ScanKey> = None;
        let mut refused = None;
        let (mut again, mut met) = (0, false);
        let asked = db.query(&sql, &params, &mut |row: &dyn Row| {
            let values = (0..self.source.columns.len()).map(|at| row.raw(at));
            let values: Vec<Raw> = values.collect::<Result<_, _>>()?;
            let key: ScanKey = places.iter().map(|at| values[*at].clone()).collect();
            let goes_on = match (&last, downwards) {
                (None, _) => true,
                (Some(last), false) => *last < key,
                (Some(last), true) => key < *last,
            };
            self.disorder |= !goes_on;
            if goes_on && (gap.is_one() || gap.holds(&key)) {
                last = Some(key.clone());
            }
            if !self.seen.insert(key) {
                // A damaged tree may also lead in a circle.
                again += 1;
                met = again > MOST_AGAIN;
                return match met {
                    true => Err(DbError::undecodable(0, "what is known")),
                    false => Ok(()),
                };
            }
            again = 0;
            (self.take)(values).inspect_err(|fault| {
                refused = Some(fault.clone());
            })
        });
        match (refused, asked) {
            (Some(fault), _) => Err(fault),
            (None, Ok(())) => Ok((last, !self.disorder)),
            (None, Err(_)) if met => Ok((last, !self.disorder)),
            // Any error about a damaged file ends the part here.
            (None, Err(_)) => Ok((last, false)),
        }
    }
}

impl ScannedTable<'_> {
    /// The indexes of the key columns among all columns.
    fn places(&self) -> Vec<usize> {
        let place = |name| self.columns.iter().position(|column| column == name);
        self.key.iter().filter_map(place).collect()
    }

    /// The statement that reads a part from one end on, and its parameters.
    fn question<'g>(&self, gap: &'g Gap, downwards: bool) -> (String, Vec<Param<'g>>) {
        let tuple = |first: usize| {
            let marks = (first..first + self.key.len()).map(|at| format!("?{at}"));
            marks.collect::<Vec<_>>().join(", ")
        };
        let names = self.key.join(", ");
        let mut clauses = Vec::new();
        let mut params: Vec<Param<'_>> = Vec::new();
        let (from, compare) = match (gap.is_one(), downwards) {
            (true, _) => (&gap.after, "="),
            (false, false) => (&gap.after, ">"),
            (false, true) => (&gap.before, "<"),
        };
        if let Some(key) = from {
            clauses.push(format!("({names}) {compare} ({})", tuple(1)));
            params.extend(key.iter().map(Param::Raw));
        }
        let clause = match clauses.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", clauses.join(" AND ")),
        };
        let order: Vec<String> = self
            .key
            .iter()
            .map(|name| format!("{name} {}", if downwards { "DESC" } else { "ASC" }))
            .collect();
        let sql = format!(
            "SELECT {} FROM {} {clause} ORDER BY {}",
            self.columns.join(", "),
            self.table,
            order.join(", ")
        );
        (sql, params)
    }
}

/// A key between the ends of a gap; `None` if there is none, or it cannot be guessed.
fn middle(gap: &Gap) -> Option<ScanKey> {
    let (after, before) = (gap.after.as_ref(), gap.before.as_ref());
    let width = after.or(before)?.len();
    let mut key = Vec::with_capacity(width);
    for at in 0..width {
        let low = after.map(|key| &key[at]);
        let high = before.map(|key| &key[at]);
        if let (Some(low), Some(high)) = (low, high)
            && low == high
        {
            key.push(low.clone());
            continue;
        }
        key.push(between(low, high)?);
        // Any values of the remaining columns will do.
        let rest = after.or(before)?;
        key.extend(rest[at + 1..].iter().map(least));
        // The ends may be in the wrong order, because a damaged page contains keys of other places.
        // A probe must make the gap smaller, or it would be repeated for ever.
        return gap.holds(&key).then_some(key);
    }
    None
}

/// The smallest value of the same type as `value`.
fn least(value: &Raw) -> Raw {
    match value {
        Raw::Int(_) => Raw::Int(i64::MIN),
        Raw::Text(_) => Raw::Text(Vec::new()),
        Raw::Bytes(_) => Raw::Bytes(Vec::new()),
        other => other.clone(),
    }
}

fn between(low: Option<&Raw>, high: Option<&Raw>) -> Option<Raw> {
    match (low, high) {
        (Some(Raw::Int(low)), Some(Raw::Int(high))) => half(*low, *high).map(Raw::Int),
        // Numbers start at 1; their end is given as a hint by the counter.
        (None, Some(Raw::Int(high))) => half(0.min(*high), *high).map(Raw::Int),
        (Some(Raw::Bytes(low)), Some(Raw::Bytes(high))) => half_bytes(low, high).map(Raw::Bytes),
        (Some(Raw::Text(low)), Some(Raw::Text(high))) => half_bytes(low, high).map(Raw::Text),
        (None, Some(Raw::Bytes(high))) => half_bytes(&[], high).map(Raw::Bytes),
        (None, Some(Raw::Text(high))) => half_bytes(&[], high).map(Raw::Text),
        (Some(Raw::Bytes(low)), None) => half_bytes(low, &[0xff; 17]).map(Raw::Bytes),
        (Some(Raw::Text(low)), None) => half_bytes(low, &[0xff; 17]).map(Raw::Text),
        _ => None,
    }
}

fn half(low: i64, high: i64) -> Option<i64> {
    let middle = i64::midpoint(low, high);
    (low < middle && middle < high).then_some(middle)
}

/// A byte string between two others, computed from the 16 bytes after their common prefix.
fn half_bytes(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    let common = low
        .iter()
        .zip(high)
        .take_while(|(low, high)| low == high)
        .count();
    let number = |bytes: &[u8]| {
        let mut sixteen = [0; 16];
        let rest = &bytes[common..];
        let count = rest.len().min(16);
        sixteen[..count].copy_from_slice(&rest[..count]);
        u128::from_be_bytes(sixteen)
    };
    let (low, from) = (number(low), low);
    let middle = u128::midpoint(low, number(high));
    if middle == low {
        return None;
    }
    let mut bytes = from[..common].to_vec();
    bytes.extend(middle.to_be_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_whose_ends_are_the_wrong_way_round_has_no_middle() {
        let text = |text: &str| vec![Raw::Text(text.as_bytes().to_vec()), Raw::Int(1)];
        let gap = |after: &str, before: &str| Gap {
            after: Some(text(after)),
            before: Some(text(before)),
        };
        let found = middle(&gap("a", "c")).unwrap();
        assert!(gap("a", "c").holds(&found), "{found:?}");
        assert_eq!(middle(&gap("c", "a")), None);
        assert_eq!(middle(&gap("a", "a")), None);
    }

    #[test]
    fn what_lies_between_two_keys_is_larger_than_one_and_smaller_than_the_other() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        for (low, high) in [("a", "c"), ("", "a"), ("abc", "abd"), ("a", "ab")] {
            let (low, high) = (bytes(low), bytes(high));
            let found = half_bytes(&low, &high).unwrap();
            assert!(low < found && found < high, "{low:?} {found:?} {high:?}");
        }
        assert_eq!(half(3, 5), Some(4));
        assert_eq!(half(3, 4), None);
        assert_eq!(half(i64::MIN, i64::MAX), Some(0));
    }
}
