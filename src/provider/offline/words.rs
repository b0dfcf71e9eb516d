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
above across after again against always another around away because before below between both
bring call called calls check code come decide defined definition describe details different done
down during else entire exactly example explain explore few file files find first full function
functions further get gets give given go goes happen happened happens help implement
implementation implemented implements inside into investigate kept kind know known lead least like
line lines list lives locate look looked looking made main major make makes many may mean means
method methods module modules name named need needs never new now off once one only onto other out
over own part parts place places point points quote quoted rather really responsible same say says
search see seem show shows small somewhere source stored take taken tell thing things tree type
types under understand use used uses using various very via way ways work working works";

/// Function words of scripts without spaces; they also separate the other words.
static DENSE_FUNCTION_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(
        "为什么|是否|哪里|哪儿|哪些|哪个|什么|怎么样?|怎样|如何|多少|这个|那个|项目|代码库|[的了吗呢在是和与或谁请]",
    )
});

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

/// The places where an identifier joins two words.
static JOINTS: LazyLock<Regex> = LazyLock::new(|| fixed(r"(\p{Ll})(\p{Lu})|([^_])_([^_])"));

/// Endings of plurals and verb forms, longest first. A word is searched for without its ending, and
/// a short one with any of them.
const ENDINGS: &[&str] = &[
    "izations", "ization", "isation", "ations", "ation", "ments", "ment", "ings", "ions", "ies",
    "ied", "ing", "ion", "ers", "ors", "ed", "es", "er", "or", "ly", "s", "e", "y",
];

/// Minimum letters of a stem that is searched for anywhere, also inside other words.
const LONG_STEM: usize = 5;

/// A search term.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The word as written in the task.
    pub word: String,
    /// The regular expression that matches it.
    pub regex: Regex,
    /// The weight of a match.
    pub weight: f64,
    /// The text to search for in file names; empty if none.
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

    /// A term for a quotation, an identifier or a path. `maxSize` also matches `max_size`,
    /// `max-size` and `maxsize`.
    fn exact(text: &str) -> Option<Self> {
        let escaped = regex::escape(text);
        let pattern = JOINTS.replace_all(&escaped, "$1$3[_-]?$2$4");
        Term::new(text, &format!("(?i:{pattern})"), file_name(text), 2.0)
    }

    fn plain(word: &str) -> Option<Self> {
        let stem = stem(word);
        let pattern = if word.is_ascii() && stem.len() < LONG_STEM {
            short_pattern(stem, &word[stem.len()..])
        } else {
            format!("(?i:{})", regex::escape(stem))
        };
        Term::new(word, &pattern, stem, 1.0)
    }

    /// A term for words that differ from the longest word of this one by a single typing error: a
    /// letter that is wrong, missing, added, or swapped with the next one.
    pub(super) fn similar(&self) -> Option<Term> {
        let words = self.word.split(|ch: char| !ch.is_alphanumeric());
        let word = prefix(words.max_by_key(|word| word.len())?, WORD_LIMIT / 2);
        let letters: Vec<char> = word.chars().collect();
        if letters.len() < LONG_STEM {
            return None;
        }
        let text = |letters: &[char]| letters.iter().collect::<String>();
        let forms = (0..letters.len()).flat_map(|at| {
            let (before, after) = (text(&letters[..at]), text(&letters[at + 1..]));
            let mut swapped = letters.clone();
            swapped.swap(at, at.saturating_sub(1));
            [format!("{before}[a-z]{{0,2}}{after}"), text(&swapped)]
        });
        let forms = forms.collect::<Vec<String>>().join("|");
        let pattern = format!("(?i:\\b(?:{forms})\\b)");
        // A guess counts less than the words of the task.
        Term::new(
            &format!("a word like {word}"),
            &pattern,
            "",
            self.weight * 0.5,
        )
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
        } else if let Some(dense) = token.name("dense") {
            words.extend(dense_words(dense.as_str()));
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

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

/// The words of a text in a script without spaces: pairs of letters between the function words, or
/// three where one letter would remain.
fn dense_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in DENSE_FUNCTION_WORDS.split(text) {
        let letters: Vec<char> = run.chars().collect();
        let mut rest = &letters[..];
        while !rest.is_empty() {
            let size = if rest.len() == 3 {
                3
            } else {
                rest.len().min(2)
            };
            words.push(rest[..size].iter().collect());
            rest = &rest[size..];
        }
    }
    words.truncate(TERM_LIMIT);
    words
}

/// The common beginning of the forms of a word.
fn stem(word: &str) -> &str {
    if !word.is_ascii() {
        return word;
    }
    if word.starts_with("config") {
        return &word[.."config".len()];
    }
    let stem = ENDINGS.iter().find_map(|ending| {
        let stem = word.strip_suffix(ending)?;
        let enough = 4 - usize::from(matches!(*ending, "s" | "ies" | "ied"));
        let is_part_of_word = *ending == "s" && stem.ends_with(['s', 'u', 'i']);
        (stem.len() >= enough && !is_part_of_word).then_some(stem)
    });
    let stem = stem.unwrap_or(word);
    match stem.as_bytes() {
        // "stopped" has the stem "stop".
        [.., a, b] if a == b && b"bdgmnprt".contains(b) && stem.len() > 4 => {
            &stem[..stem.len() - 1]
        }
        _ => stem,
    }
}

/// A pattern for a short stem, which matches whole words only; otherwise `read` would be found in
/// `thread`. A word also ends at an underscore, a digit or a capital letter.
fn short_pattern(stem: &str, ending: &str) -> String {
    let of_y = |ending: &str| matches!(ending, "y" | "ies" | "ied");
    let forms = ENDINGS
        .iter()
        .copied()
        .filter(|form| !of_y(form) || of_y(ending));
    // The word's own ending is always included, so that each word finds itself.
    let forms = forms.chain([ending]).collect::<Vec<&str>>().join("|");
    let forms = format!("(?:{}?(?:{forms}))?", &stem[stem.len() - 1..]);
    let (first, rest) = stem.split_at(1);
    let capital = first.to_ascii_uppercase() + rest;
    format!(
        "(?m:^|[^A-Za-z])(?i:{stem}{forms})(?m:[^A-Za-z]|$)\
         |(?:(?m:^|[^A-Za-z]){stem}|{capital}){forms}(?m:[^a-z]|$)"
    )
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
