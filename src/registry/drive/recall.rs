//! Selects the memories of a model call and the references of a context pack. They are looked up
//! before the step is intended and named in it, so that a retried step gets the same ones. Called
//! by the drive task.

use serde_json::{Value, json};

use crate::contract::journal::RunView;
use crate::contract::runner::Next;
use crate::kernel::fault::Fault;
use crate::kernel::memory::{MOST_RECALLED, MOST_REFS, Recalled, asked_words, tokens, within};
use crate::kernel::run::step::{Intent, StepKind};
use crate::kernel::session::message::{Message, MessageKind};
use crate::kernel::text::prefix;
use crate::registry::RegistryInner;
use crate::store::tables::memories;

/// Maximum bytes of the input that are searched for words.
const SAID: usize = 8 * 1024;

impl RegistryInner {
    /// The runner's next action for `view`, with recalled memories added to its steps. `told` is
    /// the view without messages that are only assumed.
    pub(crate) fn next_step(&self, view: &RunView, told: &RunView) -> Next {
        let mut next = self.runner.next(view);
        if let Next::Steps(intents) = &mut next {
            for intent in intents {
                // The turn goes on without memories if they cannot be read.
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
            // The turn continues with the memories that it already had.
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
            // Most agents have no memories; their input is not split into words.
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

    /// Adds references to the supervisor's own memories about the task, which the subagent may
    /// read.
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

/// The latest input of the run that none of its model calls has seen.
fn latest_input(view: &RunView, seen: i64) -> Option<&Message> {
    let new = view.messages.iter().rev();
    new.map(AsRef::as_ref)
        .take_while(|message| message.seq > seen)
        .filter(|message| message.run == Some(view.run.id))
        .find(|message| message.is_input() && message.kind != MessageKind::Announce)
}
