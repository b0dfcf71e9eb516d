//! Checks the import table: which module of the source may use which other.
//!
//! A module here is a folder or file directly in `src/`. Every path that leaves it, in `use`
//! declarations, in code and in macros, is checked against [`TABLE`]. Test modules (`#[cfg(test)]`)
//! may use everything.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};

use crate::house::root;

/// For each module, the modules that it may use besides itself and [`OPEN_TO`].
const TABLE: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("contract", &[]),
    ("clock", &[]),
    ("telemetry", &[]),
    ("failpoint", &[]),
    ("file_work", &[]),
    ("config", &[]),
    ("outbound", &[]),
    ("tls", &[]),
    ("version", &[]),
    ("store", &[]),
    ("command", &["store"]),
    ("watch", &[]),
    ("process", &[]),
    ("front_matter", &[]),
    ("agent", &["watch", "front_matter"]),
    ("skill", &["watch", "front_matter"]),
    ("provider", &[]),
    ("tool", &["skill", "process"]),
    ("acp_protocol", &[]),
    (
        "runner",
        &[
            "acp_protocol",
            "agent",
            "provider",
            "tool",
            "skill",
            "process",
        ],
    ),
    ("registry", &["store", "command", "wire"]),
    ("node", &["wire", "client", "process"]),
    ("wire", &[]),
    ("client", &["wire"]),
    ("acp", &["acp_protocol", "wire", "client"]),
    ("doors", &["wire"]),
    ("webhooks", &["registry", "wire", "doors"]),
    (
        "gateway",
        &["registry", "agent", "skill", "node", "wire", "doors"],
    ),
    (
        "cli",
        &[
            "acp", "wire", "client", "skill", "node", "process", "daemon", "doors",
        ],
    ),
    (
        "daemon",
        &[
            "agent", "cli", "client", "command", "gateway", "node", "process", "provider",
            "registry", "runner", "skill", "store", "tool", "watch", "webhooks", "wire",
        ],
    ),
    // The program itself parses and runs the command line.
    ("main", &["cli"]),
];

/// Modules that others may use without being listed, each with those that may not.
const OPEN_TO: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("contract", &["kernel"]),
    ("clock", &["kernel", "contract"]),
    ("telemetry", &["kernel", "contract"]),
    ("failpoint", &["kernel", "contract", "wire"]),
    ("file_work", &["kernel", "contract", "wire"]),
    ("config", &["kernel", "contract", "wire"]),
    ("outbound", &["kernel", "contract", "wire"]),
    ("tls", &["kernel", "contract", "wire"]),
    ("version", &["kernel", "contract", "wire"]),
];

/// Names that only certain files or folders may use.
const KEPT: &[(&str, &[&str])] = &[
    ("rusqlite", &["store/sqlite.rs"]),
    ("jsonrpsee", &["gateway/", "client.rs"]),
    ("notify", &["watch.rs"]),
    // kernel/time.rs only formats.
    ("Instant", &["clock.rs"]),
    ("SystemTime", &["clock.rs", "kernel/time.rs"]),
];

/// Libraries with a function or module that coincidentally has one of these names.
const UNLIKE: &[&str] = &["sd_notify"];

fn may_use(from: &str, to: &str) -> bool {
    let listed = TABLE
        .iter()
        .any(|(room, uses)| *room == from && uses.contains(&to));
    let open = OPEN_TO
        .iter()
        .any(|(room, except)| *room == to && !except.contains(&from));
    from == to || listed || open
}

fn may_name(file: &str, name: &str) -> bool {
    KEPT.iter()
        .filter(|(kept, _)| *kept == name)
        .all(|(_, places)| {
            places
                .iter()
                .any(|place| file == *place || (place.ends_with('/') && file.starts_with(place)))
        })
}

/// A source file with its module path: `src/store/mod.rs` is `["store"]`.
struct Source {
    file: PathBuf,
    module: Vec<String>,
    /// True if it is compiled for tests only.
    is_test: bool,
}

