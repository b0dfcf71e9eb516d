//! Questions about calls: what a person is asked, and the digest to which the answer is bound.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contract::BoxFuture;
use crate::kernel::node::RunQuestion;

use super::program::ReadyProgram;

/// How long a question waits for its answer.
pub(super) const QUESTION_LIFETIME: Duration = Duration::from_secs(600);

/// The answer of the person at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalAnswer {
    /// The program may run, this once.
    Allow,
    /// It may not run.
    Deny,
    /// No person is at the terminal any more.
    Gone,
}

/// Asks the person at the terminal of the node. Questions come one at a time; dropping the future
/// withdraws the question.
pub trait AskOperator: Send + Sync + 'static {
    /// Asks whether `gateway` may run this.
    fn ask(&self, gateway: &str, question: RunQuestion) -> BoxFuture<'static, TerminalAnswer>;
}

impl ReadyProgram {
    /// What a person is asked about the call.
    pub(super) fn question(&self) -> RunQuestion {
        RunQuestion {
            program: self.program.display().to_string(),
            argv: self.argv.clone(),
            cwd: self.folder.display().to_string(),
            env: self.given.keys().cloned().collect(),
            digest: digest(
                &self.program.to_string_lossy(),
                &self.argv,
                &self.folder.to_string_lossy(),
                &self.given,
            ),
        }
    }
}

/// The digest of program, arguments, folder and variables with their values, hexadecimal.
fn digest(program: &str, argv: &[String], cwd: &str, env: &BTreeMap<String, String>) -> String {
    let mut hasher = blake3::Hasher::new();
    // Each part with its length, so that no two calls have the same bytes.
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(program);
    add(cwd);
    add(&argv.len().to_string());
    argv.iter().for_each(|word| add(word));
    for (name, value) in env {
        add(name);
        add(value);
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_changes_the_digest() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let env = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        let all = [
            digest("/bin/a", &words("a b"), "/", &env(&[("A", "1")])),
            digest("/bin/b", &words("a b"), "/", &env(&[("A", "1")])),
            digest("/bin/a", &words("a b c"), "/", &env(&[("A", "1")])),
            digest("/bin/a", &words("a"), "/", &env(&[("b", ""), ("A", "1")])),
            digest("/bin/a", &words("a b"), "/x", &env(&[("A", "1")])),
            digest("/bin/a", &words("a b"), "/", &env(&[("A", "2")])),
            digest("/bin/a", &words("a b"), "/", &env(&[("A1", "")])),
            digest("/bin/a", &words("a b"), "/", &env(&[])),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let again = digest("/bin/a", &words("a b"), "/", &env(&[("A", "1")]));
        assert_eq!(again, all[0]);
    }
}
