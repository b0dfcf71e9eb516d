//! Reads the rows of a table whose file is damaged: from both ends up to the damage, then by
//! asking for keys in between, so that a page that cannot be read costs its own rows only.

use std::collections::VecDeque;

use super::tx::{DbError, Param, Raw, Row, Tx};

/// So many times in a row a table may be asked in vain for keys that it should have, or for
/// keys that lie between two others (the largest gaps first), before the rest is given up.
const HINTS_IN_VAIN: usize = 20_000;
const PROBES_IN_VAIN: usize = 300;

/// A table as it is read: its name, all of its columns, and those of its primary key.
pub struct Source<'a> {
    /// Its name.
    pub table: &'a str,
    /// Every column that is read.
    pub columns: &'a [String],
    /// The primary key, in its order.
    pub key: &'a [String],
}

/// Takes a row: its columns, in the order of the source's.
pub type Take<'a> = dyn FnMut(Vec<Raw>) -> Result<(), DbError> + 'a;

type Key = Vec<Raw>;

/// A part of the table that was not read yet, between two keys; `None`: an end of the table.
struct Gap {
    after: Option<Key>,
    before: Option<Key>,
}

/// Reads every row that can be read and gives it to `take`, each once. `hints` are keys that
/// rows may have. Whether all of the table was read.
pub fn scan(
    db: &mut dyn Tx,
    source: &Source<'_>,
    hints: &mut dyn FnMut() -> Vec<Key>,
    take: &mut Take<'_>,
) -> Result<bool, DbError> {
    let whole = Gap {
        after: None,
        before: None,
    };
    let Some(gap) = narrow(db, source, whole, take)? else {
        return Ok(true);
    };
    let mut gaps = VecDeque::from([gap]);
    let mut in_vain = 0;
    for hint in hints() {
        if in_vain < HINTS_IN_VAIN {
            count(&mut in_vain, split_at(db, source, &mut gaps, &hint, take)?);
        }
    }
    in_vain = 0;
    while in_vain < PROBES_IN_VAIN {
        let Some(gap) = gaps.pop_front() else { break };
        let Some(middle) = middle(&gap) else { continue };
        gaps.push_front(gap);
        count(
            &mut in_vain,
            split_at(db, source, &mut gaps, &middle, take)?,
        );
    }
    Ok(false)
}

/// Counts what was in vain since something was found.
fn count(in_vain: &mut usize, found: bool) {
    *in_vain = if found { 0 } else { *in_vain + 1 };
}

/// Reads a part from both of its ends; what is left of it.
fn narrow(
    db: &mut dyn Tx,
    source: &Source<'_>,
    mut gap: Gap,
    take: &mut Take<'_>,
) -> Result<Option<Gap>, DbError> {
    let (last, done) = read(db, source, &gap, false, take)?;
    if done {
        return Ok(None);
    }
    gap.after = last.or(gap.after);
    let (last, done) = read(db, source, &gap, true, take)?;
    gap.before = last.or(gap.before);
    Ok((!done).then_some(gap))
}

/// Asks for `key` and what lies around it, in the gap that it falls into; whether a row was
/// found, or nobody had to ask.
fn split_at(
    db: &mut dyn Tx,
    source: &Source<'_>,
    gaps: &mut VecDeque<Gap>,
    key: &Key,
    take: &mut Take<'_>,
) -> Result<bool, DbError> {
    let falls_into = |gap: &Gap| {
        gap.after.as_ref().is_none_or(|after| after < key)
            && gap.before.as_ref().is_none_or(|before| key < before)
    };
    let Some(at) = gaps.iter().position(falls_into) else {
        return Ok(true);
    };
    let Some(gap) = gaps.remove(at) else {
        return Ok(true);
    };
    // The row at the key itself belongs to neither side.
    let here = Gap {
        after: Some(key.clone()),
        before: Some(key.clone()),
    };
    let (row, _) = read(db, source, &here, false, take)?;
    let mut found = row.is_some();
    let mut below = Gap {
        after: gap.after,
        before: Some(key.clone()),
    };
    let mut above = Gap {
        after: Some(key.clone()),
        before: gap.before,
    };
    // From the key away only: the far ends are known to be damaged.
    let (last, done) = read(db, source, &below, true, take)?;
    found |= last.is_some() || done;
    below.before = last.or(below.before);
    if !done {
        gaps.push_back(below);
    }
    let (last, done) = read(db, source, &above, false, take)?;
    found |= last.is_some() || done;
    above.after = last.or(above.after);
    if !done {
        gaps.push_back(above);
    }
    Ok(found)
}

