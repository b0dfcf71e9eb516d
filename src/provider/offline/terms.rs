//! The words of a task that are worth searching for, and how a line of code matches them.

use super::kin::kin;
use super::stem::{shortened, stems};

/// The most words of one task that count.
const TERM_LIMIT: usize = 8;

/// Words that say nothing about where to look, also those by which one asks about code.
const STOP_WORDS: &str = "
a about above across after again against all also am an and another any anybody anyone anything
are around as at away be because been before being below between both bring but by call called calls
can check code codebase come could decide deeply define defined definition describe details did
different do does doing done down during each either else entire every everything exactly example
explain explore few file files find first folder for from full further gave get gets give given
go goes had happen happened happening happens has have having he help her here how i if
implement implementation implemented implements in inside into investigate is it its itself just
kind know known lead least let lets like line lines list live lives locate look looked looking
look made main major make makes many may me mean means might module modules more most much must my
name named need needs never always new no nor not now of off on once one only onto or other our out over own
part parts place places please point points program project quote quoted quotes rather really repo
repository responsible same say says search see seem shall she should show shows since
small so some somewhere source such summarise summarize summary take taken tell than that the
their them then there these they thing things this those through to too toward tree under
understand until up upon us use used uses using various very via was way ways we well were what
whatever when where whether which while who whole whom whose why will with within without work
working works would you your overview";

/// Words that stand in a question more often than in the answer; they count for little.
const WEAK_WORDS: &str = "
application behavior behaviour change changed changes data function functions job message method
methods object organised organized people person process program python rust server system task
turn turned turns type types user users value values";

/// Pairs of words that mean one thing only together, and the thing.
const PAIRS: &[(&str, &str, &str)] = &[
    ("entry", "point", "entry point"),
    ("main", "function", "entry point"),
    ("program", "start", "entry point"),
    ("program", "begin", "entry point"),
    ("command", "line", "command line"),
];

/// One thing to search for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    /// The word as it was asked, for people.
    pub word: String,
    /// What stands for it in a file, in small letters.
    needles: Vec<String>,
    /// What programmers also write for it, in small letters.
    pub kin: Vec<String>,
    /// What to search for where nothing of the above is found.
    loose: Vec<String>,
    /// How much it counts: more where it was meant exactly (a phrase, an identifier, a path),
    /// less where it is a word of questions.
    pub worth: f64,
}

impl Term {
    fn exact(word: &str, needles: Vec<String>) -> Self {
        let loose = identifier_parts(word)
            .into_iter()
            .filter(|part| part.chars().count() >= 4)
            .collect();
        Term {
            word: word.to_owned(),
            needles,
            kin: Vec::new(),
            loose,
            worth: 2.0,
        }
    }

    fn plain(word: &str) -> Self {
        if PAIRS.iter().any(|(.., thing)| *thing == word) {
            // Nobody writes the thing itself into the code that is it.
            let mut needles = vec![word.to_owned()];
            needles.extend(kin(word).iter().map(ToString::to_string));
            return Term {
                needles,
                ..Term::exact(word, Vec::new())
            };
        }
        let needles = stems(word);
        let is_weak = WEAK_WORDS.split_whitespace().any(|weak| weak == word);
        let loose = needles.iter().map(|stem| shortened(stem)).collect();
        Term {
            kin: kin(&needles[0]).iter().map(ToString::to_string).collect(),
            word: word.to_owned(),
            needles,
            loose,
            worth: if is_weak { 0.35 } else { 1.0 },
        }
    }

    /// The same term with fewer letters to match.
    pub(super) fn loosened(&self) -> Term {
        Term {
            needles: if self.loose.is_empty() {
                self.needles.clone()
            } else {
                self.loose.clone()
            },
            ..self.clone()
        }
    }

    /// How well a text matches: 1 for the word itself, less for its kin, 0 for neither.
    pub(super) fn strength(&self, text: &str) -> f64 {
        let lower = text.to_lowercase();
        if self.needles.iter().any(|one| contains(text, &lower, one)) {
            1.0
        } else if self.kin.iter().any(|one| contains(text, &lower, one)) {
            0.45
        } else {
            0.0
        }
    }

