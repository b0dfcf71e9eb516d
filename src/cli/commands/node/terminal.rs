//! Asks the person at the terminal of a node about calls of its gateways.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::cli::asking::person::Person;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, HEAD, styled};
use crate::cli::output::text::clean;
use crate::contract::BoxFuture;
use crate::kernel::node::RunQuestion;
use crate::kernel::text::preview;
use crate::node::{AskOperator, TerminalAnswer};

/// Maximum length of a shown argument list, in bytes.
const SHOWN: usize = 4000;

/// The person at the terminal; questions come one at a time.
pub(super) struct TerminalOperator(Arc<Mutex<Person>>);

impl TerminalOperator {
    /// The person, if there is one.
    pub(super) fn if_there() -> Option<TerminalOperator> {
        Person::if_there().map(|person| TerminalOperator(Arc::new(Mutex::new(person))))
    }
}

impl AskOperator for TerminalOperator {
    fn ask(&self, gateway: &str, question: RunQuestion) -> BoxFuture<'static, TerminalAnswer> {
        let person = Arc::clone(&self.0);
        let gateway = gateway.to_owned();
        Box::pin(async move {
            let mut person = person.lock().await;
            // What was typed before the question cannot answer it.
            person.rest().await;
            print::note(&shown(&gateway, &question));
            print::prompt("Run it, this once? [y/N] ");
            let withdrawn = Withdrawn;
            let answer = person.line().await;
            std::mem::forget(withdrawn);
            match answer.as_deref().map(str::trim) {
                Some("y" | "Y" | "yes") => TerminalAnswer::Allow,
                Some(_) => TerminalAnswer::Deny,
                None => TerminalAnswer::Gone,
            }
        })
    }
}

/// Says that a question was withdrawn, unless it was answered.
struct Withdrawn;

impl Drop for Withdrawn {
    fn drop(&mut self) {
        print::note("\nthe question was withdrawn");
    }
}

fn shown(gateway: &str, question: &RunQuestion) -> String {
    let argv: Vec<String> = question.argv.iter().map(|word| word_of(word)).collect();
    let mut text = format!(
        "{} wants to run on this machine:\n  {}",
        clean(gateway),
        styled(HEAD, preview(&argv.join(" "), SHOWN))
    );
    text.push_str(&styled(
        DIM,
        format!(
            "\n  program {}\n  folder  {}",
            clean(&question.program),
            clean(&question.cwd)
        ),
    ));
    if !question.env.is_empty() {
        let names = clean(&question.env.join(", "));
        text.push_str(&styled(DIM, format!("\n  sets    {names}")));
    }
    text
}

/// An argument as it is told apart from its neighbours.
fn word_of(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", clean(&word.replace('\'', "'\\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_apart_and_cannot_hide() {
        assert_eq!(word_of("a-b/c=1"), "a-b/c=1");
        assert_eq!(word_of("a b"), "'a b'");
        assert_eq!(word_of(""), "''");
        assert_eq!(word_of("it's"), r"'it'\''s'");
        assert!(!word_of("a\u{1b}[2K").contains('\u{1b}'));
    }
}
