//! Tests of how a task becomes terms and how a term matches.

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use proptest::prelude::*;

use super::*;

fn words(task: &str) -> Vec<String> {
    terms(task).into_iter().map(|term| term.word).collect()
}

#[test]
fn the_words_that_matter_are_left() {
    assert_eq!(
        words("Where is the connection limit enforced?"),
        ["connection", "enforced", "limit"]
    );
    assert!(terms("entry points")[0].names("fn main() {"));
    assert_eq!(words("Where are the entry points?"), ["entry point"]);
    assert_eq!(words("Where does the program start?"), ["entry point"]);
    assert_eq!(words("how are users told of a limit")[0], "limit");
    assert_eq!(words("What is this project?"), Vec::<String>::new());
    assert_eq!(words("limit limits Limit").len(), 1);
}

#[test]
fn what_was_meant_exactly_comes_first_and_whole() {
    assert_eq!(
        words("what calls maxSize in src/a.rs with \"too many\" retries"),
        ["too many", "maxSize", "src/a.rs", "retries"]
    );
    let term = &terms("maxSize")[0];
    for text in ["max_size", "MaxSize", "MAX_SIZE", "max-size"] {
        assert!(term.names(text), "{text}");
    }
    assert!(!term.names("max of size"));
    assert_eq!(words("it's \"never closed"), ["closed"]);
}

#[test]
fn forms_of_a_word_match_each_other() {
    for (asked, text) in [
        ("limits", "limit"),
        ("enforced", "enforces"),
        ("connections", "connect"),
        ("stopped", "stop()"),
        ("retries", "retry"),
        ("handled", "handler"),
        ("configuration", "Config"),
        ("users", "user"),
        ("process", "process"),
        ("status", "status"),
    ] {
        let term = &terms(asked)[0];
        assert!(term.names(text), "{asked} {text} {term:?}");
    }
}

#[test]
fn a_short_word_matches_whole_words_only() {
    let term = &terms("read")[0];
    for text in [
        "read",
        "read_all",
        "readAll",
        "mustRead()",
        "Reader",
        "reads",
    ] {
        assert!(term.names(text), "{text}");
    }
    for text in ["ready", "thread", "spread", "readme"] {
        assert!(!term.names(text), "{text}");
    }
}

#[test]
fn a_relative_counts_less_than_the_word() {
    let term = &terms("configuration")[0];
    assert!(term.strength("load_settings()") > 0.0);
    assert!(term.strength("load_settings()") < term.strength("load_config()"));
}

#[test]
fn scripts_without_spaces_are_searched_in_pairs() {
    assert_eq!(
        words("连接限制在哪里执行"),
        ["连接", "限制", "在哪", "里执", "行"]
    );
}

proptest! {
    // Building a regular expression is slow without optimisation.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What is ranked must first be found: the search may find more than the ranking takes,
    /// never less.
    #[test]
    fn the_search_finds_what_the_ranking_counts(
        task in "(read|limits|Config|maxSize|log|entry point|a_b|errors)",
        line in "[ a-zA-Z_.(]{0,6}(read|Read|limit|config|max_size|log|LOG|a_b|open\\(|fail)[ a-zA-Z_(]{0,6}",
    ) {
        for term in terms(&task) {
            if term.strength(&line) > 0.0 {
                let regex = RegexMatcher::new(&term.pattern(true)).unwrap();
                prop_assert!(regex.is_match(line.as_bytes()).unwrap(), "{:?}", term);
            }
        }
    }

    #[test]
    fn any_task_gives_patterns_that_are_valid(task in "\\PC{0,60}") {
        for term in terms(&task) {
            prop_assert!(RegexMatcher::new(&term.pattern(true)).is_ok(), "{:?}", term);
            prop_assert!(RegexMatcher::new(&term.loosened().pattern(true)).is_ok());
            term.strength(&task);
            // Letters whose small form has another length must not shift the check.
            term.strength(&format!("\u{212a}\u{130}{task}\u{130}"));
        }
    }
}