    /// Does the text hold the word itself?
    pub(super) fn names(&self, text: &str) -> bool {
        self.strength(text) >= 1.0
    }

    /// A regular expression for the word itself and, if wanted, its kin.
    pub(super) fn pattern(&self, with_kin: bool) -> String {
        let kin = if with_kin { &self.kin[..] } else { &[] };
        let all: Vec<String> = self
            .needles
            .iter()
            .chain(kin)
            .map(|one| regex(one))
            .collect();
        all.join("|")
    }

    /// The texts by which file names are searched.
    pub(super) fn file_names(&self) -> impl Iterator<Item = &str> {
        self.needles
            .iter()
            .map(String::as_str)
            .filter(|needle| needle.len() >= 3 && !needle.contains(' '))
    }
}

/// A short needle must begin a word, or every second line would match.
fn is_short(needle: &str) -> bool {
    needle.chars().count() <= 4 && needle.chars().all(char::is_alphanumeric)
}

/// What may follow a short needle so that it is still the same word.
const SHORT_ENDINGS: &[&str] = &["", "s", "es", "er", "ers", "ed", "ing"];

fn contains(text: &str, lower: &str, needle: &str) -> bool {
    if !is_short(needle) {
        return lower.contains(needle);
    }
    // Lowering keeps the place of ASCII letters only; elsewhere capitals say nothing.
    let cased = if text.len() == lower.len() {
        text
    } else {
        lower
    };
    let capital = capitalised(needle);
    lower.match_indices(needle).any(|(at, _)| {
        let before = lower[..at].chars().next_back();
        let begins = !before.is_some_and(char::is_alphanumeric)
            || (before.is_some_and(char::is_alphabetic)
                && cased
                    .get(at..)
                    .is_some_and(|rest| rest.starts_with(&capital)));
        let rest = at + needle.len();
        begins
            && SHORT_ENDINGS.iter().any(|ending| {
                lower[rest..].starts_with(ending) && ends_word(cased, rest + ending.len())
            })
    })
}

fn capitalised(needle: &str) -> String {
    let mut letters = needle.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn ends_word(text: &str, at: usize) -> bool {
    let next = text.get(at..).and_then(|rest| rest.chars().next());
    !next.is_some_and(|ch| ch.is_alphanumeric() && !ch.is_uppercase())
}

fn regex(needle: &str) -> String {
    let mut out = String::new();
    for ch in needle.chars() {
        if !ch.is_alphanumeric() && ch.is_ascii() && ch != ' ' && ch != '_' {
            out.push('\\');
        }
        out.push(ch);
    }
    if !is_short(needle) {
        return format!("(?i:{out})");
    }
    let capital = capitalised(needle);
    let endings = SHORT_ENDINGS[1..].join("|");
    format!("(?:(?:\\b|_)(?i:{out})|{capital})(?:{endings})?(?:\\b|_|[A-Z])")
}

/// The terms of `task`: those that were meant exactly first, then the longest words.
pub(super) fn terms(task: &str) -> Vec<Term> {
    let (phrases, rest) = quoted_phrases(task);
    let mut terms: Vec<Term> = Vec::new();
    for phrase in phrases {
        add(
            &mut terms,
            Term::exact(&phrase, vec![phrase.to_lowercase()]),
        );
    }
    let mut plain = Vec::new();
    for token in rest.split(|ch: char| !(ch.is_alphanumeric() || "_./:-".contains(ch))) {
        let token = token.trim_matches(|ch: char| !(ch.is_alphanumeric() || ch == '_'));
        if is_identifier(token) {
            add(&mut terms, Term::exact(token, spellings(token)));
        } else {
            plain.extend(
                token
                    .split(|ch: char| !ch.is_alphanumeric())
                    .map(str::to_lowercase),
            );
        }
    }
    let mut words = merged(plain);
    words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    for word in words {
        add(&mut terms, Term::plain(&word));
    }
    terms.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    terms.truncate(TERM_LIMIT);
    terms
}

fn add(terms: &mut Vec<Term>, term: Term) {
    if !terms.iter().any(|known| known.needles == term.needles) {
        terms.push(term);
    }
}

/// Leaves stop words out, puts pairs together and splits what has no spaces between words.
fn merged(words: Vec<String>) -> Vec<String> {
    let mut out = Vec::new();
    let mut skip = false;
    for (index, word) in words.iter().enumerate() {
        if std::mem::take(&mut skip) {
            continue;
        }
        let next = words.get(index + 1).map_or("", String::as_str);
        let pair = PAIRS
            .iter()
            .find(|(first, second, _)| word == first && next.trim_end_matches('s') == *second);
        if let Some((.., thing)) = pair {
            skip = true;
            out.push((*thing).to_owned());
        } else if word.chars().any(is_unspaced) {
            out.extend(pairs_of_letters(word));
        } else if word.chars().count() > 1 && !is_stop_word(word) {
            out.push(word.clone());
        }
    }
    out
}

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split_whitespace().any(|stop| stop == word)
}

