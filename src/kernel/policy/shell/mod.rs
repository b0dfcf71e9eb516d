//! Parses shell command lines without running them: the commands of a line, the spellings in which
//! a rule may name them, and what could not be understood. The gate matches its rules against the
//! result; nothing here decides.
//!
//! The grammar is that of POSIX `sh` with common extensions. Parsing is conservative: what is not
//! understood (an expansion, an unknown option, an unlisted syntax) becomes a *hole* that may stand
//! for any text, so that a rule which could match is never skipped.

mod argv;
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
mod first_word_tests;
#[cfg(test)]
mod real_tests;
#[cfg(test)]
mod tests;

pub use argv::ArgvPattern;
pub use command::{Fit, ShellCommand};
pub use matching::may_fit;

/// The commands that a command line runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// All commands: parts of lists and pipes, substitutions, what wrappers run, and files of
    /// redirections.
    pub commands: Vec<ShellCommand>,
    /// The line as written, and with its quotes removed.
    pub texts: Vec<String>,
}

impl CommandLine {
    /// Parses a line that a shell would run.
    pub fn read(text: &str) -> CommandLine {
        let script = parser::script(text);
        CommandLine {
            texts: vec![text.trim().to_owned(), script.text.clone()],
            commands: unwrap::commands(&script, unwrap::ScriptContext::default()),
        }
    }

    /// The line of a program that is started with these arguments, without a shell.
    pub fn of_argv(argv: &[String]) -> CommandLine {
        let words: Vec<word::ShellWord> = argv
            .iter()
            .map(|text| word::ShellWord::plain(text))
            .collect();
        CommandLine {
            texts: vec![argv.join(" ")],
            commands: unwrap::argv(&words),
        }
    }
}
