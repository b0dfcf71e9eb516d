//! Tests the tools through the catalogue with real folders.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::contract::journal::RunEnvironment;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::gate::{Bundle, Rule, WriteScope};
use crate::tool::OUTPUT_LIMIT;

struct Tree {
    folder: tempfile::TempDir,
    catalogue: Catalogue,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let denied = folder.path().join("daemon-state");
        let tree = Tree {
            catalogue: Catalogue::new(ToolOptions {
                denied: vec![denied],
                ..ToolOptions::default()
            }),
            folder,
        };
        for (path, text) in files {
            tree.write(path, text.as_bytes());
        }
        tree
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        called(&self.catalogue, tool, self.folder.path(), arguments).await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    async fn error(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(output.is_error, "{}", output.text);
        output.text
    }
}

#[tokio::test]
async fn read_numbers_lines_and_says_what_is_left() {
    let tree = Tree::new(&[("a.txt", "one\ntwo\nthree\nfour\n"), ("empty", "")]);
    let text = tree
        .text("read", json!({"path": "a.txt", "offset": 2, "limit": 2}))
        .await;
    assert_eq!(
        text,
        "a.txt: lines 2-3 of 4\n2\ttwo\n3\tthree\n… 1 more lines; continue with offset 4"
    );
    assert_eq!(
        tree.text("read", json!({"path": "empty"})).await,
        "empty: empty"
    );
    let error = tree
        .error("read", json!({"path": "a.txt", "offset": 5}))
        .await;
    assert!(error.contains("only 4 lines"), "{error}");
}

#[tokio::test]
async fn read_refuses_folders_and_what_is_not_text() {
    let tree = Tree::new(&[("src/a.rs", "x")]);
    tree.write("b.bin", b"\x7fELF\0\0");
    assert!(
        tree.error("read", json!({"path": "src"}))
            .await
            .contains("is a folder")
    );
    assert!(
        tree.error("read", json!({"path": "b.bin"}))
            .await
            .contains("not a text file")
    );
    assert!(
        tree.error("read", json!({"path": "nope"}))
            .await
            .contains("no such file")
    );
}

#[tokio::test]
async fn a_long_read_stays_within_the_limit_and_can_be_gone_on_with() {
    let line = "ä".repeat(300);
    let tree = Tree::new(&[("long.txt", &format!("{line}\n").repeat(900))]);
    let text = tree
        .text("read", json!({"path": "long.txt", "limit": 900}))
        .await;
    assert!(text.len() <= OUTPUT_LIMIT);
    let next: usize = text.rsplit(' ').next().unwrap().parse().unwrap();
    let shown = text.lines().filter(|line| line.contains('\t')).count();
    assert_eq!(next, shown + 1);
}

#[tokio::test]
async fn list_sorts_and_leaves_out_what_git_ignores() {
    let tree = Tree::new(&[
        (".gitignore", "*.log\n"),
        ("b.rs", ""),
        ("a/inner.rs", ""),
        ("noise.log", ""),
        ("node_modules/x.js", ""),
        (".git/config", ""),
        ("daemon-state/token", "secret"),
    ]);
    assert_eq!(tree.text("list", json!({})).await, ".gitignore\na/\nb.rs");
    let deep = tree
        .text("list", json!({"depth": 2, "max_results": 3}))
        .await;
    assert_eq!(deep, ".gitignore\na/\na/inner.rs\n… 1 more");
    assert!(
        tree.error("list", json!({"path": "b.rs"}))
            .await
            .contains("use read")
    );
}

#[tokio::test]
async fn glob_matches_names_or_paths() {
    let tree = Tree::new(&[("src/Limit.rs", ""), ("src/a/b.rs", ""), ("limits.md", "")]);
    let names = tree
        .text("glob", json!({"pattern": "*limit*", "ignore_case": true}))
        .await;
    assert_eq!(names, "limits.md\nsrc/Limit.rs\n2 of 3 files match");
    let paths = tree.text("glob", json!({"pattern": "src/**/*.rs"})).await;
    assert_eq!(paths, "src/Limit.rs\nsrc/a/b.rs\n2 of 3 files match");
    let direct = tree.text("glob", json!({"pattern": "src/*.rs"})).await;
    assert_eq!(direct, "src/Limit.rs\n1 of 3 files match");
    assert!(
        tree.error("glob", json!({"pattern": "a[" }))
            .await
            .starts_with("pattern:")
    );
}

