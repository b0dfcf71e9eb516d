//! Matches patterns (`*` matches any text) against texts with holes, and against words whose
//! options may be spelled or ordered differently.

use super::super::pattern::fits;
use super::word::{HOLE, ShellWord};

/// Maximum length of a text with holes; longer ones may match anything.
const TEXT_LIMIT: usize = 32 * 1024;
/// Maximum number of words that are compared with other spellings; with more, a match cannot be
/// ruled out.
const WORDS_LIMIT: usize = 1000;
/// Maximum number of compared positions of pattern and text; with more, a match cannot be ruled
/// out.
const STEPS: usize = 8 * 1024 * 1024;

/// Maximum number of letters after one dash that are read as a cluster of short options.
const CLUSTER: usize = 4;

/// True if the pattern matches any text.
pub(super) fn is_wide(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.chars().all(|c| c == '*')
}

/// True if `text` matches whatever its holes stand for.
pub(super) fn must_fit(pattern: &str, text: &str) -> bool {
    !pattern.contains(HOLE) && fits(pattern, text)
}

/// True if `text` matches for some content of its holes.
pub fn may_fit(pattern: &str, text: &str) -> bool {
    if !text.contains(HOLE) {
        return fits(pattern, text);
    }
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    if text.len() > TEXT_LIMIT || pattern.len().saturating_mul(text.len()) > STEPS {
        return true;
    }
    // Row by row from the end: can the rest of the pattern match the rest of the text?
    let mut below = vec![false; text.len() + 1];
    for at in (0..=pattern.len()).rev() {
        let mut row = vec![false; text.len() + 1];
        for to in (0..=text.len()).rev() {
            let left = pattern.get(at);
            row[to] = match (left, text.get(to)) {
                (None, None) => true,
                (Some('*'), _) => below[to] || (to < text.len() && row[to + 1]),
                (_, Some(&HOLE)) => row[to + 1] || (left.is_some() && below[to]),
                (Some(a), Some(b)) => a == b && below[to + 1],
                _ => false,
            };
        }
        below = row;
    }
    below[0]
}

/// True if the words could be another spelling of what the pattern names. Options may be moved,
/// joined or split, long or short, and have values; a program may be named with its folder, or be
/// started by another one.
pub(super) fn may_mean(pattern: &str, words: &[ShellWord]) -> bool {
    let tokens: Vec<&str> = pattern.split_whitespace().collect();
    if tokens.is_empty() {
        return false;
    }
    if words.len() > WORDS_LIMIT {
        return true;
    }
    (0..words.len()).any(|start| may_start(&tokens, &words[start..]))
}

fn may_start(tokens: &[&str], words: &[ShellWord]) -> bool {
    let (program, rest) = (tokens[0], &words[1..]);
    if is_wide(program) && tokens.len() == 1 {
        return false;
    }
    let base = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
    let named = may_fit(program, &words[0].text) || may_fit(&base(program), words[0].base());
    if !named && !is_wide(program) {
        return false;
    }
    // `git*`: the rest may be anything.
    if tokens.len() == 1 && program.ends_with('*') {
        return true;
    }
    let (options, wanted): (Vec<&str>, Vec<&str>) =
        tokens[1..].iter().partition(|token| token.starts_with('-'));
    options.iter().all(|option| may_have(option, rest))
        && in_order(
            &wanted,
            rest,
            tokens.last().is_some_and(|last| last.ends_with('*')),
        )
}

/// True if these words may contain the option, as written or in another form.
fn may_have(option: &str, words: &[ShellWord]) -> bool {
    let open = |word: &ShellWord| word.has_hole() && word.may_be_option();
    if words
        .iter()
        .any(|word| open(word) || may_fit(option, &word.text))
    {
        return true;
    }
    let wanted = option.trim_end_matches('*');
    let short = |letter: char| {
        words.iter().any(|word| match word.text.strip_prefix("--") {
            Some(long) => long.starts_with(letter),
            None => word
                .text
                .strip_prefix('-')
                .is_some_and(|rest| rest.contains(letter)),
        })
    };
    match wanted.strip_prefix("--") {
        // An abbreviation of it, or its first letter.
        Some(name) => {
            let shorter = words.iter().filter_map(|word| word.text.strip_prefix("--"));
            shorter
                .filter_map(|found| found.split('=').next())
                .any(|found| !found.is_empty() && name.starts_with(found))
                || name.chars().next().is_some_and(short)
        }
        // Its letters apart, in another order, or as the first letters of long options.
        None => {
            let letters = wanted.trim_start_matches('-');
            letters.len() <= CLUSTER && letters.chars().all(short)
        }
    }
}

/// True if these tokens may be among the words in this order, with only options and their values
/// between them. `open`: anything may follow.
fn in_order(tokens: &[&str], words: &[ShellWord], open: bool) -> bool {
    let skips = |at: usize| {
        words[at].may_be_option()
            || words[at].text.starts_with('+')
            || at
                .checked_sub(1)
                .is_some_and(|before| words[before].may_be_option())
    };
    // may[at]: can the remaining tokens be found in the words from `at` on?
    let mut may = vec![false; words.len() + 1];
    may[words.len()] = true;
    for at in (0..words.len()).rev() {
        may[at] = open || (may[at + 1] && skips(at));
    }
    for token in tokens.iter().rev() {
        let mut next = vec![false; words.len() + 1];
        next[words.len()] = is_wide(token) && may[words.len()];
        for at in (0..words.len()).rev() {
            let word = &words[at];
            next[at] = (may_fit(token, &word.text) && may[at + 1])
                || (word.splits && (may[at] || next[at + 1]))
                || (skips(at) && next[at + 1])
                || (is_wide(token) && (may[at] || next[at + 1]));
        }
        may = next;
    }
    may[0]
}
