//! Patterns of argument lists, as the allow-list of a node has them: which commands of a call one
//! allows, and which it may restrict.

use std::fmt;

use super::command::{Fit, ShellCommand};
use super::options::UNNAMED;
use super::starting::{Starts, starts};
use super::word::ShellWord;
use crate::kernel::policy::pattern::fits;

/// Shells and interpreters that read their own options only before the name of a script.
#[rustfmt::skip]
const SCRIPT_FIRST: &[&str] = &[
    "sh", "bash", "dash", "ksh", "mksh", "ash", "zsh", "yash", "fish", "python", "pypy", "perl",
    "ruby", "node", "nodejs", "php", "lua", "luajit", "tclsh", "Rscript",
];

/// A pattern of a program and its arguments. Within a word `*` matches any text, so that `*` alone
/// is one argument; `**` at the end matches all further arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgvPattern {
    words: Vec<String>,
    is_open: bool,
}

impl ArgvPattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn new(argv: &[String]) -> Result<ArgvPattern, String> {
        let (words, is_open) = match argv.split_last() {
            Some((last, rest)) if last == "**" => (rest, true),
            _ => (argv, false),
        };
        match words.first() {
            None => return Err("argv names no program".to_owned()),
            Some(program) if program.trim().is_empty() => {
                return Err("the program in argv is empty".to_owned());
            }
            Some(_) => {}
        }
        if words.iter().any(|word| word == "**") {
            return Err("** stands for all further arguments, so it can only come last".to_owned());
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err("argv contains U+0000".to_owned());
        }
        Ok(ArgvPattern {
            words: words.to_vec(),
            is_open,
        })
    }

    /// The program: a name or an absolute path.
    pub fn program(&self) -> &str {
        &self.words[0]
    }

    /// True if it matches one argument list only.
    pub fn is_literal(&self) -> bool {
        !self.is_open && self.words.iter().all(|word| !word.contains('*'))
    }

    /// True if these are exactly the arguments of a literal pattern.
    pub fn has_arguments(&self, arguments: &[String]) -> bool {
        self.is_literal() && self.words[1..] == *arguments
    }

    /// True if the words after the program match, whatever their holes stand for.
    fn fits_arguments(&self, words: &[ShellWord]) -> bool {
        let own = &self.words[1..];
        let is_enough = match self.is_open {
            true => words.len() >= own.len(),
            false => words.len() == own.len(),
        };
        is_enough
            && own
                .iter()
                .zip(words)
                .all(|(pattern, word)| !word.splits && fits(pattern, &word.text))
    }

    /// True if the pattern has this option, name or program as a word of its own.
    fn names(&self, need: &str) -> bool {
        let mut words = self.words.iter();
        need != UNNAMED
            && words.any(|word| {
                word == need
                    || word.rsplit('/').next() == Some(need)
                    || word
                        .strip_prefix(need)
                        .is_some_and(|rest| need.ends_with('=') || rest.starts_with('='))
            })
    }

    /// The texts by which the pattern restricts command lines.
    fn texts(&self) -> Vec<String> {
        let mut words = self.words.clone();
        if let Some((_, base)) = self.program().rsplit_once('/') {
            base.clone_into(&mut words[0]);
        }
        let text = words.join(" ");
        match self.is_open {
            true => vec![format!("{text} *"), text],
            false => vec![text],
        }
    }
}

impl fmt::Display for ArgvPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.is_open.then(|| "**".to_owned());
        let words: Vec<String> = self.words.iter().cloned().chain(open).collect();
        write!(f, "{words:?}")
    }
}