/// Reads a part from one end on, until it ends or an error comes; the last key that was read,
/// and whether the part was read to its end. A part whose bounds are the same is that one row.
fn read(
    db: &mut dyn Tx,
    source: &Source<'_>,
    gap: &Gap,
    downwards: bool,
    take: &mut Take<'_>,
) -> Result<(Option<Key>, bool), DbError> {
    let tuple = |first: usize| {
        let marks = (first..first + source.key.len()).map(|at| format!("?{at}"));
        marks.collect::<Vec<_>>().join(", ")
    };
    let names = source.key.join(", ");
    let mut clauses = Vec::new();
    let mut params: Vec<Param<'_>> = Vec::new();
    let one = gap.after.is_some() && gap.after == gap.before;
    if let Some(key) = &gap.after {
        let compare = if one { "=" } else { ">" };
        clauses.push(format!("({names}) {compare} ({})", tuple(1)));
        params.extend(key.iter().map(Param::Raw));
    }
    if let (Some(key), false) = (&gap.before, one) {
        clauses.push(format!("({names}) < ({})", tuple(params.len() + 1)));
        params.extend(key.iter().map(Param::Raw));
    }
    let order: Vec<String> = source
        .key
        .iter()
        .map(|name| format!("{name} {}", if downwards { "DESC" } else { "ASC" }))
        .collect();
    let clause = match clauses.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", clauses.join(" AND ")),
    };
    let sql = format!(
        "SELECT {} FROM {} {clause} ORDER BY {}",
        source.columns.join(", "),
        source.table,
        order.join(", ")
    );
    let places: Vec<usize> = source
        .key
        .iter()
        .filter_map(|name| source.columns.iter().position(|column| column == name))
        .collect();
    let mut last: Option<Key> = None;
    let mut refused = None;
    let mut astray = false;
    let asked = db.query(&sql, &params, &mut |row: &dyn Row| {
        let values = (0..source.columns.len()).map(|at| row.raw(at));
        let values: Vec<Raw> = values.collect::<Result<_, _>>()?;
        let key: Key = places.iter().map(|at| values[*at].clone()).collect();
        // A damaged tree may lead anywhere; only what goes on in its order is believed.
        let goes_on = match (&last, downwards) {
            (None, _) => true,
            (Some(last), false) => *last < key,
            (Some(last), true) => key < *last,
        };
        let inside = one
            || (gap.after.as_ref().is_none_or(|after| *after < key)
                && gap.before.as_ref().is_none_or(|before| key < *before));
        if !goes_on || !inside {
            astray = true;
            return Err(DbError::undecodable(0, "a key out of order"));
        }
        last = Some(key);
        if let Err(fault) = take(values) {
            let told = fault.clone();
            refused = Some(fault);
            return Err(told);
        }
        Ok(())
    });
    match (refused, asked) {
        (Some(fault), _) => Err(fault),
        (None, Ok(())) => Ok((last, true)),
        // Whatever the engine says about a damaged file: the part ends here.
        (None, Err(_)) => Ok((last, false)),
    }
}

/// A key between the ends of a gap; `None`: there is none, or nobody knows where to look.
fn middle(gap: &Gap) -> Option<Key> {
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
        // Any value of the columns behind it will do.
        let rest = after.or(before)?;
        key.extend(rest[at + 1..].iter().map(least));
        return Some(key);
    }
    None
}

/// The least value of the kind of `value`.
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
        // Numbers begin at 1; where they end, the counter's table says as a hint.
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

/// A string of bytes between two, by the sixteen that follow what both have in common.
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
    fn what_lies_between_two_keys_is_larger_than_one_and_smaller_than_the_other() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        for (low, high) in [("a", "c"), ("", "a"), ("abc", "abd"), ("a", "ab")] {
            let (low, high) = (bytes(low), bytes(high));
            let found = half_bytes(&low, &high).unwrap();
            assert!(low < found && found < high, "{low:?} {found:?} {high:?}");
        }
        assert_eq!(half(3, 5), Some(4));
        assert_eq!(half(3, 4), None);
        assert_eq!(half(i64::MIN, i64::MAX), Some(-1));
    }
}
