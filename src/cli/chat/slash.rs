//! Lines that begin with `/` at a request's prompt: commands or answers. Used at the prompt of
//! `abide chat` and while a turn is followed.

use super::act;
use super::command::{ChatLine, SlashCommand, read};

/// How such a line is interpreted.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) enum Slash {
    /// An answer, without the escaping slash.
    Answer(String),
    /// Not an answer; print this text and ask again.
    Say(String),
    /// Quit the conversation; the request stays open.
    Leave,
}

/// Interprets a line that was typed at a request's prompt.
pub(in crate::cli) fn at_a_question(said: &str) -> Slash {
    if let Some(answer) = said.strip_prefix("//") {
        return Slash::Answer(format!("/{answer}"));
    }
    if !said.starts_with('/') {
        return Slash::Answer(said.to_owned());
    }
    let word = said.split_whitespace().next().unwrap_or_default();
    match read(said) {
        ChatLine::Command(SlashCommand::Quit) => Slash::Leave,
        ChatLine::Command(SlashCommand::Help) => {
            Slash::Say(format!("{}\n{ANSWER}", act::help_text()))
        }
        ChatLine::Command(_) => Slash::Say(format!(
            "{word} is not available while a run waits for your answer; Enter on an empty line leaves it \
             open; {ANSWER}"
        )),
        ChatLine::Unknown(word) => Slash::Say(format!("unknown command {word}; {ANSWER}")),
        // A path is an answer.
        ChatLine::Blank | ChatLine::Message(_) => Slash::Answer(said.to_owned()),
    }
}

const ANSWER: &str = "type // to begin an answer with /";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_no_answer_unless_it_is_marked_as_one() {
        let answer = |text: &str| Slash::Answer(text.to_owned());
        for (said, is) in [
            ("yes", answer("yes")),
            ("exit", answer("exit")),
            ("//quit it", answer("/quit it")),
            ("/etc/hosts", answer("/etc/hosts")),
            ("/quit", Slash::Leave),
        ] {
            assert_eq!(at_a_question(said), is, "{said}");
        }
        for said in ["/help", "/model x", "/nonsense"] {
            assert!(matches!(at_a_question(said), Slash::Say(_)), "{said}");
        }
    }
}