/// Collects the files that the compiler reads, starting at `file`.
fn walk(file: PathBuf, module: Vec<String>, is_test: bool, found: &mut Vec<Source>) {
    let syntax = syn::parse_file(&fs::read_to_string(&file).unwrap()).unwrap();
    let folder = match file.file_stem().unwrap().to_str().unwrap() {
        "mod" | "lib" | "main" => file.parent().unwrap().to_owned(),
        _ => file.with_extension(""),
    };
    for item in &syntax.items {
        let syn::Item::Mod(declared) = item else {
            continue;
        };
        if declared.content.is_some() {
            continue;
        }
        let name = declared.ident.to_string();
        let mut inner = module.clone();
        inner.push(name.clone());
        let path = match named_path(&declared.attrs) {
            // Relative to the folder of the declaring file.
            Some(path) => file.parent().unwrap().join(path),
            None => {
                let flat = folder.join(format!("{name}.rs"));
                let deep = folder.join(&name).join("mod.rs");
                if flat.exists() { flat } else { deep }
            }
        };
        assert!(path.exists(), "no file for module {}", inner.join("::"));
        walk(path, inner, is_test || marks_test(&declared.attrs), found);
    }
    found.push(Source {
        file,
        module,
        is_test,
    });
}

/// The value of `#[path = "…"]`.
fn named_path(attributes: &[syn::Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(syn::MetaNameValue {
                path,
                value:
                    syn::Expr::Lit(syn::ExprLit {
                        lit: syn::Lit::Str(text),
                        ..
                    }),
                ..
            }) if path.is_ident("path") => Some(text.value()),
            _ => None,
        })
}

fn marks_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|path| path.is_ident("test")))
    })
}

/// Collects every path of a file as absolute segments (`["crate", "store", …]`, or a crate's name
/// first).
struct Paths {
    module: Vec<String>,
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    fn add(&mut self, segments: Vec<String>) {
        let mut segments = segments;
        let up = segments.iter().take_while(|part| *part == "super").count();
        if up > 0 {
            let mut absolute = vec!["crate".to_owned()];
            let keep = self.module.len().saturating_sub(up);
            absolute.extend_from_slice(&self.module[..keep]);
            absolute.extend(segments.drain(up..));
            segments = absolute;
        }
        self.found.insert(segments);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.tree(&path, &part.tree);
            }
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.add(path);
            }
            syn::UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.add(path);
            }
            syn::UseTree::Glob(_) => self.add(path),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(before, tree);
                }
            }
        }
    }

    /// The tokens of a macro are not a syntax tree, so its paths are parsed from their text.
    fn tokens(&mut self, text: &str) {
        let text = text
            .replace(" :: ", "::")
            .replace(":: ", "::")
            .replace(" ::", "::");
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in text.split(|c| !is_part(c)) {
            let parts: Vec<String> = word.split("::").map(str::to_owned).collect();
            if parts.len() > 1 || KEPT.iter().any(|(name, _)| *name == word) {
                self.add(parts);
            }
        }
    }
}

/// The tokens as text without literals, which contain no paths.
fn without_literals(tokens: TokenStream) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => text.push_str(&without_literals(group.stream())),
            TokenTree::Punct(one) if one.spacing() == Spacing::Joint => {
                text.push(one.as_char());
                continue;
            }
            TokenTree::Literal(_) => {}
            other => text.push_str(&other.to_string()),
        }
        text.push(' ');
    }
    text
}

impl VisitMut for Paths {
    fn visit_item_mut(&mut self, item: &mut syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return visit_mut::visit_item_mut(self, item),
        };
        if !marks_test(attributes) {
            visit_mut::visit_item_mut(self, item);
        }
    }

    fn visit_item_mod_mut(&mut self, item: &mut syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit_mut::visit_item_mod_mut(self, item);
        self.module.pop();
    }

    fn visit_item_use_mut(&mut self, item: &mut syn::ItemUse) {
        self.tree(&[], &item.tree);
    }

    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        self.add(
            path.segments
                .iter()
                .map(|part| part.ident.to_string())
                .collect(),
        );
        visit_mut::visit_path_mut(self, path);
    }

    fn visit_macro_mut(&mut self, call: &mut syn::Macro) {
        self.tokens(&without_literals(call.tokens.clone()));
        visit_mut::visit_macro_mut(self, call);
    }
}

fn paths(source: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut paths = Paths {
        module: module.to_vec(),
        found: BTreeSet::new(),
    };
    paths.visit_file_mut(&mut syn::parse_file(source).unwrap());
    paths.found
}

