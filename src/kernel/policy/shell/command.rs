//! One command that a line runs, and whether a rule's pattern matches it.

use super::matching::{is_wide, may_fit, may_mean, must_fit};
use super::options;
use super::word::ShellWord;

/// Whether a pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It does not match.
    No,
    /// It matches in a reading that cannot be ruled out.
    Maybe,
    /// It matches.
    Yes,
}

/// A command, or a file of a redirection (`> file`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellCommand {
    /// The program and its arguments.
    pub(super) words: Vec<ShellWord>,
    /// The complete command as written, if another program starts this one.
    pub(super) outer: Option<Vec<ShellWord>>,
    /// It is allowed only as written, because the program that starts it changes its privileges.
    pub(super) is_raised: bool,
    /// What a pattern must name explicitly to allow the command: options and names by which the
    /// program runs others, and files of redirections.
    pub(super) needs: Vec<String>,
    /// It may run any other command in addition.
    pub(super) runs_anything: bool,
    /// The commands in its arguments, in case they are run.
    pub(super) inner: Vec<ShellCommand>,
}

impl ShellCommand {
    /// True if an `allow` with this pattern covers it, whatever its holes stand for.
    pub fn allows(&self, pattern: &str) -> bool {
        if is_wide(pattern) {
            return true;
        }
        if !self.needs.iter().all(|need| names(pattern, need)) {
            return false;
        }
        let Some(program) = self.words.first() else {
            return false;
        };
        let Some(name) = program
            .known()
            .filter(|name| !name.contains(char::is_whitespace))
        else {
            return false;
        };
        let pattern = spaced(pattern);
        let as_written = |words: &[ShellWord]| must_fit(&pattern, &closed(words, None));
        let whole = self.outer.as_deref();
        let is_whole = whole.is_some_and(|outer| {
            as_written(outer) && (self.is_raised || names(&pattern, program.base()))
        });
        if is_whole || self.is_raised {
            return is_whole;
        }
        let base = options::is_standard(name).then(|| program.base());
        as_written(&self.words)
            || base.is_some_and(|base| must_fit(&pattern, &closed(&self.words, Some(base))))
            || options::plain(&self.words).is_some_and(|words| as_written(&words))
    }

    /// Whether a `deny` or `ask` with this pattern applies to it.
    pub fn restriction_fit(&self, pattern: &str) -> Fit {
        if is_wide(pattern) {
            return Fit::Yes;
        }
        let patterns = [pattern.to_owned(), spaced(pattern)];
        let spellings = self.spellings();
        let any = |fits: fn(&str, &str) -> bool| {
            let mut pairs = patterns
                .iter()
                .flat_map(|one| spellings.iter().map(move |text| (one, text)));
            pairs.any(|(pattern, text)| fits(pattern, text))
        };
        if any(must_fit) {
            return Fit::Yes;
        }
        let may = self.runs_anything
            || any(may_fit)
            || may_mean(pattern, &self.words)
            || self
                .outer
                .as_ref()
                .is_some_and(|outer| may_mean(pattern, outer))
            || self
                .inner
                .iter()
                .any(|inner| inner.restriction_fit(pattern) > Fit::No);
        if may { Fit::Maybe } else { Fit::No }
    }

    /// The texts by which a rule may name it.
    fn spellings(&self) -> Vec<String> {
        let mut forms: Vec<Vec<String>> = Vec::new();
        for words in [Some(&self.words), self.outer.as_ref()]
            .into_iter()
            .flatten()
        {
            let text = |read: fn(&ShellWord) -> String| words.iter().map(read).collect::<Vec<_>>();
            forms.push(text(|word| word.text.clone()));
            forms.push(text(|word| word.literal.clone()));
            forms.push(text(ShellWord::shortened));
            if let Some(plain) = options::named(words) {
                forms.push(plain.iter().map(|word| word.text.clone()).collect());
                forms.push(plain.iter().map(ShellWord::shortened).collect());
            }
        }
        let mut all: Vec<String> = Vec::new();
        for mut form in forms {
            all.push(form.join(" "));
            if let Some(first) = form.first_mut()
                && let Some((_, base)) = first.rsplit_once('/')
            {
                *first = base.to_owned();
                all.push(form.join(" "));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// True if the pattern names an option, word or sign explicitly, instead of only matching it with
/// `*`.
fn names(pattern: &str, need: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '-';
    if !need.starts_with(is_word) || need.ends_with('=') {
        return pattern.contains(need);
    }
    pattern.split_whitespace().any(|token| {
        let token = token.trim_matches('*');
        let base = token.rsplit('/').next();
        token == need || base == Some(need) || token.split('=').next() == Some(need)
    })
}

/// The pattern with single spaces, as words are joined.
fn spaced(pattern: &str) -> String {
    let words: Vec<&str> = pattern.split_whitespace().collect();
    let end = if pattern.ends_with(' ') { " " } else { "" };
    words.join(" ") + end
}

/// The words joined so that white space inside a word differs from the space between words.
fn closed(words: &[ShellWord], program: Option<&str>) -> String {
    let texts = words
        .iter()
        .enumerate()
        .map(|(at, word)| match (at, program) {
            (0, Some(name)) => name.to_owned(),
            _ => word.text.replace(char::is_whitespace, "\u{1}"),
        });
    texts.collect::<Vec<_>>().join(" ")
}
