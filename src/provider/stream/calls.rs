//! Assembles the tool calls of a stream from their pieces. The pieces cannot be trusted: servers
//! give all calls the index of the first, send a call twice, or give it no id or a new id in each
//! piece. These rules, in this order, decide which call a piece belongs to:
//!
//! 1. A known id means the call that it was first used for, at whatever index. A call that is sent
//!    again counts once; if it differs, it is refused.
//! 2. A new id, or a new name, begins a call, unless the piece can only continue an open one.
//! 3. A piece with neither belongs to the call that was begun last at its index.
//!
//! Then the calls are compared. A call equal to an earlier one at its index, or sent with or after
//! the finish reason, is that call again under another id. A list of whole calls beside the pieces
//! (a `message`) is the same answer again: if the two differ, no call is executed.
//!
//! A piece that belongs to no call, or may belong to several, makes all calls of the answer
//! refused: its arguments may be missing in any of them. If the arguments of one call cannot be
//! read, all calls that share its index are refused: they may be parts of one. No call without a
//! name is returned.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::answer::{AnswerContext, Extent};
use super::super::failure::AttemptFailure;
use super::arguments::{self, ParsedArguments};
use super::same::{Extra, FinishPhase, Settled, TWO_VERSIONS, count, reconciled};
use super::surrogates::joined;
use crate::kernel::text::preview;

/// A piece of a tool call as received. Missing fields are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::provider) struct CallPiece<'a> {
    /// The index that the server gives the call.
    pub(in crate::provider) index: Option<u64>,
    /// The id that the server gives the call.
    pub(in crate::provider) id: &'a str,
    /// The tool's name, or a part of it.
    pub(in crate::provider) name: &'a str,
    /// More of the arguments' text.
    pub(in crate::provider) arguments: &'a str,
    /// The server marks this piece as the beginning of a call.
    pub(in crate::provider) begins: bool,
}

impl CallPiece<'_> {
    fn names_a_call(&self) -> bool {
        self.begins || !self.id.is_empty() || !self.name.is_empty()
    }
}

/// A completely assembled tool call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::provider) struct AssembledCall {
    /// Its id, unique in the conversation.
    pub(in crate::provider) id: String,
    /// The tool's name; never empty.
    pub(in crate::provider) name: String,
    /// A JSON object, or a string with the raw text if the call is refused because of its
    /// arguments.
    pub(in crate::provider) arguments: Value,
    /// The arguments as the model wrote them, if that text is valid JSON for them.
    pub(in crate::provider) written: Option<String>,
    /// Why it is not executed; `None` if it is.
    pub(in crate::provider) refused: Option<String>,
    /// Further fields of the call, sent back unchanged.
    pub(in crate::provider) extra: Map<String, Value>,
}

/// The tool calls of an answer while it is streamed.
#[derive(Debug, Default)]
pub(in crate::provider) struct Calls {
    drafts: Vec<CallDraft>,
    /// Lists of whole calls that repeat this answer's calls.
    repetitions: Vec<Calls>,
    /// The current list of pieces: its number and its phase.
    list: (usize, FinishPhase),
    /// Index in `drafts` of the call with each id.
    ids: BTreeMap<String, usize>,
    /// The latest call at each stream index; calls without an index share the key `None`.
    latest_at: BTreeMap<Option<u64>, usize>,
    /// Indexes at which a new call began before another one's arguments were complete.
    contested: BTreeSet<Option<u64>>,
    /// There were arguments that belong to no call.
    has_stray: bool,
    /// Bytes of the names and ids that are kept.
    names: usize,
    /// Bytes of the longest name.
    longest_name: usize,
    /// Number of times a call was begun, repetitions included.
    begun: usize,
}

