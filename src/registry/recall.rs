//! What a model call is given of the long-term memory, and what a context pack points at:
//! looked up before the step is intended and named in it, so that a step that is carried out
//! again is given the same. The drive task asks.

use serde_json::{Value, json};

use super::Inner;
use crate::contract::journal::RunView;
use crate::contract::runner::Next;
use crate::kernel::fault::Fault;
use crate::kernel::memory::{MOST_RECALLED, MOST_REFS, Recalled, asked_words, tokens, within};
use crate::kernel::message::{Message, MessageKind};
use crate::kernel::step::{Intent, StepKind};
use crate::kernel::text::prefix;
use crate::store::memories;

/// So much of what was said is looked through for words, bytes.
const SAID: usize = 8 * 1024;

impl Inner {
    /// What the runner does next by `view`, with what its steps are given of the memory; `told`
    /// is the view without what is only assumed.
    pub(super) fn next_step(&self, view: &RunView, told: &RunView) -> Next {
        let mut next = self.runner.next(view);
        if let Next::Steps(intents) = &mut next {
            for intent in intents {
                // Without its memory a turn goes on all the same.
                if let Err(fault) = self.recall(told, intent) {
                    tracing::warn!(run = %view.run.id, %fault, "the memory could not be read");
                }
            }
        }
        next
    }

    fn recall(&self, view: &RunView, intent: &mut Intent) -> Result<(), Fault> {
        if let Some(pack) = &mut intent.context {
            return self.point_at(view, pack);
        }
        let budget = self.options().memory_budget;
        if intent.kind != StepKind::Model || budget == 0 {
            return Ok(());
        }
        let mut calls = view.steps.iter().rev();
        let before = calls.find(|step| step.kind == StepKind::Model);
        let seen = before.and_then(|step| step.seen_up_to).unwrap_or(0);
        let Some(input) = latest_input(view, seen) else {
            // The turn goes on with what it was given.
            if let Some(recalled) = before.and_then(|step| Recalled::of(step)) {
                recalled.put_into(&mut intent.input);
            }
            return Ok(());
        };
        let run = &view.run;
        let found = self.store.read_now(|tx| {
            let spaces = memories::spaces_of(tx, run)?;
            let mut used = Vec::new();
            for space in spaces.readable() {
                if memories::is_used(tx, &run.org, space)? {
                    used.push(space);
                }
            }
            // Most agents keep nothing: for them no words are looked up either.
            if used.is_empty() {
                return Ok(Vec::new());
            }
            let words = asked_words(prefix(&input.text(), SAID), false);
            memories::search(tx, &run.org, &used, &words, MOST_RECALLED)
        })?;
        let fitting = within(found, budget);
        if !fitting.is_empty() {
            let recalled = Recalled {
                ids: fitting.iter().map(|memory| memory.id).collect(),
                before: input.seq,
                tokens: fitting.iter().map(tokens).sum(),
            };
            recalled.put_into(&mut intent.input);
        }
        Ok(())
    }

    /// The pack points at what the host's own memory has of the task; its subagent may read it.
    fn point_at(&self, view: &RunView, pack: &mut Value) -> Result<(), Fault> {
        let task = pack["task_summary"].as_str().unwrap_or_default();
        let run = &view.run;
        let found = self.store.read_now(|tx| {
            let own = memories::spaces_of(tx, run)?.own;
            match memories::is_used(tx, &run.org, &own)? {
                true => {
                    let words = asked_words(task, false);
                    memories::search(tx, &run.org, &[&own], &words, MOST_REFS)
                }
                false => Ok(Vec::new()),
            }
        })?;
        let ids: Vec<_> = found.iter().map(|memory| memory.id).collect();
        pack["long_term_refs"] = json!(ids);
        Ok(())
    }
}

/// The last thing that somebody said to the run and that no model call of it has seen.
fn latest_input(view: &RunView, seen: i64) -> Option<&Message> {
    let new = view.messages.iter().rev();
    new.map(AsRef::as_ref)
        .take_while(|message| message.seq > seen)
        .filter(|message| message.run == Some(view.run.id))
        .find(|message| message.is_input() && message.kind != MessageKind::Announce)
}
