//! Extracts the search terms of a task, each with its regular expression. The same expression
//! searches the files and ranks the lines, so that ranking counts exactly what was found.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;

use super::files::{file_name, fixed};
use crate::kernel::text::prefix;

/// Maximum number of terms of one task; each is searched for separately.
const TERM_LIMIT: usize = 8;

/// Maximum bytes of one word or identifier; the rest of a longer one is ignored.
const WORD_LIMIT: usize = 100;

/// Words without meaning of their own; never searched for.
const FUNCTION_WORDS: &str = "
a about all also am an and any anyone anything are aren as at be been being but by can could did
didn do does doesn doing don each either every everything for from had has have having he her here
how i if in is isn it its itself just let me might more most much must my no nor not of on or our
please shall she should since so some such than that the their them then there these they this
those through to too toward until up upon us was we well were what whatever when where whether
which while who whole whom whose why will with within without won would you your
codebase folder overview program project repo repository summarise summarize summary";

/// Words by which people ask about code; searched for only if a task has no other words.
const QUESTION_WORDS: &str = "
after again another around away because before below between both bring call called calls check code
come decide defined definition describe details different done example explain explore few file
files find first function functions get gets give go goes happen happens help implement implemented
inside into kept kind know like line lines list lives look made main make many mean means method
module modules name named need needs never new now off one only other out over part parts place point
quote really responsible same say search see show small source stored take tell thing things tree
type types under understand use used uses using various very way work works";

/// Quotations, runs of a script without spaces, and anything else between blanks.
static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let dense = "\u{e00}-\u{eff}\u{3040}-\u{30ff}\u{3400}-\u{9fff}\u{f900}-\u{faff}";
    fixed(&format!(
        "[\"`“„«「](?<quote>[^\"`”“»」\\n]{{0,60}}\\w[^\"`”“»」\\n]{{0,60}})[\"`”“»」]\
         |(?<dense>[{dense}]+)|[\\w./:\\-&&[^{dense}]]+"
    ))
});

/// Spellings that only code has: `snake_case`, `camelCase`, `a::b`, `dir/file.rs`.
static IDENTIFIER: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"\w_|_\w|::|\p{Ll}\p{Lu}|\w\.\w{2,4}$|\w\w\.\w$"));

/// A search term.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The word as written in the task.
    pub word: String,
    /// The regular expression that matches it.
    pub regex: Regex,
    /// The weight of a match.
    pub weight: f64,
    /// The text to search for in file names.
    pub name: String,
}

impl Term {
    /// `None` if the regular expression is too large.
    fn new(word: &str, pattern: &str, name: &str, weight: f64) -> Option<Self> {
        Some(Term {
            word: word.to_owned(),
            regex: Regex::new(pattern).ok()?,
            weight,
            name: name.to_owned(),
        })
    }

    /// A term for a quotation, an identifier or a path.
    fn exact(text: &str) -> Option<Self> {
        let pattern = format!("(?i:{})", regex::escape(text));
        Term::new(text, &pattern, file_name(text), 2.0)
    }

    /// A term for a word in lower case. It matches where a word begins, also inside an identifier;
    /// otherwise `read` would be found in `thread`.
    fn plain(word: &str) -> Option<Self> {
        // A plural also finds the singular.
        let stem = word.strip_suffix('s').filter(|stem| stem.len() >= 4);
        let stem = stem.unwrap_or(word);
        let pattern = match stem.get(..1).map(str::to_ascii_uppercase) {
            Some(first) if word.is_ascii() => {
                format!("(?m:^|[^A-Za-z])(?i:{stem})|{first}{}", &stem[1..])
            }
            _ => format!("(?i:{})", regex::escape(stem)),
        };
        Term::new(word, &pattern, stem, 1.0)
    }

    /// Whether `text` contains the term.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The terms of `task`: quotations and identifiers first, then the longest words.
pub(super) fn terms(task: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for token in TOKENS.captures_iter(task) {
        let text = prefix(&token[0], WORD_LIMIT);
        let text = text.trim_matches(|ch: char| !(ch.is_alphanumeric() || ch == '_'));
        if let Some(quote) = token.name("quote") {
            terms.push(Term::exact(quote.as_str().trim()));
        } else if token.name("dense").is_some() {
            // Most words of these scripts have two letters.
            let letters: Vec<char> = text.chars().collect();
            words.extend(letters.chunks(2).map(String::from_iter));
        } else if IDENTIFIER.is_match(text) {
            terms.push(Term::exact(text));
        } else {
            let parts = text.split(|ch| "_./:-".contains(ch));
            words.extend(parts.map(str::to_ascii_lowercase));
        }
    }
    words.retain(|word| !word.is_empty() && !has(FUNCTION_WORDS, word));
    let is_subject = |word: &String| word.chars().count() > 1 && !has(QUESTION_WORDS, word);
    if !terms.is_empty() || words.iter().any(is_subject) {
        words.retain(is_subject);
    }
    words.sort_by_key(|word| Reverse(word.chars().count()));
    let mut seen = HashSet::new();
    let words = words.iter().map(|word| Term::plain(word));
    let mut terms: Vec<Term> = terms.into_iter().chain(words).flatten().collect();
    terms.retain(|term| seen.insert(term.regex.to_string()));
    terms.truncate(TERM_LIMIT);
    terms
}

/// The words of these terms, separated by commas, for notes and answers.
pub(super) fn list<'a>(terms: impl IntoIterator<Item = &'a Term>) -> String {
    let words: Vec<&str> = terms.into_iter().map(|term| term.word.as_str()).collect();
    words.join(", ")
}

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
