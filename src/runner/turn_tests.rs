//! Tests of the model loop, driven in memory over real tools and providers.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::driver::{Driver, TurnOutcome};
use super::*;

/// A small source tree that answers "where is the connection limit enforced?".
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (
            "src/server.rs",
            "use crate::limit::Gate;\n\n/// Accepts clients.\npub fn accept(gate: &Gate) {\n    \
             // Too many connections are refused here.\n    \
             if gate.open >= gate.max_connections {\n        \
             return refuse(\"connection limit reached\");\n    }\n}\n",
        ),
        (
            "src/limit.rs",
            "pub struct Gate {\n    pub open: usize,\n    pub max_connections: usize,\n}\n",
        ),
        (
            "src/colour.rs",
            "pub fn paint() -> &'static str {\n    \"blue\"\n}\n",
        ),
        (
            "tests/limit.rs",
            "// connection limit enforced\n#[test]\nfn connection_limit() {}\n",
        ),
        (
            "Cargo.lock",
            "# connection limit enforced connection limit\n",
        ),
        ("README.md", "# A server\n\nIt has a connection limit.\n"),
    ];
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

async fn ask(folder: &Path, task: &str) -> (Driver, String) {
    let mut driver = Driver::new(folder, "offline/search", None, RunnerOptions::default());
    driver.say(task);
    match driver.turn().await {
        TurnOutcome::Text(Some(text)) => (driver, text),
        other => panic!("{other:?}"),
    }
}

/// The locations that an answer names, with the line quoted below each.
fn quotes(answer: &str) -> Vec<(String, usize, String)> {
    let mut quotes = Vec::new();
    let mut lines = answer.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, place)) = line
            .split_once(". ")
            .filter(|(n, _)| n.parse::<u32>().is_ok())
        else {
            continue;
        };
        let place = place.split(" (").next().unwrap();
        let (path, number) = place.rsplit_once(':').unwrap();
        let quoted = lines.peek().unwrap().split_once(" | ").unwrap().1;
        quotes.push((path.to_owned(), number.parse().unwrap(), quoted.to_owned()));
    }
    quotes
}