#[derive(Debug, Default)]
struct CallDraft {
    /// The list in which it was begun.
    list: (usize, FinishPhase),
    /// The index at which it was begun.
    index: Option<u64>,
    /// Another call has the same index.
    shares_index: bool,
    id: String,
    name: String,
    /// Further names or name parts that were sent for it.
    other_names: Vec<String>,
    /// The pieces of its arguments, one list for each time it was begun.
    versions: Vec<Vec<String>>,
    /// The index of each version.
    indexes: Vec<Option<u64>>,
    balance: Balance,
    /// Bytes of the arguments over all versions.
    bytes: usize,
    /// A key that occurs twice in arguments that were sent as an object.
    duplicate_key: Option<String>,
    extra: Map<String, Value>,
}

impl CallDraft {
    fn is_blank(&self) -> bool {
        self.balance.is_blank
    }

    /// The arguments have begun and all their brackets are closed.
    fn is_whole(&self) -> bool {
        !self.balance.is_blank && self.balance.is_closed()
    }

    /// The tools are known and none has this name.
    fn is_unknown(&self, known: &AnswerContext) -> bool {
        !known.tools().is_empty() && !known.tools().contains(&self.name)
    }

    /// Takes a name or a part of one; returns whether it added something.
    fn take_name(&mut self, name: &str) -> bool {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
            return true;
        }
        let is_more = !name.is_empty() && (name != self.name || !self.other_names.is_empty());
        if is_more {
            self.other_names.push(name.to_owned());
        }
        is_more
    }

    /// Joins the name parts if that gives a tool's name. Some servers repeat the whole name so far
    /// in every piece.
    fn join_name(&mut self, known: &AnswerContext) {
        let Some(last) = self.other_names.last() else {
            return;
        };
        let joined = self.name.clone() + &self.other_names.concat();
        let mut before = self.name.as_str();
        let grows = self.other_names.iter().all(|name| {
            let grows = name.starts_with(before);
            before = name;
            grows
        });
        let whole = match grows && known.tools().contains(last) {
            true => last.clone(),
            false => joined,
        };
        if known.tools().contains(&whole) {
            self.name = whole;
            self.other_names.clear();
        }
    }

    fn push(&mut self, piece: &CallPiece<'_>) {
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

/// Whether the JSON so far is open, updated piece by piece: reading all of it with every piece
/// would take quadratic time.
#[derive(Debug)]
struct Balance {
    is_blank: bool,
    depth: i64,
    /// More brackets were closed than opened.
    is_tail: bool,
    in_text: bool,
    is_escaped: bool,
}

impl Default for Balance {
    fn default() -> Self {
        Balance {
            is_blank: true,
            depth: 0,
            is_tail: false,
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
                b'}' | b']' if !self.in_text => {
                    self.depth -= 1;
                    self.is_tail |= self.depth < 0;
                }
                _ => {}
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.depth == 0 && !self.in_text && !self.is_tail
    }
}

impl Calls {
    /// Starts a new list of pieces, from an event in this phase.
    pub(in crate::provider) fn begin_list(&mut self, phase: FinishPhase) {
        self.list = (self.list.0 + 1, phase);
    }

    /// Starts a list of whole calls that repeats the pieces.
    pub(in crate::provider) fn begin_repetition(&mut self) -> &mut Calls {
        self.repetitions.push(Calls::default());
        self.repetition()
    }

    /// The latest such list; created if there is none.
    pub(in crate::provider) fn repetition(&mut self) -> &mut Calls {
        if self.repetitions.is_empty() {
            self.repetitions.push(Calls::default());
        }
        let last = self.repetitions.len() - 1;
        &mut self.repetitions[last]
    }

    /// Takes a piece; returns the index of its call, or `None` if it belongs to none.
    pub(in crate::provider) fn take(&mut self, piece: CallPiece<'_>) -> Option<usize> {
        // A blank name counts as no name.
        let piece = CallPiece {
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
        // Later pieces without a name go to the call that was named last at this index.
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
        if draft.take_name(piece.name) {
            self.names += piece.name.len();
        }
        self.longest_name = self.longest_name.max(piece.name.len());
        let versions = draft.versions.len();
        draft.push(&piece);
        self.begun += draft.versions.len() - versions;
        Some(place)
    }

    /// Adds the calls to `said`, the extent of the rest of the answer.
    pub(in crate::provider) fn extent_with<'a>(&'a self, said: Extent<'a>) -> Extent<'a> {
        let mut said = said;
        for calls in std::iter::once(self).chain(&self.repetitions) {
            said.all += calls.names;
            said.name = said.name.max(calls.longest_name);
            // Repetitions of the calls do not count as further calls.
            said.calls = said.calls.max(calls.drafts.len());
            said.begun += calls.begun;
        }
        let all = std::iter::once(self).chain(&self.repetitions);
        let drafts = all.flat_map(|calls| &calls.drafts);
        drafts.fold(said, |extent, draft| {
            extent.and_call(&draft.name, draft.bytes)
        })
    }

    /// Number of calls so far, including those that may be dropped later.
    pub(in crate::provider) fn count(&self) -> usize {
        self.drafts.len()
    }

    /// The further fields of the call at index `place`.
    pub(in crate::provider) fn extra(&mut self, place: usize) -> &mut Map<String, Value> {
        &mut self.drafts[place].extra
    }

    /// Records that the arguments of the call at index `place` came as an object with this key
    /// twice.
    pub(in crate::provider) fn note_twice(&mut self, place: usize, name: &str) {
        self.drafts[place]
            .duplicate_key
            .get_or_insert_with(|| name.to_owned());
    }

    fn place(&mut self, piece: &CallPiece<'_>) -> Option<usize> {
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

    /// The last call, if the piece has no index and all other calls are complete: then it can
    /// belong to no other.
    fn only_open(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let (_, others) = self.drafts.split_last()?;
        let is_clear = piece.index.is_none() && others.iter().all(CallDraft::is_whole);
        is_clear.then_some(others.len())
    }

    fn begin(&mut self, piece: &CallPiece<'_>) -> usize {
        let place = self.drafts.len();
        let before = self.latest_at.get(&piece.index).copied();
        // In a list of whole calls without indexes, each call has its own place.
        let before = before.filter(|_| !piece.begins || piece.index.is_some());
        if let Some(before) = before {
            self.drafts[before].shares_index = true;
        }
        self.drafts.push(CallDraft {
            list: self.list,
            index: piece.index,
            shares_index: before.is_some(),
            ..CallDraft::default()
        });
        place
    }

    /// Whether a piece with a new id or a name can only continue the call at index `here`.
    fn goes_on(&self, here: usize, piece: &CallPiece<'_>) -> bool {
        let call = &self.drafts[here];
        let has_new_id = !piece.id.is_empty();
        if piece.name.is_empty() {
            // A new id without a name cannot begin a call. The index identifies the call, as long
            // as only one call has it.
            return piece.index.is_some()
                && !call.name.is_empty()
                && !call.shares_index
                && !call.is_whole();
        }
        if call.name.is_empty() {
            return !has_new_id && call.is_blank();
        }
        if call.name != piece.name {
            // More of its name, as long as nothing else has come. The elements of one list are
            // separate calls.
            return !has_new_id && call.is_blank() && call.list.0 != self.list.0;
        }
        let adds_nothing = piece.arguments.trim().is_empty();
        if has_new_id {
            // Arguments cannot begin like this, so it is the same call under a new id.
            let goes_on = !adds_nothing && !piece.arguments.trim_start().starts_with('{');
            return piece.index.is_some() && goes_on && !call.is_blank() && !call.is_whole();
        }
        adds_nothing || !call.is_whole()
    }

    /// The finished calls by index; `None` for repetitions of another call and for empty ones.
    /// `is_cut`: the answer was cut off, possibly in its last call.
    pub(in crate::provider) fn finish(
        mut self,
        known: &mut AnswerContext,
        is_cut: bool,
    ) -> Result<Vec<Option<AssembledCall>>, AttemptFailure> {
        let retellings = std::mem::take(&mut self.repetitions);
        let mut own = self.settle(known, is_cut)?;
        let mut again: Vec<Option<Settled>> = Vec::new();
        let mut differs = false;
        for retelling in retellings {
            let next = retelling.settle(known, is_cut)?;
            // Some servers send the list several times while it grows.
            let (longer, shorter) = match count(&next) <= count(&again) {
                true => (again, next),
                false => (next, again),
            };
            again = longer;
            differs |= !reconciled(&mut again, shorter, Extra::May);
        }
        if count(&own) == 0 {
            own = again;
        } else if count(&again) > 0 {
            differs |= !reconciled(&mut own, again, Extra::MayNot);
        }
        let found = own.iter_mut().flatten().enumerate();
        for (number, settled) in found {
            let call = &mut settled.call;
            if differs {
                call.refused = Some(TWO_VERSIONS.to_owned());
            }
            call.id = known.unique(Some(&call.id), number);
        }
        let calls = own.into_iter().map(|one| one.map(|settled| settled.call));
        Ok(calls.collect())
    }

    fn settle(
        mut self,
        known: &AnswerContext,
        is_cut: bool,
    ) -> Result<Vec<Option<Settled>>, AttemptFailure> {
        let is_stray = |draft: &CallDraft| draft.name.is_empty() && !draft.is_blank();
        let has_stray = self.has_stray || self.drafts.iter().any(is_stray);
        let last = self.drafts.iter().rposition(|draft| !draft.name.is_empty());
        if last.is_none() && has_stray {
            return Err(AttemptFailure::passing(
                "the answer has arguments for a tool and does not say which tool",
            ));
        }
        for draft in &mut self.drafts {
            draft.join_name(known);
        }
        let reads: Vec<ParsedArguments> = self
            .drafts
            .iter_mut()
            .map(|draft| arguments::read(&std::mem::take(&mut draft.versions)))
            .collect();
        let is_broken = reads.iter().any(|read| read.refused.is_some());
        let mixed = self.mixed(&reads, known, is_cut);
        let mut calls: Vec<Option<Settled>> = Vec::new();
        let mut is_late = false;
        let mut indexes = BTreeSet::new();
        let drafts = self.drafts.into_iter().zip(reads).zip(mixed);
        for (place, ((draft, read), is_mixed)) in drafts.enumerate() {
            let doubt = if has_stray {
                Some(CallDoubt::Stray)
            } else if is_mixed {
                Some(CallDoubt::Mixed)
            } else if is_broken {
                Some(CallDoubt::Broken)
            } else {
                (is_cut && Some(place) == last).then_some(CallDoubt::Cut)
            };
            let call = (!draft.name.is_empty()).then(|| draft.settled(read, doubt));
            let call = call.filter(|call| {
                let mut before = calls.iter().flatten();
                !before.any(|one| call.repeats(one))
            });
            // After the end it is not a new call but another version of one.
            is_late |= call.as_ref().is_some_and(|call| {
                call.list.1 == FinishPhase::After && indexes.contains(&call.index)
            });
            indexes.extend(call.as_ref().map(|call| call.index));
            calls.push(call);
        }
        if is_late {
            for settled in calls.iter_mut().flatten() {
                settled.call.refused = Some(TWO_VERSIONS.to_owned());
            }
        }
        Ok(calls)
    }

    /// For each call, whether it may be a part of another one, or another a part of it.
    fn mixed(&self, reads: &[ParsedArguments], known: &AnswerContext, is_cut: bool) -> Vec<bool> {
        let drafts = &self.drafts;
        let last = drafts.len().saturating_sub(1);
        let mut indexes = BTreeSet::new();
        let mut tools = BTreeSet::new();
        for (place, (draft, read)) in drafts.iter().zip(reads).enumerate() {
            let is_broken = read.refused.is_some();
            // The unfinished end of an answer that was cut off is not part of another call.
            let is_end = is_cut && place == last && !draft.balance.is_tail;
            if is_broken && !draft.balance.is_closed() && !is_end {
                tools.insert(draft.name.as_str());
            }
            if is_broken || (draft.is_blank() && draft.is_unknown(known)) {
                indexes.extend(draft.shares_index.then_some(draft.index));
            }
        }
        let is_mixed = |draft: &CallDraft| {
            tools.contains(draft.name.as_str())
                || (draft.shares_index && indexes.contains(&draft.index))
        };
        let mut mixed: Vec<bool> = drafts.iter().map(is_mixed).collect();
        // The parts of one name, each sent as a call of its own.
        let longest = known.tools().iter().map(String::len).max().unwrap_or(0);
        for (place, draft) in drafts.iter().enumerate() {
            let before = drafts[..place].iter().rev();
            let mut name = draft.name.clone();
            for (count, part) in (1..).zip(before) {
                let is_part = part.is_blank() && part.is_unknown(known);
                if !is_part || (count > 1 && name.len() + part.name.len() > longest) {
                    break;
                }
                name.insert_str(0, &part.name);
                // The server gives ids, so a call without one continues the call before it.
                let goes_on = count == 1 && draft.id.is_empty() && !part.id.is_empty();
                if goes_on || known.tools().contains(&name) {
                    mixed[place - count..=place].fill(true);
                }
            }
        }
        mixed
    }
}

/// A defect of the answer that makes this call doubtful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallDoubt {
    /// Some arguments belong to no call.
    Stray,
    /// It may be a part of another call, or another a part of it.
    Mixed,
    /// The arguments of some call cannot be read; they may be mixed up with this call's.
    Broken,
    /// The answer was cut off in or after this call.
    Cut,
}

impl CallDraft {
    fn settled(self, read: ParsedArguments, doubt: Option<CallDoubt>) -> Settled {
        Settled {
            list: self.list,
            index: self.index,
            is_blank: self.is_blank(),
            call: self.finish(read, doubt),
        }
    }

    fn finish(self, read: ParsedArguments, doubt: Option<CallDoubt>) -> AssembledCall {
        let refused = self.refusal(&read, doubt);
        AssembledCall {
            id: joined(&self.id).into_owned(),
            name: joined(&self.name).into_owned(),
            arguments: read.value,
            written: read.written,
            refused,
            extra: self.extra,
        }
    }

    fn refusal(&self, read: &ParsedArguments, doubt: Option<CallDoubt>) -> Option<String> {
        let why = if doubt == Some(CallDoubt::Stray) {
            "the answer has arguments that belong to no call, so none of its calls can be \
             trusted. Repeat the calls, one per answer"
                .to_owned()
        } else if let Some(other) = self.other_names.iter().find(|name| **name != self.name) {
            let (one, other) = (preview(&self.name, 64), preview(other, 64));
            format!("the call was sent under one id for {one} and for {other}. Repeat it once")
        } else if let Some(name) = &self.duplicate_key {
            format!("its arguments contain the key {name:?} twice")
        } else if read.refused.is_some() {
            return read.refused.clone();
        } else if doubt == Some(CallDoubt::Mixed) {
            "it may be a part of another call of the answer. Repeat the calls, one per \
             answer"
                .to_owned()
        } else if self.is_blank() && (self.shares_index || doubt == Some(CallDoubt::Broken)) {
            "its arguments may belong to another call of the answer. Repeat the calls, \
             one per answer"
                .to_owned()
        } else if self.is_blank() && doubt == Some(CallDoubt::Cut) {
            "the answer was truncated before the arguments of this call. Repeat the call".to_owned()
        } else {
            return None;
        };
        Some(why)
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
