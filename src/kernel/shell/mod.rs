//! Command lines of a shell, read without running them: which commands a line runs, in which
//! spellings a rule may name them, and what could not be understood. The gate matches its rules on
//! the result; nothing here decides.
//!
//! The grammar is that of POSIX `sh` with what common shells add. Reading is conservative: what
//! is not understood (an expansion, an unknown option, a syntax that is not listed) becomes a
//! *hole* that may stand for any text, so that a rule which could match is never passed over.

mod builtins;
mod command;
mod documents;
mod expansion;
mod git;
mod interpreters;
mod matching;
mod options;
mod parser;
mod scripts;
mod starting;
mod unwrap;
mod word;
mod wrappers;

#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod tests;

pub use command::{Command, Fit};
pub use matching::may_fit;

/// What a command line runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Every command of it: parts of lists and pipes, substitutions, what wrappers run, files that
    /// are redirected to or from.
    pub commands: Vec<Command>,
    /// The line as it is written, and with the quotes taken away.
    pub texts: Vec<String>,
}

impl Line {
    /// Reads a line that a shell would be given.
    pub fn read(text: &str) -> Line {
        let script = parser::script(text);
        Line {
            texts: vec![text.trim().to_owned(), script.text.clone()],
            commands: unwrap::commands(&script, unwrap::Within::default()),
        }
    }

    /// A program that is started with these arguments, without a shell.
    pub fn of_argv(argv: &[String]) -> Line {
        let words: Vec<word::Word> = argv.iter().map(|text| word::Word::plain(text)).collect();
        Line {
            texts: vec![argv.join(" ")],
            commands: unwrap::argv(&words),
        }
    }
}