#[tokio::test]
async fn the_offline_agent_quotes_lines_that_stand_in_the_files() {
    let tree = tree();
    let (driver, text) = ask(tree.path(), "Where is the connection limit enforced?").await;
    assert!(text.contains("text search"), "{text}");
    assert!(
        text.contains("not a model") && text.contains("cannot write"),
        "{text}"
    );
    let quotes = quotes(&text);
    assert!((1..=8).contains(&quotes.len()), "{text}");
    for (path, number, quoted) in &quotes {
        let file = fs::read_to_string(tree.path().join(path)).unwrap();
        assert_eq!(
            file.lines().nth(number - 1),
            Some(quoted.as_str()),
            "{path}:{number}"
        );
    }
    assert_eq!(quotes[0].0, "src/server.rs", "{text}");
    assert!(
        quotes.iter().all(|(path, ..)| path != "src/colour.rs"),
        "{text}"
    );
    let steps = &driver.view.steps;
    let models = steps
        .iter()
        .filter(|step| step.kind == StepKind::Model)
        .count();
    assert_eq!(models, 3);
    assert!((6..=13).contains(&steps.len()), "{} steps", steps.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// C1: words that end in -e, such as "write" and "queue", were reported as not found.
    #[test]
    fn the_offline_agent_finds_every_word_that_stands_in_a_file(
        word in "(write|cache|table|state|queue|[a-z]{2,7}(e|s|ed|y|ies|ing)|[A-Z][a-z]{2,6}\
                 |[a-z]{2,5}_[a-z]{2,5}|[a-z]{2,5}[A-Z][a-z]{2,5}|[一-龥]{2,6}|\\p{L}{3,8})",
        before in "([a-z]{0,9}[ .,(/\"'-]|[a-z]{1,5}_|)",
        after in "([ .,:)(/\"';-][a-z ]{0,9}|_[a-z]{1,5}|)",
        quotes_it in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("{before}{word}{after}");
        fs::write(folder.path().join("notes"), format!("1\n2\n{line}\n4\n")).unwrap();
        let task = match quotes_it {
            true => format!("Where is \"{word}\" kept?"),
            false => format!("Where is {word} kept?"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_, text) = runtime.block_on(ask(folder.path(), &task));
        // A task that consists only of words such as "does" is answered by an overview.
        prop_assume!(!text.contains("an overview"));
        prop_assert_eq!(quotes(&text), [("notes".to_owned(), 3, line)], "{}", text);
        prop_assert!(!text.contains("Not found"), "{}", text);
    }
}

#[tokio::test]
async fn the_offline_agent_gives_the_same_answer_to_the_same_tree() {
    let (one, other) = (tree(), tree());
    let task = "How does the server refuse a client, and what is max_connections?";
    let (first, answer) = ask(one.path(), task).await;
    let (second, same) = ask(other.path(), task).await;
    assert_eq!(answer, same);
    let asked = |driver: &Driver| -> Vec<(Option<String>, Value)> {
        let steps = driver.view.steps.iter();
        steps
            .map(|step| (step.tool_call.clone(), step.input.clone()))
            .collect()
    };
    assert_eq!(asked(&first), asked(&second));
}

#[tokio::test]
async fn the_offline_agent_says_plainly_that_nothing_was_found() {
    let tree = tree();
    let (driver, text) = ask(tree.path(), "Where is the quaternion rotated?").await;
    assert!(text.contains("Nothing was found"), "{text}");
    assert!(
        text.contains("quaternion") && text.contains("rotated"),
        "{text}"
    );
    let models = driver
        .view
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Model);
    assert_eq!(models.count(), 2);
}

#[tokio::test]
async fn the_offline_agent_gives_an_overview_where_there_is_no_word_to_search_for() {
    let tree = tree();
    let (_, text) = ask(tree.path(), "What is this project?").await;
    assert!(
        text.contains("README.md:1") && text.contains("# A server"),
        "{text}"
    );
    let empty = tempfile::tempdir().unwrap();
    let (_, text) = ask(empty.path(), "What is this?").await;
    assert!(text.contains("empty"), "{text}");
}

#[tokio::test]
async fn an_announce_above_what_the_model_saw_goes_on_with_the_turn() {
    let tree = tree();
    let (mut driver, _) = ask(tree.path(), "Where is the connection limit?").await;
    let models = driver.view.steps.len();
    driver.announce("[announce] look: run 7 of agent explore ended ok after 1.0 s, 2 tool calls.\n<<<result\nit is blue\nresult>>>\n");
    let TurnOutcome::Text(Some(text)) = driver.turn().await else {
        panic!("no text");
    };
    assert!(
        text.contains("look: run 7") && text.contains("> it is blue"),
        "{text}"
    );
    assert_eq!(driver.view.steps.len(), models + 1);
}

fn scripted(rules: Value, options: RunnerOptions) -> (tempfile::TempDir, Driver) {
    let tree = tree();
    let script = tree.path().join("script.json");
    fs::write(&script, json!({"rules": rules}).to_string()).unwrap();
    let mut driver = Driver::new(tree.path(), "script/x", Some(&script), options);
    driver.say("task");
    (tree, driver)
}

fn error_kind(ended: TurnOutcome) -> String {
    match ended {
        TurnOutcome::Cut(error, _) => error.kind,
        TurnOutcome::Error(error) => error.kind,
        TurnOutcome::Text(text) => panic!("{text:?}"),
    }
}

#[tokio::test]
async fn tool_calls_of_one_answer_run_at_once_and_a_finished_one_is_not_repeated() {
    let calls = json!([
        {"tool": "grep", "arguments": {"pattern": "limit"}},
        {"tool": "nope", "arguments": {}},
        {"tool": "read", "arguments": {"path": 3}},
    ]);
    let rules = json!([{"match": "*", "answers": [{"text": "", "calls": calls}, {"text": "end"}]}]);
    let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
    let Next::Steps(first) = driver.next() else {
        panic!("no step")
    };
    assert_eq!(first.len(), 1);
    let model = driver.intend(first)[0];
    let outcome = driver.perform(model).await;
    driver.finish(model, outcome).unwrap();
    let Next::Steps(intents) = driver.next() else {
        panic!("no step")
    };
    let tools: Vec<_> = intents
        .iter()
        .filter_map(|one| one.tool.as_deref())
        .collect();
    assert_eq!(tools, ["grep", "nope", "read"]);
    assert_eq!(intents[0].params_summary.as_deref(), Some("pattern: limit"));
    assert!(intents.iter().all(|one| one.effect == EffectClass::Read));
    assert!(
        intents
            .iter()
            .all(|one| one.asked_by == Some(driver.view.steps[model].id))
    );
    // As after a kill: one outcome is stored, the other steps are repeated.
    let open = driver.intend(intents);
    for index in [open[1], open[0], open[2]] {
        let outcome = driver.perform(index).await;
        driver.finish(index, outcome).unwrap();
    }
    let texts: Vec<String> = driver
        .view
        .messages
        .iter()
        .map(|one| format!("{:?}", one.content))
        .collect();
    assert!(
        texts
            .iter()
            .any(|text| text.contains("no tool \\\"nope\\\"")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("path: expected")),
        "{texts:?}"
    );
    assert_eq!(
        driver.turn().await,
        TurnOutcome::Text(Some("end".to_owned()))
    );
    assert_eq!(driver.view.steps.len(), 5);
}

#[tokio::test]
async fn an_answer_with_nothing_in_it_is_asked_for_twice_more() {
    let rules = json!([{"match": "*", "answers": [{}, {}, {"text": "third"}]}]);
    let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
    assert_eq!(
        driver.turn().await,
        TurnOutcome::Text(Some("third".to_owned()))
    );
    let rules = json!([{"match": "*", "answers": [{}, {"text": " "}, {}, {"text": "fourth"}]}]);
    let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
    assert_eq!(driver.turn().await, TurnOutcome::Text(None));
    assert_eq!(driver.view.steps.len(), 3);
}

#[tokio::test]
async fn a_model_that_never_ends_meets_max_loops() {
    let mut answers: Vec<Value> = (0..30)
        .map(|_| json!({"calls": [{"tool": "list", "arguments": {}}]}))
        .collect();
    let ended = async |answers: &[Value]| {
        let rules = json!([{"match": "*", "answers": answers}]);
        let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
        let ended = driver.turn().await;
        let models = driver.view.steps.iter();
        let models = models.filter(|step| step.kind == StepKind::Model).count();
        (ended, models)
    };
    let (silent, asked) = ended(&answers).await;
    assert!(matches!(&silent, TurnOutcome::Error(error) if error.kind == "max_loops"));
    assert_eq!(asked, 20);
    // The model's texts are not lost.
    for (index, text) in [(3, "one half"), (17, "the other half"), (25, "too late")] {
        answers[index]["text"] = json!(text);
    }
    let (told, asked) = ended(&answers).await;
    let TurnOutcome::Cut(error, found) = told else {
        panic!("{told:?}");
    };
    assert_eq!((error.kind.as_str(), asked), ("max_loops", 20));
    assert_eq!(found, "one half\n\nthe other half");
}

#[tokio::test]
async fn a_providers_fault_ends_the_run_with_its_words() {
    let rules = json!([{"match": "*", "answers": [{"fail": "out of service"}]}]);
    let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
    let TurnOutcome::Error(error) = driver.turn().await else {
        panic!("no error");
    };
    assert_eq!(error.kind, "provider");
    assert!(
        error.message.contains("out of service"),
        "{}",
        error.message
    );
}

#[tokio::test]
async fn g3_9_every_model_call_has_a_limit() {
    let rules = json!([{"match": "*", "answers": [{"text": "late", "hold": "never"}]}]);
    let options = RunnerOptions {
        model_timeout: Duration::from_millis(1),
        ..RunnerOptions::default()
    };
    let (_tree, mut driver) = scripted(rules, options);
    assert_eq!(error_kind(driver.turn().await), "provider_timeout");
}

#[tokio::test]
async fn a_panic_of_a_provider_is_not_swallowed() {
    let rules = json!([{"match": "*", "answers": [{"panic": true}]}]);
    let (_tree, mut driver) = scripted(rules, RunnerOptions::default());
    let ended = tokio::spawn(async move { driver.turn().await }).await;
    assert!(ended.unwrap_err().is_panic());
}

#[test]
fn a_pin_that_cannot_be_read_ends_the_run() {
    let tree = tree();
    let mut driver = Driver::new(
        tree.path(),
        "offline/search",
        None,
        RunnerOptions::default(),
    );
    driver.say("task");
    driver.view.agent = "{".into();
    assert!(matches!(driver.next(), Next::Fail(error) if error.kind == "pins"));
}
