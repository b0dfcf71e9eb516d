//! `docs/reference` lists every method with its parameters, every error kind, every event kind and
//! every setting, each exactly once and as the program has them.

use std::collections::BTreeSet;
use std::fs;

use abide::config::{
    Config, HookTable, PriceTable, ProviderTable, ServerTable, SkillTable, WebhookTable, is_live,
    shown,
};
use abide::kernel::event::EventKind;
use abide::kernel::fault::Kind;
use abide::wire::error::row;
use abide::wire::events::UNSTORED;
use serde_json::json;

use crate::harness::{Place, Script, run};
use crate::house::root;

/// A row of a table: the text of each cell.
type Row = Vec<String>;

/// Rows of the tables on this page whose header begins with `header`. An escaped `|` within a cell
/// becomes `/`.
fn rows_of(page: &str, header: &[&str]) -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/reference").join(page)).unwrap();
    let mut rows = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if !line.starts_with('|') {
            is_inside = false;
            continue;
        }
        let plain = line.replace("\\|", "/");
        let inner = plain.trim().trim_start_matches('|').trim_end_matches('|');
        let cells: Row = inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect();
        let is_header = cells.len() >= header.len()
            && header.iter().zip(&cells).all(|(name, cell)| name == cell);
        if is_header {
            is_inside = true;
        } else if is_inside && !line.starts_with("|---") {
            rows.push(cells);
        }
    }
    rows
}

/// The file names of all pages.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = fs::read_dir(root().join("docs/reference"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    pages.sort();
    pages
}

/// The name in backticks that a row begins with.
fn name(row: &Row) -> String {
    row[0].trim_matches('`').to_owned()
}

/// Fails unless the documented names are exactly those of the program, each once.
fn assert_same(what: &str, documented: &[String], actual: BTreeSet<String>) {
    let unique: BTreeSet<String> = documented.iter().cloned().collect();
    let missing: Vec<&String> = actual.difference(&unique).collect();
    let unknown: Vec<&String> = unique.difference(&actual).collect();
    assert!(
        missing.is_empty(),
        "docs/reference lacks {what}: {missing:?}"
    );
    assert!(
        unknown.is_empty(),
        "docs/reference has unknown {what}: {unknown:?}"
    );
    assert_eq!(
        documented.len(),
        unique.len(),
        "{what} are documented twice"
    );
}

#[test]
fn every_method_is_documented_with_its_parameters() {
    let document = run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.call("rpc.discover", json!({})).await
    });
    let header = ["Method", "Parameters", "Result"];
    let rows: Vec<Row> = pages()
        .iter()
        .flat_map(|page| rows_of(page, &header))
        .collect();
    let names: Vec<String> = rows.iter().map(name).collect();
    let methods = document["methods"].as_array().unwrap();
    let actual = methods
        .iter()
        .map(|method| method["name"].as_str().unwrap().to_owned())
        .collect();
    assert_same("methods", &names, actual);
    for method in methods {
        let called = method["name"].as_str().unwrap();
        let row = rows.iter().find(|row| name(row) == called).unwrap();
        let words: BTreeSet<&str> = row[1]
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .collect();
        for parameter in method["params"].as_array().unwrap() {
            let parameter = parameter["name"].as_str().unwrap();
            // The two of every list are described once, in transport-and-errors.md.
            if ["limit", "cursor"].contains(&parameter) {
                continue;
            }
            assert!(
                words.contains(parameter),
                "docs/reference: {called} lacks the parameter {parameter}"
            );
        }
    }
}

#[test]
fn every_error_kind_is_documented_with_its_codes() {
    let header = ["Kind", "Code", "Exit", "Retry"];
    let rows = rows_of("transport-and-errors.md", &header);
    let names: Vec<String> = rows.iter().map(name).collect();
    let actual = Kind::ALL
        .iter()
        .map(|kind| kind.as_str().to_owned())
        .collect();
    assert_same("error kinds", &names, actual);
    for kind in Kind::ALL {
        let documented = rows.iter().find(|row| name(row) == kind.as_str()).unwrap();
        let fact = row(*kind);
        let retry = if fact.retryable { "yes" } else { "no" };
        let expected = [
            fact.code.to_string(),
            fact.exit.to_string(),
            retry.to_owned(),
        ];
        assert_eq!(documented[1..4], expected, "{}", kind.as_str());
    }
}

#[test]
fn every_event_kind_is_documented() {
    let rows = rows_of("events.md", &["Kind", "`data`"]);
    let names: Vec<String> = rows.iter().map(name).collect();
    let stored = EventKind::ALL.iter().map(EventKind::to_string);
    let unstored = UNSTORED.iter().map(|(kind, _)| (*kind).to_owned());
    assert_same("event kinds", &names, stored.chain(unstored).collect());
}

#[test]
fn every_setting_is_documented_with_its_default() {
    let rows = rows_of("settings.md", &["Setting", "Default", "Reload"]);
    let names: Vec<String> = rows.iter().map(name).collect();
    let fixed = Config::default();
    let mut config = Config::default();
    let table = "NAME".to_owned();
    let named = &mut config.named;
    named
        .providers
        .insert(table.clone(), ProviderTable::default());
    named.mcp.insert(table.clone(), ServerTable::default());
    named.hooks.insert(table.clone(), HookTable::default());
    named.skills.insert(table.clone(), SkillTable::default());
    named
        .webhooks
        .insert(table.clone(), WebhookTable::default());
    named.prices.insert(table, PriceTable::default());
    let actual = config.keys().iter().map(|key| key.to_string()).collect();
    assert_same("settings", &names, actual);
    for documented in &rows {
        let key = name(documented);
        let reload = if is_live(&key) { "yes" } else { "no" };
        assert_eq!(documented[2], reload, "{key}");
        if !fixed.has(&key) {
            continue;
        }
        let default = match fixed.value(&key) {
            Some(value) => format!("`{}`", shown(&key, Some(&value))),
            None => "unset".to_owned(),
        };
        assert_eq!(documented[1], default, "{key}");
    }
}
