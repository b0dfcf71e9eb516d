//! Decides which calls of an answer are repetitions of one call. Called by `calls` once each call
//! is assembled.

use super::calls::AssembledCall;

/// Where a list of calls is in the stream, relative to the finish reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::provider) enum FinishPhase {
    /// Before the finish reason.
    #[default]
    Before,
    /// In the same event as the finish reason.
    With,
    /// After the finish reason.
    After,
}

/// Why no call is executed if the answer gives its calls in two versions.
pub(super) const TWO_VERSIONS: &str = "the answer gives its calls more than once, and not with \
                                       the same tools and arguments each time, so that none of \
                                       them was executed. Repeat each call once";

/// A call before it gets its id in the conversation.
#[derive(Debug)]
pub(super) struct Settled {
    /// The assembled call.
    pub call: AssembledCall,
    /// The number and phase of the list that began it.
    pub list: (usize, FinishPhase),
    /// The index at which it was begun.
    pub index: Option<u64>,
    /// It came without arguments.
    pub is_blank: bool,
}

impl Settled {
    fn is_like(&self, other: &Settled) -> bool {
        self.call.name == other.call.name && self.call.arguments == other.call.arguments
    }

    /// Whether it repeats `before`. Two equal calls without ids cannot be told apart.
    pub(super) fn repeats(&self, before: &Settled) -> bool {
        let have_ids = !self.call.id.is_empty() && !before.call.id.is_empty();
        let is_elsewhere = self.index != before.index && self.list.1 == FinishPhase::Before;
        let are_two = have_ids && (self.list.0 == before.list.0 || is_elsewhere);
        self.is_like(before) && !are_two
    }

    /// Merges a repetition: takes the arguments and fields that were missing. Returns whether it is
    /// the same call.
    fn take(&mut self, again: Settled) -> bool {
        let is_same_id =
            self.call.id == again.call.id || self.call.id.is_empty() || again.call.id.is_empty();
        let fills = self.is_blank && !again.is_blank && is_same_id;
        let completes = fills && self.call.name == again.call.name;
        if !completes && !self.is_like(&again) {
            return false;
        }
        if fills {
            self.call.arguments = again.call.arguments;
            self.call.written = again.call.written;
            self.call.refused = again.call.refused;
            self.is_blank = false;
        }
        for (name, value) in again.call.extra {
            self.call.extra.entry(name).or_insert(value);
        }
        true
    }
}

/// Number of calls.
pub(super) fn count(calls: &[Option<Settled>]) -> usize {
    calls.iter().flatten().count()
}

/// Whether one list may have calls that the other lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    May,
    MayNot,
}

/// Merges `again` into `own` and returns whether they are the same calls, compared by position, or
/// in another order if all are equal.
pub(super) fn reconciled(
    own: &mut [Option<Settled>],
    again: Vec<Option<Settled>>,
    extra: Extra,
) -> bool {
    let mut own: Vec<Option<&mut Settled>> = own.iter_mut().flatten().map(Some).collect();
    let again: Vec<Settled> = again.into_iter().flatten().collect();
    if extra == Extra::MayNot && own.len() != again.len() {
        return false;
    }
    let mut is_same = true;
    for (place, told) in again.into_iter().enumerate() {
        let is_like =
            |one: &Option<&mut Settled>| one.as_ref().is_some_and(|one| one.is_like(&told));
        let at = match own.get(place).is_some_and(is_like) {
            true => place,
            false => own.iter().position(is_like).unwrap_or(place),
        };
        let same = own.get_mut(at).and_then(Option::take);
        is_same &= same.is_some_and(|same| same.take(told));
    }
    is_same
}