impl ShellCommand {
    /// True if an `allow` with this pattern covers this command of the call `argv`.
    /// `is_program` says whether a program, as called, is the one that a pattern names.
    ///
    /// What runs other code by itself (a shell with `-c`, an interpreter with code, `ssh`) is
    /// covered only by a pattern without wildcards, or by one that names the script.
    pub fn is_allowed_by(
        &self,
        pattern: &ArgvPattern,
        argv: &[String],
        is_program: impl Fn(&str, &str) -> bool,
    ) -> bool {
        if !self.needs.iter().all(|need| pattern.names(need)) {
            return false;
        }
        let is_call = |words: &[ShellWord]| {
            words.len() == argv.len()
                && words
                    .iter()
                    .zip(argv)
                    .all(|(word, text)| word.text == *text)
        };
        let matches = |words: &[ShellWord]| {
            let Some((program, arguments)) = words.split_first() else {
                return false;
            };
            let Some(name) = program.known() else {
                return false;
            };
            // Within a script or a wrapper the folder may be another one.
            let is_relative = name.contains('/') && !name.starts_with('/');
            (!is_relative || is_call(words))
                && is_program(pattern.program(), name)
                && pattern.fits_arguments(arguments)
        };
        let base = self.words.first().map_or("", ShellWord::base);
        let as_whole = self.outer.as_deref().is_some_and(|outer| {
            matches(outer)
                && (self.is_raised
                    || pattern.words[1..]
                        .iter()
                        .any(|word| names_program(word, base)))
        });
        if self.is_raised {
            return as_whole;
        }
        if self.runs_code() && !pattern.is_literal() && !self.names_script(pattern) {
            return false;
        }
        as_whole || matches(&self.words)
    }

    /// Whether a `deny` or `ask` with this pattern applies to the command.
    pub fn is_restricted_by(&self, pattern: &ArgvPattern) -> Fit {
        let texts = pattern.texts();
        let fits = texts.iter().map(|text| self.restriction_fit(text));
        fits.max().unwrap_or(Fit::No)
    }

    /// True if the command runs code that is not in its words as commands. What it runs by the
    /// options in `needs` does not count: a pattern has named them.
    fn runs_code(&self) -> bool {
        let base = self.words.first().map_or("", ShellWord::base);
        self.runs_anything
            && (self.needs.is_empty()
                || !matches!(starts(base, &self.words, false), Starts::Nothing))
    }

    /// True if the command runs a script that the pattern names, so that what follows are the
    /// script's own arguments.
    fn names_script(&self, pattern: &ArgvPattern) -> bool {
        let base = self.words.first().map_or("", ShellWord::base);
        let name = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let script = pattern.words.get(1);
        SCRIPT_FIRST.contains(&name)
            && script.is_some_and(|word| !word.starts_with(['-', '+']) && !word.contains('*'))
    }
}

fn names_program(word: &str, base: &str) -> bool {
    word.rsplit('/').next() == Some(base)
}