/// All violations in one file. `rooms` are the names of the rooms.
fn faults(file: &str, module: &[String], source: &str, rooms: &BTreeSet<String>) -> Vec<String> {
    let Some(room) = module.first() else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for path in paths(source, module) {
        // The binary names the library as an external crate.
        let inside = path[0] == "crate" || path[0] == "abide";
        if let Some(to) = path.get(1).filter(|to| inside && rooms.contains(*to))
            && !may_use(room, to)
        {
            faults.push(format!("{file}: {room} may not use {}", path.join("::")));
        }
        let unlike = UNLIKE.contains(&path[0].as_str());
        for name in path.iter().filter(|name| !unlike && !may_name(file, name)) {
            faults.push(format!(
                "{file}: {name} has a place of its own ({})",
                path.join("::")
            ));
        }
    }
    faults
}

/// Every source file, and the names of the rooms; read once for all tests.
static TREE: LazyLock<(Vec<Source>, BTreeSet<String>)> = LazyLock::new(tree);

fn tree() -> (Vec<Source>, BTreeSet<String>) {
    let source = root().join("src");
    let mut files = Vec::new();
    // The kernel is a separate package with the same paths.
    for package in ["lib.rs", "kernel/lib.rs"] {
        walk(source.join(package), Vec::new(), false, &mut files);
    }
    let rooms = files
        .iter()
        .filter_map(|file| file.module.first().cloned())
        .collect();
    files.push(Source {
        file: source.join("main.rs"),
        module: vec!["main".to_owned()],
        is_test: false,
    });
    (files, rooms)
}

#[test]
fn each_room_uses_only_what_the_table_allows() {
    let (files, rooms) = &*TREE;
    let source = root().join("src");
    let mut found = Vec::new();
    for Source { file, module, .. } in files.iter().filter(|source| !source.is_test) {
        let name = file.strip_prefix(&source).unwrap().to_str().unwrap();
        found.extend(faults(
            name,
            module,
            &fs::read_to_string(file).unwrap(),
            rooms,
        ));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn each_room_is_in_the_table() {
    for room in &TREE.1 {
        let listed = TABLE.iter().any(|(name, _)| name == room);
        assert!(listed, "src/{room} has no row in the import table");
    }
}

#[test]
fn each_source_file_is_compiled() {
    let (files, _) = &*TREE;
    let read: BTreeSet<&Path> = files.iter().map(|source| source.file.as_path()).collect();
    let sample = root().join("src/cli/demo/sample");
    for file in super::house::rust_files(&root().join("src")) {
        let file = file.as_path();
        assert!(
            read.contains(file) || file.starts_with(&sample),
            "{} belongs to no module",
            file.display()
        );
    }
}

/// Tests the check itself: every syntax of a path is detected.
#[test]
fn a_break_of_the_table_is_found_however_it_is_written() {
    let rooms = ["kernel", "store", "registry"].map(str::to_owned).into();
    let module = ["kernel".to_owned(), "run".to_owned()];
    for bad in [
        "use crate::store::Store;",
        "use crate::{kernel::ids, store};",
        "use crate::{kernel::{ids, run}, store::{self, tx::Tx}};",
        "use super::super::store::Tx;",
        "fn f() -> crate::store::Tx { g() }",
        "fn f() { let x = vec![crate::store::Tx::new()]; }",
        "mod inner { use super::super::super::store::Tx; }",
        "use rusqlite::Connection;",
        "fn f() { std::time::Instant::now(); }",
        "use std::time::{Duration, SystemTime};",
        "struct S(Vec<tokio::time::Instant>);",
    ] {
        let found = faults("kernel/run.rs", &module, bad, &rooms);
        assert!(!found.is_empty(), "not found: {bad}");
    }
    for good in [
        "use crate::kernel::ids::RunId;",
        "use super::super::kernel::ids;",
        "#[cfg(test)] mod tests { use crate::store::Store; }",
        "#[cfg(test)] use crate::store::Store;",
        "fn f() { store::open(); }",
        "fn f() { note!(\"crate::store and notify.command\"); }",
    ] {
        let found = faults("kernel/run.rs", &module, good, &rooms);
        assert!(found.is_empty(), "{good}: {found:?}");
    }
}
