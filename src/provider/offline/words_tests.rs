//! Tests of extracting terms from a task and of what a term matches.

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
    assert_eq!(words("What is this project?"), Vec::<String>::new());
    assert_eq!(words("limit limits Limit").len(), 1);
}

#[test]
fn words_of_questions_are_searched_for_where_there_is_nothing_else() {
    assert_eq!(words("call"), ["call"]);
    assert_eq!(words("Where is the main module?"), ["module", "main"]);
    assert_eq!(words("Where is the main loop?"), ["loop"]);
    assert_eq!(words("where is \"find\" used"), ["find"]);
}

#[test]
fn quotations_and_identifiers_come_first_and_whole() {
    assert_eq!(
        words("what calls maxSize in src/a.rs with \"too many\" retries"),
        ["maxSize", "src/a.rs", "too many", "retries"]
    );
    assert_eq!(words("it's \"never closed"), ["closed"]);
}

#[test]
fn a_word_is_found_where_a_word_begins() {
    let term = &terms("reads")[0];
    for text in [
        "read",
        "read_all",
        "readAll",
        "mustRead()",
        "Reader",
        "MUST_READ",
        "reads",
    ] {
        assert!(term.is_in(text), "{text}");
    }
    for text in ["thread", "spread", "sREAD"] {
        assert!(!term.is_in(text), "{text}");
    }
}

#[test]
fn scripts_without_spaces_are_searched_in_pairs() {
    assert_eq!(words("连接限制"), ["连接", "限制"]);
    assert_eq!(words("SubAgent委派的状态"), ["SubAgent", "委派", "的状"]);
}

proptest! {
    // Compiling a regular expression is slow in the dev profile.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A word of the task is found wherever a file contains it, alone or inside an identifier.
    #[test]
    fn every_word_of_the_task_is_found(
        word in "([a-z]{1,9}(e|s|es|ed|ing|ies|y|er|ion|ss|)|[A-Za-z]{2,8}|[0-9a-z]{2,6}|\\p{L}{2,8})",
        before in "([a-z ]{0,9}[ .,(/\"'-]|[a-z]{1,5}_|)",
        after in "([ .,:)(/\"';-][a-z ]{0,9}|_[a-z]{1,5}|)",
        upper in any::<bool>(),
    ) {
        let written = if upper && word.is_ascii() { word.to_ascii_uppercase() } else { word.clone() };
        let line = format!("{before}{written}{after}");
        for term in terms(&word) {
            prop_assert!(term.is_in(&line), "{:?} in {:?}", term, line);
        }
        let asked = terms(&format!("Where is \"{word}\" kept?"));
        prop_assert!(asked[0].is_in(&line), "{:?} in {:?}", asked, line);
    }

    #[test]
    fn any_task_gives_valid_patterns(task in "\\PC{0,60}") {
        for term in terms(&task) {
            prop_assert!(!term.is_in(""), "{:?}", term);
        }
    }
}
