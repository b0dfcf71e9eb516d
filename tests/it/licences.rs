//! Everything that is linked into the binary may be given away under this crate's licence.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};
use spdx::{Expression, ParseMode};

/// Licences that ask for no more than their own text and a notice.
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
    let target = host();
    let metadata = MetadataCommand::new()
        .manifest_path(super::house::root().join("Cargo.toml"))
        .other_options(vec!["--locked".into(), "--filter-platform".into(), target])
        .exec()
        .unwrap();
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();

    // What normal dependencies reach from this crate: tests and build scripts are not shipped.
    let own = resolve.root.as_ref().unwrap();
    let mut shipped = BTreeSet::from([own]);
    let mut open = vec![own];
    while let Some(id) = open.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency
                .dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal);
            if normal && shipped.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }

    let mut faults = Vec::new();
    for package in metadata.packages.iter().filter(|p| shipped.contains(&p.id)) {
        let fault = match package.license.as_deref().map(satisfiable) {
            Some(Ok(true)) => continue,
            Some(Ok(false)) => "not on the list".to_owned(),
            Some(Err(fault)) => fault,
            None => "it states none".to_owned(),
        };
        let (name, licence) = (&package.name, &package.license);
        faults.push(format!("{name}: {licence:?}: {fault}"));
    }
    assert!(shipped.len() > 20, "the walk found only {}", shipped.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The machine's own platform: its packages are here already, others would be fetched.
fn host() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap()
        .to_owned()
}