#[tokio::test]
async fn grep_shows_lines_counts_the_rest_and_skips_what_is_not_text() {
    let tree = Tree::new(&[
        ("a.rs", "fn limit() {}\nlet x = 1;\n// Limit\n"),
        ("b.rs", "limit limit\n"),
    ]);
    tree.write("c.bin", b"limit\0limit");
    tree.write("d.txt", b"caf\xe9 limit\n");
    let text = tree.text("grep", json!({"pattern": "limit"})).await;
    assert_eq!(
        text,
        "a.rs:1: fn limit() {}\nb.rs:1: limit limit\nd.txt:1: caf\u{fffd} limit\n\
         3 matching lines in 3 of 3 text files"
    );
    let any_case = json!({"pattern": "limit", "ignore_case": true, "max_results": 1});
    let text = tree.text("grep", any_case).await;
    assert!(
        text.contains("… 3 more\n4 matching lines in 3 of 3 text files"),
        "{text}"
    );
    let files = json!({"pattern": "(?i)limit", "output": "files", "glob": "*.rs"});
    assert_eq!(
        tree.text("grep", files).await,
        "a.rs: 2\nb.rs: 1\n3 matching lines in 2 of 2 text files"
    );
    let some = json!({"pattern": "(?i)limit", "paths": ["a.rs", "b.rs"], "max_per_file": 1});
    let text = tree.text("grep", some).await;
    assert!(
        text.starts_with("a.rs:1: fn limit() {}\nb.rs:1: limit limit\n… 1 more"),
        "{text}"
    );
}

#[tokio::test]
async fn grep_knows_the_ends_of_every_line() {
    let tree = Tree::new(&[("a.rs", "// x\nfn one() {}\n  fn two() {}\nfn three() {}\n")]);
    let text = tree.text("grep", json!({"pattern": "^fn .*\\}$"})).await;
    assert_eq!(
        text,
        "a.rs:2: fn one() {}\na.rs:4: fn three() {}\n2 matching lines in 1 of 1 text files"
    );
}

#[tokio::test]
async fn grep_says_what_is_wrong_with_its_arguments() {
    let tree = Tree::new(&[("a.rs", "x")]);
    assert!(
        tree.error("grep", json!({"pattern": "("}))
            .await
            .starts_with("pattern:")
    );
    assert!(
        tree.error("grep", json!({"pattern": "a\\nb"}))
            .await
            .starts_with("pattern:")
    );
    assert!(
        tree.error("grep", json!({"pattern": "a", "glob": "["}))
            .await
            .starts_with("glob:")
    );
    assert!(
        tree.error("grep", json!({"pattern": "a", "regex": true}))
            .await
            .contains("regex")
    );
    assert!(
        tree.error("nope", json!({}))
            .await
            .contains("read, list, glob, grep")
    );
}

#[tokio::test]
async fn no_tool_leaves_the_workspace_or_sees_the_daemons_state() {
    let tree = Tree::new(&[("ws/a.rs", "needle"), ("secret", "needle")]);
    tree.write("ws/state/token", b"needle");
    let root = tree.folder.path().join("ws");
    symlink(tree.folder.path().join("secret"), root.join("link")).unwrap();
    symlink(tree.folder.path(), root.join("up")).unwrap();
    let catalogue = Catalogue::new(ToolOptions {
        denied: vec![root.join("state")],
        ..ToolOptions::default()
    });
    let found = called(&catalogue, "grep", &root, json!({"pattern": "needle"})).await;
    assert_eq!(
        found.text,
        "a.rs:1: needle\n1 matching lines in 1 of 1 text files"
    );
    let named = called(&catalogue, "glob", &root, json!({"pattern": "*"})).await;
    assert_eq!(named.text, "a.rs\n1 of 1 files match");
    for path in ["..", "link", "up/secret", "state/token"] {
        for (tool, arguments) in [
            ("read", json!({"path": path})),
            ("list", json!({"path": path})),
            ("glob", json!({"pattern": "*", "path": path})),
            ("grep", json!({"pattern": "needle", "path": path})),
        ] {
            let output = called(&catalogue, tool, &root, arguments).await;
            assert!(output.is_error, "{tool} {path}: {}", output.text);
            assert!(!output.text.contains("needle"), "{tool} {path}");
        }
    }
}

/// Calls a tool whose result does not wait for another run.
async fn called(catalogue: &Catalogue, tool: &str, root: &Path, arguments: Value) -> ToolOutput {
    let call = Call {
        site: site(),
        id: "call-1",
        name: tool,
        root,
        served: None,
        rights: &rights(&[]),
        environment: &RunEnvironment::default(),
        arguments: &arguments,
        links: &[],
        nodes: NodeContext::default(),
        program: program_step(),
    };
    match catalogue.call(call).await {
        Called::Done(output) => output,
        other => panic!("{tool}: {other:?}"),
    }
}