#[cfg(test)]
mod tests {
    use super::super::CommandLine;
    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|word| (*word).to_owned()).collect()
    }

    fn pattern(line: &[&str]) -> ArgvPattern {
        ArgvPattern::new(&words(line)).unwrap()
    }

    /// All commands of the call are covered by one of these patterns.
    fn allows(patterns: &[&[&str]], call: &[&str]) -> bool {
        let argv = words(call);
        let line = CommandLine::of_argv(&argv);
        !line.commands.is_empty()
            && line.commands.iter().all(|command| {
                patterns.iter().any(|one| {
                    command.is_allowed_by(&pattern(one), &argv, |named, called| {
                        named == called || called.rsplit('/').next() == Some(named)
                    })
                })
            })
    }

    fn restricts(rule: &[&str], call: &[&str]) -> Fit {
        let line = CommandLine::of_argv(&words(call));
        let fits = line
            .commands
            .iter()
            .map(|one| one.is_restricted_by(&pattern(rule)));
        fits.max().unwrap()
    }

    #[test]
    fn patterns_match_argument_by_argument() {
        let status: &[&str] = &["git", "status", "**"];
        assert!(allows(&[status], &["git", "status"]));
        assert!(allows(&[status], &["git", "status", "-s", "a b; c"]));
        assert!(!allows(&[status], &["git", "push"]));
        assert!(!allows(&[status], &["git", "status; rm -rf /"]));
        assert!(allows(&[&["make", "*"]], &["make", "test"]));
        assert!(!allows(&[&["make", "*"]], &["make"]));
        assert!(!allows(&[&["make", "*"]], &["make", "a", "b"]));
        assert!(allows(&[&["cc", "src/*.c"]], &["cc", "src/a.c"]));
        assert!(!allows(&[&["cc", "src/*.c"]], &["cc", "a.c"]));
        assert!(!allows(&[&["true"]], &["true", ""]));
    }

    #[test]
    fn wrappers_are_judged_by_what_they_run() {
        let make: &[&str] = &["make", "**"];
        for call in [
            &["env", "A=1", "make", "test"][..],
            &["nice", "-n", "5", "make"],
            &["timeout", "5", "make", "x"],
            &["nohup", "make"],
            &["sh", "-c", "make test && make install"],
        ] {
            assert!(allows(&[make], call), "{call:?}");
        }
        assert!(allows(&[&["touch", "**"]], &["xargs", "touch"]));
        // A word from its input could be the option -f.
        assert!(!allows(&[make], &["xargs", "make"]));
        for call in [
            &["env", "LD_PRELOAD=x", "make"][..],
            &["env", "-C", "/tmp", "make"],
            &["sudo", "make"],
            &["sh", "-c", "make; rm x"],
            &["sh", "-c", "make > out"],
            &["sh", "-c", "$X"],
            &["sh", "-c", "./make"],
            &["env", "./make"],
            &["find", ".", "-execdir", "./make", ";"],
        ] {
            assert!(!allows(&[make, &["find", "**"]], call), "{call:?}");
        }
        assert!(allows(&[&["sudo", "make", "*"]], &["sudo", "make", "x"]));
        assert!(allows(
            &[&["env", "-C", "*", "make"]],
            &["env", "-C", "/tmp", "make"]
        ));
    }

    #[test]
    fn a_wrapper_that_is_named_does_not_hide_code() {
        let pattern: &[&str] = &["env", "-C", "*", "python3", "**"];
        assert!(allows(
            &[pattern],
            &["env", "-C", "/tmp", "python3", "a.py"]
        ));
        assert!(!allows(
            &[pattern],
            &["env", "-C", "/tmp", "python3", "-c", "x"]
        ));
    }

    #[test]
    fn code_in_arguments_needs_a_pattern_without_wildcards() {
        let python: &[&str] = &["python3", "**"];
        assert!(allows(&[python], &["python3", "build.py"]));
        assert!(!allows(&[python], &["python3", "-c", "print(1)"]));
        assert!(!allows(&[python], &["python3", "-Ic", "print(1)"]));
        assert!(!allows(&[&["bash", "**"]], &["bash", "-c", "$(x)"]));
        assert!(!allows(&[&["bash", "**"]], &["bash", "-c", "id"]));
        assert!(!allows(&[&["ssh", "**"]], &["ssh", "host", "id"]));
        assert!(!allows(&[&["node", "**"]], &["node", "-e", "1"]));
        let exact: &[&str] = &["python3", "-c", "print(1)"];
        assert!(allows(&[exact], exact));
        assert!(!allows(&[exact], &["python3", "-c", "print(2)"]));
        // A script that is named gets any arguments.
        assert!(allows(
            &[&["bash", "go.sh", "**"]],
            &["bash", "go.sh", "-c", "x"]
        ));
        assert!(!allows(&[&["bash", "**"]], &["bash", "go.sh"]));
    }

    #[test]
    fn restrictions_see_through_wrappers_and_spellings() {
        let rule: &[&str] = &["git", "push", "**"];
        for call in [
            &["git", "push"][..],
            &["/usr/bin/git", "push", "-f"],
            &["env", "git", "push"],
            &["sudo", "git", "push"],
            &["bash", "-c", "cd x && git push origin"],
        ] {
            assert_eq!(restricts(rule, call), Fit::Yes, "{call:?}");
        }
        for call in [
            &["git", "-C", "x", "push"][..],
            &["python3", "-c", "import os"],
            &["ssh", "host", "git push"],
        ] {
            assert!(restricts(rule, call) > Fit::No, "{call:?}");
        }
        assert_eq!(restricts(rule, &["git", "status"]), Fit::No);
        assert_eq!(restricts(&["*", "**"], &["true"]), Fit::Yes);
        assert_eq!(restricts(&["/bin/rm", "**"], &["rm", "x"]), Fit::Yes);
    }

    #[test]
    fn a_pattern_without_sense_is_refused() {
        for bad in [&[][..], &["**"], &[""], &["a", "**", "b"], &["a\0"]] {
            assert!(ArgvPattern::new(&words(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(pattern(&["a", "**"]).to_string(), r#"["a", "**"]"#);
        assert!(pattern(&["a", "b"]).is_literal());
    }
}
