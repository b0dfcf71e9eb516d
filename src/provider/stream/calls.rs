//! Puts the pieces of a stream's tool calls together. The pieces are not to be trusted: servers
//! count all calls as the first, give a call twice, name it in no piece or give it a new id in
//! each. What a piece belongs to is decided by these rules, in this order:
//!
//! 1. An id that is known is the call that it was given for, under whatever index. A call that
//!    comes again counts once; if it differs, it is refused.
//! 2. A new id, or a new name, begins a call, unless the piece can only go on with an open one.
//! 3. A piece with neither belongs to the call that was begun last at its index.
//!
//! A piece that belongs to no call, or may belong to several, refuses all calls of the answer:
//! its arguments may be missing in each of them. Nothing without a name leaves this file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::answer::{Extent, Known};
use super::super::failure::Failure;
use super::arguments::{self, Arguments};
use super::surrogates::joined;
use crate::kernel::text::preview;

/// A piece of a tool call, as it came. Fields that it does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::provider) struct Piece<'a> {
    /// The place that the server gives the call.
    pub(in crate::provider) index: Option<u64>,
    /// Its id.
    pub(in crate::provider) id: &'a str,
    /// The tool.
    pub(in crate::provider) name: &'a str,
    /// More of the arguments.
    pub(in crate::provider) arguments: &'a str,
    /// The server says that this piece begins a call.
    pub(in crate::provider) begins: bool,
}

impl Piece<'_> {
    fn names_a_call(&self) -> bool {
        self.begins || !self.id.is_empty() || !self.name.is_empty()
    }
}

/// A tool call that is put together.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::provider) struct Call {
    /// Its id, unique in the conversation.
    pub(in crate::provider) id: String,
    /// The tool. Never empty.
    pub(in crate::provider) name: String,
    /// An object; a text where the call is refused for its arguments.
    pub(in crate::provider) arguments: Value,
    /// The arguments as the model wrote them, if these are JSON of them.
    pub(in crate::provider) written: Option<String>,
    /// Why it is not carried out.
    pub(in crate::provider) refused: Option<String>,
    /// Further fields that it came with.
    pub(in crate::provider) extra: Map<String, Value>,
}

/// The tool calls of an answer while it comes.
#[derive(Debug, Default)]
pub(in crate::provider) struct Calls {
    drafts: Vec<Draft>,
    /// The call of each id.
    ids: BTreeMap<String, usize>,
    /// The call that came last at each index; those without one are at one place.
    latest_at: BTreeMap<Option<u64>, usize>,
    /// Indexes at which a call came before another one's arguments were whole.
    contested: BTreeSet<Option<u64>>,
    /// There were arguments that belong to no call.
    has_stray: bool,
    /// Bytes of names and ids that are kept.
    names: usize,
    /// Of the longest name.
    longest_name: usize,
    /// How often a call was begun.
    begun: usize,
}

#[derive(Debug, Default)]
struct Draft {
    /// Another call has its index, too.
    shares_index: bool,
    id: String,
    name: String,
    /// A second name that it was given.
    other_name: Option<String>,
    /// The pieces of its arguments, for each time that it was begun.
    versions: Vec<Vec<String>>,
    /// The index of each version.
    indexes: Vec<Option<u64>>,
    balance: Balance,
    /// Of all its versions.
    bytes: usize,
    /// A key that arguments which came as an object give twice.
    twice: Option<String>,
    extra: Map<String, Value>,
}

impl Draft {
    fn is_blank(&self) -> bool {
        self.balance.is_blank
    }

    /// Nothing is missing in its arguments.
    fn is_whole(&self) -> bool {
        !self.balance.is_blank && self.balance.depth == 0 && !self.balance.in_text
    }

    fn push(&mut self, piece: &Piece<'_>) {
        let known = self.indexes.iter().rposition(|index| *index == piece.index);
        let version = known.filter(|_| !piece.begins).unwrap_or_else(|| {
            self.versions.push(Vec::new());
            self.indexes.push(piece.index);
            self.versions.len() - 1
        });
        if !piece.arguments.is_empty() {
            self.balance.take(piece.arguments);
            self.bytes += piece.arguments.len();
            self.versions[version].push(piece.arguments.to_owned());
        }
    }
}

/// Whether the JSON that has come so far is open, kept up piece by piece: to read all of it with
/// every piece would take the square of its length.
#[derive(Debug)]
struct Balance {
    is_blank: bool,
    depth: i64,
    in_text: bool,
    is_escaped: bool,
}

impl Default for Balance {
    fn default() -> Self {
        Balance {
            is_blank: true,
            depth: 0,
            in_text: false,
            is_escaped: false,
        }
    }
}