fn program_step() -> ProgramStep {
    ProgramStep::first(site().run, site().id)
}

fn site() -> Site {
    Site {
        run: RunId(Uuid::from_u128(1)),
        id: StepId(Uuid::from_u128(2)),
        step: 1,
        attempt: 1,
    }
}

/// The rights of a run whose agent has these rules.
fn rights(rules: &[Rule]) -> Rights {
    Rights::new("a", rules, WriteScope::Workspace, Bundle::default())
}

#[tokio::test]
async fn the_gate_looks_at_where_a_path_leads() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("secrets")).unwrap();
    std::os::unix::fs::symlink(root.join("secrets"), root.join("open")).unwrap();
    let rule = |pattern: Option<&str>, decision| Rule {
        tool: "read".to_owned(),
        pattern: pattern.map(str::to_owned),
        node: None,
        decision,
    };
    let rights = rights(&[
        rule(None, Decision::Ask),
        rule(Some("open/*"), Decision::Allow),
        rule(Some("secrets/*"), Decision::Deny),
    ]);
    let catalogue = Catalogue::new(ToolOptions::default());
    let admit = async |path: &str| {
        let call = Call {
            site: site(),
            id: "call-1",
            name: "read",
            root: &root,
            served: None,
            rights: &rights,
            arguments: &json!({ "path": path }),
            environment: &RunEnvironment::default(),
            links: &[],
            nodes: NodeContext::default(),
            program: program_step(),
        };
        catalogue.admit(call).await
    };
    assert!(
        matches!(admit("open/key").await, Admission::Refused(why) if why.contains("secrets/*"))
    );
    assert!(matches!(
        admit("x/../secrets/key").await,
        Admission::Refused(_)
    ));
    let asks = admit("notes.txt").await;
    let covers = root.join("notes.txt").to_string_lossy().into_owned();
    assert!(matches!(asks, Admission::NeedsApproval(consent) if consent.covers == covers));
}

/// A link that changes between admission and call has no effect: the call opens the path that was
/// judged.
#[tokio::test]
async fn a_call_touches_what_was_judged_whatever_becomes_of_the_links() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for (name, text) in [("pub", "public"), ("secrets", "hidden")] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("key"), text).unwrap();
    }
    let lead = |to: &str| {
        let _ = fs::remove_file(root.join("l"));
        symlink(root.join(to), root.join("l")).unwrap();
    };
    let rules = ["read", "write"].map(|tool| Rule {
        tool: tool.to_owned(),
        pattern: Some("secrets/*".to_owned()),
        node: None,
        decision: Decision::Deny,
    });
    let rights = rights(&rules);
    let catalogue = Catalogue::new(ToolOptions::default());
    let written = json!({ "path": "l/new", "content": "text" });
    for (tool, arguments) in [("read", json!({ "path": "l/key" })), ("write", written)] {
        lead("pub");
        let call = Call {
            site: site(),
            id: "call-1",
            name: tool,
            root: &root,
            served: None,
            rights: &rights,
            arguments: &arguments,
            environment: &RunEnvironment::default(),
            links: &[],
            nodes: NodeContext::default(),
            program: program_step(),
        };
        assert_eq!(catalogue.admit(call).await, Admission::Allowed);
        lead("secrets");
        let Called::Done(output) = catalogue.call(call).await else {
            panic!("{tool} waits");
        };
        assert!(!output.is_error, "{}", output.text);
        assert!(!output.text.contains("hidden"), "{}", output.text);
        // A new admission refuses it.
        let judged = catalogue.admit(call).await;
        assert!(matches!(judged, Admission::Refused(_)), "{judged:?}");
    }
    assert!(root.join("pub/new").exists());
    assert!(!root.join("secrets/new").exists());
}

