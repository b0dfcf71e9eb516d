//! The words of a task that are worth searching for, each with the regular expression that
//! finds it. The same expression searches the files and ranks the lines, so that what is
//! counted is what was found.

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;

/// The maximum number of terms of one task.
const TERM_LIMIT: usize = 12;

/// Words that carry no subject. They are never searched for.
const FUNCTION_WORDS: &str = "
a about all also am an and any anyone anything are aren as at be been being but by can could did
didn do does doesn doing don each either every everything for from had has have having he her here
how i if in is isn it its itself just let me might more most much must my no nor not of on or our
please shall she should since so some such than that the their them then there these they this
those through to too toward until up upon us was we well were what whatever when where whether
which while who whole whom whose why will with within without won would you your
codebase folder overview program project repo repository summarise summarize summary";

/// Words by which people ask about code. They are searched for only where a task has nothing
/// else to search for.
const QUESTION_WORDS: &str = "
above across after again against always another around away because before below between both
bring call called calls check code come decide defined definition describe details different done
down during else entire exactly example explain explore few file files find first full further get
gets give given go goes happen happened happens help implement implementation implemented
implements inside into investigate kind know known lead least like line lines list live lives
locate look looked looking main made major make makes many may mean means module modules name named
need needs never new now off once one only onto other out over own part parts place places point
points quote quoted rather really responsible same say says search see seem show shows small
somewhere source take taken tell thing things tree under understand use used uses using various
very via way ways work working works";

/// Words that are more frequent in questions than in answers; they count for little.
const WEAK_WORDS: &str = "
application behavior behaviour change changed changes data function functions job message method
methods object person people process python rust server system task turn type types user users
value values";

/// Endings of plurals and verb forms, the longest first. A word is searched for without its
/// ending, and a short one with any of them.
const ENDINGS: &[&str] = &[
    "izations", "ization", "isation", "ations", "ation", "ments", "ment", "ings", "ions", "ies",
    "ied", "ing", "ion", "ers", "ors", "ed", "es", "er", "or", "ly", "s", "e", "y",
];

/// From this number of letters on, a stem is searched for anywhere, also inside other words.
const LONG_STEM: usize = 5;

/// One thing to search for.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The word as the task has it.
    pub word: String,
    /// The regular expression that finds it.
    pub pattern: String,
    /// What each term is worth: more for quotations, identifiers and paths, less for the words
    /// of questions.
    pub worth: f64,
    /// What to look for in file names, in lower case.
    pub names: Vec<String>,
    matcher: Option<RegexMatcher>,
}

impl Term {
    fn new(word: &str, pattern: String, names: Vec<String>, worth: f64) -> Self {
        Term {
            word: word.to_owned(),
            matcher: RegexMatcher::new(&pattern).ok(),
            pattern,
            worth,
            names,
        }
    }

    /// A quotation, an identifier or a path, in any of its spellings.
    fn exact(word: &str, spellings: Vec<String>) -> Self {
        let escaped: Vec<String> = spellings.iter().map(|text| escape(text)).collect();
        let pattern = format!("(?i:{})", escaped.join("|"));
        Term::new(word, pattern, spellings, 2.0)
    }

    fn plain(word: &str) -> Self {
        let stem = stem(word);
        let worth = if has(WEAK_WORDS, word) { 0.35 } else { 1.0 };
        Term::new(word, stem_pattern(stem, word), vec![stem.to_owned()], worth)
    }

    /// The same term with fewer letters, for a second try.
    pub(super) fn shortened(&self) -> Term {
        let parts = identifier_parts(&self.word);
        let starts = parts
            .iter()
            .filter(|part| parts.len() == 1 || part.chars().count() >= 4);
        let starts: Vec<String> = starts
            .map(|part| {
                let letters = stem(part).chars().count();
                let kept = (letters * 2 / 3).max(4).min(letters);
                part.chars().take(kept).collect()
            })
            .collect();
        if starts.is_empty() {
            return self.clone();
        }
        let short = Term::exact(&self.word, starts);
        Term {
            worth: self.worth,
            ..short
        }
    }

    /// Does `text` contain the term?
    pub(super) fn is_in(&self, text: &str) -> bool {
        let matcher = self.matcher.as_ref();
        matcher.is_some_and(|matcher| matcher.is_match(text.as_bytes()).unwrap_or(false))
    }
}

