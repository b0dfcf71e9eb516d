//! Everything that is linked into the binary may be redistributed under this crate's licence.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

/// Licences that require only their text and a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

fn satisfiable(expression: &str) -> Result<bool, String> {
    let parsed = Expression::parse_mode(expression, ParseMode::LAX).map_err(|e| e.to_string())?;
    Ok(parsed.evaluate(|requirement| {
        requirement
            .license
            .id()
            .is_some_and(|id| ALLOWED.contains(&id.name))
    }))
}

#[test]
fn the_list_is_applied_as_written() {
    for good in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "MIT/Apache-2.0",
        "ISC AND Zlib",
    ] {
        assert_eq!(satisfiable(good), Ok(true), "{good}");
    }
    for bad in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "SSPL-1.0"] {
        assert_eq!(satisfiable(bad), Ok(false), "{bad}");
    }
    assert!(satisfiable("do what you like").is_err());
}

#[test]
fn every_dependency_has_a_licence_that_fits() {
    let metadata = metadata();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .map(|node| (text(&node["id"]), node))
        .collect();

    // Packages that this crate reaches through normal dependencies: those of tests and build
    // scripts are not shipped.
    let own = text(&metadata["resolve"]["root"]);
    let mut shipped = BTreeSet::from([own]);
    let mut open = vec![own];
    while let Some(id) = open.pop() {
        for dependency in list(&nodes[id]["deps"]) {
            let is_normal = list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
            let id = text(&dependency["pkg"]);
            if is_normal && shipped.insert(id) {
                open.push(id);
            }
        }
    }

    let mut faults = Vec::new();
    for package in list(&metadata["packages"]).filter(|it| shipped.contains(text(&it["id"]))) {
        let fault = match package["license"].as_str().map(satisfiable) {
            Some(Ok(true)) => continue,
            Some(Ok(false)) => "not on the list".to_owned(),
            Some(Err(fault)) => fault,
            None => "it states none".to_owned(),
        };
        let (name, licence) = (&package["name"], &package["license"]);
        faults.push(format!("{name}: {licence}: {fault}"));
    }
    assert!(shipped.len() > 20, "the walk found only {}", shipped.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The output of `cargo metadata` for this crate and its dependencies.
fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &host(), "--manifest-path"])
        .arg(super::house::root().join("Cargo.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The host platform: its packages are already downloaded, those of others are not.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap()
        .to_owned()
}