impl Balance {
    fn take(&mut self, text: &str) {
        for byte in text.bytes() {
            self.is_blank &= byte.is_ascii_whitespace();
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_text => self.is_escaped = true,
                b'"' => self.in_text = !self.in_text,
                b'{' | b'[' if !self.in_text => self.depth += 1,
                b'}' | b']' if !self.in_text => self.depth -= 1,
                _ => {}
            }
        }
    }
}

impl Calls {
    /// Takes a piece. The place of its call, if it has one.
    pub(in crate::provider) fn take(&mut self, piece: Piece<'_>) -> Option<usize> {
        // A blank name names nothing.
        let piece = Piece {
            name: piece.name.trim(),
            ..piece
        };
        let Some(place) = self.place(&piece) else {
            self.has_stray |= !piece.arguments.trim().is_empty();
            return None;
        };
        if !piece.id.is_empty() && self.ids.insert(piece.id.to_owned(), place).is_none() {
            self.names += piece.id.len();
        }
        // What follows without a name goes where the last call was named.
        if piece.names_a_call() {
            let before = self.latest_at.insert(piece.index, place);
            if before.is_some_and(|before| before != place && !self.drafts[before].is_whole()) {
                self.contested.insert(piece.index);
            }
        }
        let draft = &mut self.drafts[place];
        if draft.id.is_empty() {
            draft.id = piece.id.to_owned();
        }
        if draft.name.is_empty() {
            draft.name = piece.name.to_owned();
            self.names += piece.name.len();
        } else if !piece.name.is_empty() && piece.name != draft.name && draft.other_name.is_none() {
            draft.other_name = Some(piece.name.to_owned());
            self.names += piece.name.len();
        }
        self.longest_name = self.longest_name.max(piece.name.len());
        let versions = draft.versions.len();
        draft.push(&piece);
        self.begun += draft.versions.len() - versions;
        Some(place)
    }

    /// How much has come of an answer of which `said` is beside its calls.
    pub(in crate::provider) fn beside<'a>(&'a self, said: Extent<'a>) -> Extent<'a> {
        let drafts = self.drafts.iter();
        let said = Extent {
            all: said.all + self.names,
            name: self.longest_name,
            calls: self.drafts.len(),
            begun: self.begun,
            ..said
        };
        drafts.fold(said, |extent, draft| {
            extent.and_call(&draft.name, draft.bytes)
        })
    }

    /// How many there are so far, with those that turn out to be none.
    pub(in crate::provider) fn count(&self) -> usize {
        self.drafts.len()
    }

    /// The further fields of the call at `place`.
    pub(in crate::provider) fn extra(&mut self, place: usize) -> &mut Map<String, Value> {
        &mut self.drafts[place].extra
    }

    /// The arguments of the call at `place` came as an object that gives this key twice.
    pub(in crate::provider) fn note_twice(&mut self, place: usize, name: &str) {
        self.drafts[place]
            .twice
            .get_or_insert_with(|| name.to_owned());
    }

    fn place(&mut self, piece: &Piece<'_>) -> Option<usize> {
        if let Some(known) = self.ids.get(piece.id).filter(|_| !piece.id.is_empty()) {
            return Some(*known);
        }
        if piece.begins {
            return Some(self.begin(piece));
        }
        let here = self.latest_at.get(&piece.index).copied();
        let here = here.or_else(|| self.only_open(piece));
        match here {
            Some(here) if piece.names_a_call() && self.goes_on(here, piece) => Some(here),
            _ if piece.names_a_call() => Some(self.begin(piece)),
            Some(here) if !self.contested.contains(&piece.index) => Some(here),
            _ => None,
        }
    }

    /// Where calls have indexes, one without it can only belong to the last call, once all others
    /// are whole.
    fn only_open(&self, piece: &Piece<'_>) -> Option<usize> {
        let (_, others) = self.drafts.split_last()?;
        let is_clear = piece.index.is_none() && others.iter().all(Draft::is_whole);
        is_clear.then_some(others.len())
    }

    fn begin(&mut self, piece: &Piece<'_>) -> usize {
        let place = self.drafts.len();
        let before = self.latest_at.get(&piece.index).copied();
        // In a list of whole calls each has a place of its own.
        let before = before.filter(|_| !piece.begins || piece.index.is_some());
        if let Some(before) = before {
            self.drafts[before].shares_index = true;
        }
        self.drafts.push(Draft {
            shares_index: before.is_some(),
            ..Draft::default()
        });
        place
    }