/// The terms of `task`: quotations and identifiers first, then the longest words.
pub(super) fn terms(task: &str) -> Vec<Term> {
    let (phrases, rest) = quoted_phrases(task);
    let mut terms: Vec<Term> = Vec::new();
    for phrase in phrases {
        add(&mut terms, Term::exact(&phrase, vec![phrase.clone()]));
    }
    let mut plain: Vec<String> = Vec::new();
    for token in rest.split(|ch: char| !(ch.is_alphanumeric() || "_./:-".contains(ch))) {
        let token = token.trim_matches(|ch: char| !(ch.is_alphanumeric() || ch == '_'));
        if is_identifier(token) {
            add(&mut terms, Term::exact(token, spellings(token)));
        } else {
            let words = token.split(|ch: char| !ch.is_alphanumeric());
            plain.extend(
                words
                    .filter(|word| !word.is_empty())
                    .map(str::to_ascii_lowercase),
            );
        }
    }
    plain.retain(|word| !has(FUNCTION_WORDS, word));
    let is_subject = |word: &String| word.chars().count() > 1 && !has(QUESTION_WORDS, word);
    if !terms.is_empty() || plain.iter().any(is_subject) {
        plain.retain(is_subject);
    }
    plain.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
    for word in plain {
        match unspaced_parts(&word) {
            None => add(&mut terms, Term::plain(&word)),
            Some(parts) => parts.into_iter().for_each(|part| {
                let exact = Term::exact(&part, vec![part.clone()]);
                add(
                    &mut terms,
                    Term {
                        worth: 1.0,
                        ..exact
                    },
                );
            }),
        }
    }
    terms.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    terms.truncate(TERM_LIMIT);
    terms
}

fn add(terms: &mut Vec<Term>, term: Term) {
    if !terms.iter().any(|known| known.pattern == term.pattern) {
        terms.push(term);
    }
}

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|one| one == word)
}

/// What the forms of one word have in common: always a beginning of the word.
fn stem(word: &str) -> &str {
    if !word.is_ascii() {
        return word;
    }
    if word.starts_with("config") {
        return &word[.."config".len()];
    }
    let stem = ENDINGS.iter().find_map(|ending| {
        let stem = word.strip_suffix(ending)?;
        let enough = if matches!(*ending, "s" | "ies" | "ied") {
            3
        } else {
            4
        };
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

/// A long stem matches anywhere. A short one matches whole words only, or `read` would be
/// found in `thread`; a word ends at an underscore or a capital letter, too.
fn stem_pattern(stem: &str, word: &str) -> String {
    if stem.chars().count() >= LONG_STEM {
        return format!("(?i:{})", escape(stem));
    }
    let own = &word[stem.len()..];
    let of_y = |ending: &str| matches!(ending, "y" | "ies" | "ied");
    let mut endings = ENDINGS.to_vec();
    endings.retain(|ending| !of_y(ending) || of_y(own));
    endings.push(own);
    let last: String = stem.chars().next_back().into_iter().collect();
    let form = |stem: &str| {
        let stem = escape(stem);
        format!("{stem}(?:{last}?(?:{}))?", endings.join("|"))
    };
    let mut letters = stem.chars();
    let first = letters.next().map(char::to_uppercase);
    let capital: String = first.into_iter().flatten().chain(letters).collect();
    format!(
        "(?:(?:\\b|_|[0-9])(?i:{})|{})(?:\\b|_|[A-Z0-9])",
        form(stem),
        form(&capital)
    )
}

/// `text` as a regular expression that matches just it.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for ch in text.chars() {
        if ch.is_ascii_punctuation() && ch != '_' {
            out.push('\\');
        }
        out.push(ch);
    }
    out
}

/// Does this letter belong to a script that writes words without spaces?
fn is_unspaced(ch: char) -> bool {
    matches!(ch, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// The parts to search for in a text of a script without spaces: pairs of letters.
fn unspaced_parts(word: &str) -> Option<Vec<String>> {
    let letters: Vec<char> = word.chars().collect();
    let size = if letters.len() <= 4 { 4 } else { 2 };
    let parts = letters.chunks(size).map(|part| part.iter().collect());
    letters
        .iter()
        .any(|ch| is_unspaced(*ch))
        .then(|| parts.collect())
}

/// Splits off what is written between quotation marks or backticks.
fn quoted_phrases(task: &str) -> (Vec<String>, String) {
    const MARKS: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('„', '“')];
    let (mut phrases, mut rest) = (Vec::new(), String::new());
    let mut left = task;
    while let Some((at, open, close)) = left.char_indices().find_map(|(at, ch)| {
        let mark = MARKS.iter().find(|(open, _)| *open == ch);
        mark.map(|(open, close)| (at, *open, *close))
    }) {
        let after = &left[at + open.len_utf8()..];
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
    phrases.retain(|phrase| !phrase.is_empty());
    (phrases, rest)
}

/// Is it written as only code is: `snake_case`, `camelCase`, `a::b`, `dir/file.rs`?
fn is_identifier(token: &str) -> bool {
    let letters: Vec<char> = token.chars().collect();
    if letters.len() < 3 || letters.iter().any(|ch| is_unspaced(*ch)) {
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
    let parts = identifier_parts(token);
    let mut all = vec![token.to_owned()];
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
        if !ch.is_alphanumeric() || (last.is_lowercase() && ch.is_uppercase()) {
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
#[path = "words_tests.rs"]
mod tests;