#[tokio::test]
async fn a_workspace_that_has_become_a_link_is_not_entered() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let root = base.join("work/sub");
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(base.join("outside")).unwrap();
    fs::write(base.join("outside/notes.txt"), "outside").unwrap();
    fs::rename(&root, base.join("work/sub2")).unwrap();
    symlink(base.join("outside"), &root).unwrap();
    let catalogue = Catalogue::new(ToolOptions::default());
    for (tool, arguments) in [
        ("read", json!({ "path": "notes.txt" })),
        ("grep", json!({ "pattern": "outside" })),
        ("write", json!({ "path": "new.txt", "content": "text" })),
    ] {
        let rights = rights(&[]);
        let call = Call {
            site: site(),
            id: "call-1",
            name: tool,
            root: &root,
            served: None,
            rights: &rights,
            arguments: &arguments,
            environment: &RunEnvironment::default(),
            links: &[],
            nodes: NodeContext::default(),
            program: program_step(),
        };
        match catalogue.call(call).await {
            Called::Gone(why) => assert!(why.contains("was replaced by a link"), "{why}"),
            other => panic!("{tool}: {other:?}"),
        }
    }
    assert!(!base.join("outside/new.txt").exists());
}

#[tokio::test]
async fn no_rule_lets_a_tool_write_what_defines_agents_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join(".abide")).unwrap();
    symlink(root.join(".abide"), root.join("notes")).unwrap();
    let allow = |tool: &str| Rule {
        tool: tool.to_owned(),
        pattern: None,
        node: None,
        decision: Decision::Allow,
    };
    let open = rights(&[allow("write"), allow("edit"), allow("files__write")]);
    let unset = rights(&[]);
    let catalogue = Catalogue::new(ToolOptions::default());
    let admit =
        async |name: &str, rights: &Rights, effect: Option<EffectClass>, arguments: Value| {
            let served = effect.map(|effect| Served {
                of_session: false,
                server: "files".to_owned(),
                tool: "write".to_owned(),
                effect,
                local: true,
                renamed: Default::default(),
            });
            let call = Call {
                site: site(),
                id: "call-1",
                name,
                root: &root,
                served: served.as_ref(),
                rights,
                arguments: &arguments,
                environment: &RunEnvironment::default(),
                links: &[],
                nodes: NodeContext::default(),
                program: program_step(),
            };
            catalogue.admit(call).await
        };
    let mine = root.join(".abide/agents/me.md");
    for rights in [&open, &unset] {
        for path in [
            ".abide/agents/me.md",
            "src/../.abide/agents/me.md",
            "notes/agents/me.md",
            mine.to_str().unwrap(),
            "skills/x/SKILL.md",
            ".mcp.json",
        ] {
            for tool in ["write", "edit"] {
                let asked = admit(tool, rights, None, json!({ "path": path })).await;
                assert!(
                    matches!(&asked, Admission::NeedsApproval(consent) if consent.why.contains("defines")),
                    "{tool} {path}: {asked:?}"
                );
            }
            let arguments = json!({ "file": { "path": path }, "content": "x" });
            let asked = admit(
                "files__write",
                rights,
                Some(EffectClass::Once),
                arguments.clone(),
            )
            .await;
            // An approval for all calls of the tool does not cover it.
            let covers = arguments.to_string();
            let is_own = path.starts_with("notes") || path.starts_with("src");
            assert!(
                is_own
                    || matches!(&asked, Admission::NeedsApproval(consent) if consent.covers == covers),
                "{path}: {asked:?}"
            );
        }
        let plain = json!({ "path": "src/main.rs" });
        assert_eq!(
            admit("write", rights, None, plain.clone()).await,
            Admission::Allowed
        );
        let read = json!({ "path": ".abide/agents/me.md" });
        assert_eq!(
            admit("read", rights, None, read.clone()).await,
            Admission::Allowed
        );
        let looked = admit("files__read", rights, Some(EffectClass::Read), read).await;
        assert_eq!(looked, Admission::Allowed);
    }
    let denied = rights(&[Rule {
        decision: Decision::Deny,
        ..allow("write")
    }]);
    let refused = admit("write", &denied, None, json!({ "path": ".abide/x" })).await;
    assert!(matches!(refused, Admission::Refused(_)));
}

/// What models read about every built-in tool. A change here is a change for every agent.
#[test]
fn the_schemas_of_all_tools_stay_as_they_are() {
    let processes = crate::process::ProcessOptions {
        state: PathBuf::from("/nowhere"),
        socket: None,
        grace: std::time::Duration::from_secs(1),
        max_output: 1,
        descriptors: None,
        keepers: None,
    };
    let shell = Shell {
        processes: crate::process::Processes::new(processes, crate::clock::Clock::system()),
        timeout: std::time::Duration::from_secs(60),
    };
    let catalogue = Catalogue::new(ToolOptions {
        shell: Some(shell),
        ..ToolOptions::default()
    });
    let lines: Vec<String> = catalogue.schemas().iter().map(Value::to_string).collect();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../tests/it/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!("tool_schemas", lines.join("\n")));
}
