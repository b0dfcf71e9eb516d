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
    let term = &terms("maxSize")[0];
    for text in ["max_size", "MaxSize", "MAX_SIZE", "max-size"] {
        assert!(term.is_in(text), "{text}");
    }
    assert!(!term.is_in("max of size"));
    assert_eq!(words("it's \"never closed"), ["closed"]);
}

#[test]
fn forms_of_a_word_match_each_other() {
    for (asked, text) in [
        ("limits", "limit"),
        ("enforced", "enforces"),
        ("connections", "connect"),
        ("stopped", "stop()"),
        ("stop", "stopping"),
        ("retries", "retry"),
        ("handled", "handler"),
        ("configuration", "Config"),
        ("users", "user"),
        ("process", "process"),
        ("status", "status"),
        ("writes", "write"),
        ("write", "writing"),
        ("caching", "cache"),
        ("tables", "a_table_row"),
        ("state", "STATE_FOLDER"),
        ("queue", "dequeue Queued"),
    ] {
        let term = &terms(asked)[0];
        assert!(term.is_in(text), "{asked} {text} {term:?}");
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
        assert!(term.is_in(text), "{text}");
    }
    for text in ["ready", "READY", "thread", "spread", "readme", "sREAD"] {
        assert!(!term.is_in(text), "{text}");
    }
}

#[test]
fn scripts_without_spaces_are_searched_in_pairs() {
    assert_eq!(words("连接限制在哪里执行？"), ["连接", "限制", "执行"]);
    assert_eq!(
        words("SubAgent委派的状态图"),
        ["SubAgent", "状态图", "委派"]
    );
    assert_eq!(words("这个项目是什么"), Vec::<String>::new());
}

#[test]
fn similar_words_differ_by_one_slip() {
    let similar = |word| terms(word)[0].similar();
    for word in [
        "announse",
        "anounce",
        "annnounce",
        "anonunce",
        "announc",
        "announce",
    ] {
        assert!(similar(word).unwrap().is_in("an announce"), "{word}");
    }
    assert!(!similar("anxxxnce").unwrap().is_in("announce"));
    assert!(similar("lane").is_none());
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
            prop_assert!(term.similar().is_none_or(|term| !term.is_in("")), "{:?}", term);
        }
    }
}
