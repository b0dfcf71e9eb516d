//! The invariant checker: what must hold for the rows at every moment, after every kill, and when
//! everything has ended. Every test that kills a daemon calls [`check`].

mod environment;
mod events;
mod model;
mod promises;
mod rows;
mod tests;
mod transcripts;
mod waiting;

use serde_json::Value;

use crate::harness::{History, Place, StoreRows};

/// When the rows were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The daemon was killed, and nothing has been repaired.
    Killed,
    /// All runs have ended and the daemon has stopped.
    Finished,
}

/// Checks the rows against each other, against the answers that the client got, and against the
/// calls that the model recorded outside the store.
pub(crate) fn check(book: &StoreRows, moment: Moment, history: &History, place: &Place) {
    rows::sessions_are_whole(book);
    rows::runs_are_whole(book);
    rows::announces_are_whole(book);
    rows::nobody_is_forgotten_while_settling(book);
    rows::what_was_cancelled_stays_so(book);
    rows::steps_are_whole(book);
    waiting::who_waits_is_known(book);
    waiting::delegations_are_whole(book);
    waiting::called_ones_are_told_of(book);
    rows::budgets_count_the_tree(book);
    waiting::questions_are_whole(book);
    waiting::approvals_are_whole(book);
    waiting::exchanges_are_whole(book, moment == Moment::Finished);
    environment::environments_are_whole(book, moment == Moment::Finished);
    events::log_is_in_order(book);
    events::data_is_as_described(book);
    events::each_says_what_it_concerns(book);
    events::each_move_is_told_once(book);
    events::agents_are_told_of_in_order(book);
    events::skills_are_told_of_in_order(book);
    transcripts::nothing_is_lost_or_doubled(book);
    promises::accepted_is_kept(book, history);
    // Only the script model records its calls.
    let script = place.script();
    if !script.is_empty() {
        model::answers_are_the_scripts(book, script);
    }
    model::outcomes_stand(book, history);
    if moment == Moment::Finished {
        rows::everything_has_ended(book);
        rows::nothing_was_interrupted(book);
        promises::ends_are_as_told(book, history);
        if !script.is_empty() {
            model::finished_steps_never_ran_again(book, script, history, &place.model_calls());
        }
        model::only_kills_repeat_steps(book, history);
    }
}

/// Two answers about the end of one run are equal, except for the state of the announce.
pub(crate) fn same_end(first: &Value, again: &Value) {
    // A run whose session was deleted has no journal, and so no last step.
    let has_step = first.get("step").is_some() && again.get("step").is_some();
    let told = |answer: &Value| {
        let mut answer = answer.clone();
        if !has_step {
            answer.as_object_mut().unwrap().remove("step");
        }
        answer["announce"].as_object_mut().unwrap().remove("state");
        answer
    };
    assert_eq!(told(first), told(again));
}

/// Checks that `items` has no duplicates; returns them sorted.
fn once<T: Ord + std::fmt::Debug + Clone>(
    what: &str,
    items: impl IntoIterator<Item = T>,
) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort();
    let before = items.len();
    let mut unique = items.clone();
    unique.dedup();
    assert_eq!(unique.len(), before, "{what}: duplicate items: {items:?}");
    items
}

/// Checks that `numbers` are 1, 2, 3 …; returns the last.
fn gap_free(what: &str, numbers: impl IntoIterator<Item = i64>) -> i64 {
    let mut last = 0;
    for number in numbers {
        assert_eq!(number, last + 1, "{what}: a gap or a duplicate");
        last = number;
    }
    last
}