    /// Can a piece with a new id or a name only go on with the call at `here`?
    fn goes_on(&self, here: usize, piece: &Piece<'_>) -> bool {
        let call = &self.drafts[here];
        let has_new_id = !piece.id.is_empty();
        if piece.name.is_empty() {
            // A new id without a name can begin no call. The index tells whose piece it is, as
            // long as one call alone has it.
            return piece.index.is_some()
                && !call.name.is_empty()
                && !call.shares_index
                && !call.is_whole();
        }
        if call.name.is_empty() {
            return !has_new_id && call.is_blank();
        }
        if call.name != piece.name {
            return false;
        }
        let adds_nothing = piece.arguments.trim().is_empty();
        if has_new_id {
            // No arguments begin like this, so it is the same call under a new id.
            let goes_on = !adds_nothing && !piece.arguments.trim_start().starts_with('{');
            return piece.index.is_some() && goes_on && !call.is_blank() && !call.is_whole();
        }
        adds_nothing || !call.is_whole()
    }

    /// The calls by their places, once the answer is at its end; `None` for those that were the
    /// same as another one, or nothing at all. `is_cut`: the last one may be cut.
    pub(in crate::provider) fn finish(
        mut self,
        known: &mut Known,
        is_cut: bool,
    ) -> Result<Vec<Option<Call>>, Failure> {
        let is_stray = |draft: &Draft| draft.name.is_empty() && !draft.is_blank();
        let has_stray = self.has_stray || self.drafts.iter().any(is_stray);
        let last = self.drafts.iter().rposition(|draft| !draft.name.is_empty());
        if last.is_none() && has_stray {
            return Err(Failure::passing(
                "the answer has arguments for a tool and does not say which tool",
            ));
        }
        let reads: Vec<Arguments> = self
            .drafts
            .iter_mut()
            .map(|draft| arguments::read(&std::mem::take(&mut draft.versions)))
            .collect();
        let is_broken = reads.iter().any(|read| read.refused.is_some());
        let mut calls: Vec<Option<Call>> = Vec::new();
        let mut had_ids: Vec<bool> = Vec::new();
        for (place, (draft, read)) in self.drafts.into_iter().zip(reads).enumerate() {
            let had_id = !draft.id.is_empty();
            let doubt = if has_stray {
                Some(Doubt::Stray)
            } else if is_broken {
                Some(Doubt::Broken)
            } else {
                (is_cut && Some(place) == last).then_some(Doubt::Cut)
            };
            let call = (!draft.name.is_empty()).then(|| draft.finish(read, doubt));
            let call = call.filter(|call| !is_repeat(call, had_id, &calls, &had_ids));
            calls.push(call);
            had_ids.push(had_id);
        }
        let found = calls.iter_mut().flatten().enumerate();
        for (number, call) in found {
            call.id = known.unique(Some(&call.id), number);
        }
        Ok(calls)
    }
}

/// Is it one of `before` again? Two calls without ids cannot be told apart if they are alike.
fn is_repeat(call: &Call, had_id: bool, before: &[Option<Call>], had_ids: &[bool]) -> bool {
    before.iter().zip(had_ids).any(|(one, one_had_id)| {
        one.as_ref().is_some_and(|one| {
            !(had_id && *one_had_id) && one.name == call.name && one.arguments == call.arguments
        })
    })
}

/// What is wrong with an answer beside this call of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// Arguments belong to no call.
    Stray,
    /// The arguments of some call cannot be read: it may have those of another.
    Broken,
    /// The answer was cut off in or after this call.
    Cut,
}

impl Draft {
    fn finish(self, read: Arguments, doubt: Option<Doubt>) -> Call {
        let refused = self.refusal(&read, doubt);
        Call {
            id: joined(&self.id).into_owned(),
            name: joined(&self.name).into_owned(),
            arguments: read.value,
            written: read.written,
            refused,
            extra: self.extra,
        }
    }

    fn refusal(&self, read: &Arguments, doubt: Option<Doubt>) -> Option<String> {
        let why = if doubt == Some(Doubt::Stray) {
            "the answer has arguments that belong to no call, so that no call of it can be \
             trusted. Make the calls again, one in each answer"
                .to_owned()
        } else if let Some(other) = &self.other_name {
            let (one, other) = (preview(&self.name, 64), preview(other, 64));
            format!("the call came under one id for {one} and for {other}. Make it again, once")
        } else if let Some(name) = &self.twice {
            format!("its arguments give the key {name:?} twice")
        } else if read.refused.is_some() {
            return read.refused.clone();
        } else if self.is_blank() && (self.shares_index || doubt == Some(Doubt::Broken)) {
            "its arguments may have come for another call of the answer. Make the calls again, \
             one in each answer"
                .to_owned()
        } else if self.is_blank() && doubt == Some(Doubt::Cut) {
            "the answer was cut off before its arguments. Make the call again".to_owned()
        } else {
            return None;
        };
        Some(why)
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