/// Does this letter belong to a script that writes words without spaces?
fn is_unspaced(ch: char) -> bool {
    matches!(ch, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

fn pairs_of_letters(word: &str) -> Vec<String> {
    let letters: Vec<char> = word.chars().collect();
    if letters.len() <= 4 {
        return vec![word.to_owned()];
    }
    letters
        .chunks(2)
        .map(|pair| pair.iter().collect())
        .collect()
}

/// Splits off what stands between quotation marks or backticks.
fn quoted_phrases(task: &str) -> (Vec<String>, String) {
    const MARKS: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('„', '“')];
    let (mut phrases, mut rest) = (Vec::new(), String::new());
    let mut left = task;
    while let Some((at, open)) = left
        .char_indices()
        .find(|(_, ch)| MARKS.iter().any(|(open, _)| open == ch))
    {
        let after = &left[at + open.len_utf8()..];
        let close = MARKS
            .iter()
            .find(|(mark, _)| *mark == open)
            .map_or(open, |mark| mark.1);
        rest.push_str(&left[..at]);
        rest.push(' ');
        match after.find(close) {
            // A mark that is never closed, or far away, is no quotation.
            Some(end) if (1..=120).contains(&end) && !after[..end].contains('\n') => {
                phrases.push(after[..end].trim().to_owned());
                left = &after[end + close.len_utf8()..];
            }
            _ => left = after,
        }
    }
    rest.push_str(left);
    phrases.retain(|phrase| phrase.chars().count() > 1);
    (phrases, rest)
}

/// Is it written as only code is: `snake_case`, `camelCase`, `a::b`, `dir/file.rs`?
fn is_identifier(token: &str) -> bool {
    let letters: Vec<char> = token.chars().collect();
    if letters.len() < 3 || !letters.iter().all(|ch| !is_unspaced(*ch)) {
        return false;
    }
    let hump = letters
        .windows(2)
        .any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
    let has_extension = token.rsplit_once('.').is_some_and(|(stem, end)| {
        !stem.is_empty() && (1..=4).contains(&end.len()) && end.chars().all(char::is_alphanumeric)
    });
    hump || token.contains('_') || token.contains("::") || has_extension
}

/// The ways in which an identifier is written: `maxSize`, `max_size`, `max-size`, `maxsize`.
fn spellings(token: &str) -> Vec<String> {
    let whole = token.to_lowercase();
    let parts = identifier_parts(token);
    let mut all = vec![whole];
    if parts.len() > 1 && token.chars().all(|ch| ch.is_alphanumeric() || ch == '_') {
        for between in ["_", "-", ""] {
            let one = parts.join(between);
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

fn identifier_parts(token: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut last = ' ';
    for ch in token.chars() {
        let starts_new = !ch.is_alphanumeric() || (last.is_lowercase() && ch.is_uppercase());
        if starts_new {
            parts.push(String::new());
        }
        if ch.is_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.extend(ch.to_lowercase());
        }
        last = ch;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
