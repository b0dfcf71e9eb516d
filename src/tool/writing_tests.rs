//! Tests `write` and `edit` through the catalogue with real folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Call, Called, Catalogue, NodeContext, ToolOptions, ToolOutput};
use crate::contract::delegate::Site;
use crate::contract::journal::RunEnvironment;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::gate::{Bundle, Rights, WriteScope};

struct Place {
    _folder: tempfile::TempDir,
    base: PathBuf,
    root: PathBuf,
    catalogue: Catalogue,
}

/// Creates `ws/` with links inward and outward, git's folder and the daemon's own, and `secret`
/// beside it.
fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let root = base.join("ws");
    for path in ["src", "state", ".git/hooks", "subagents/other"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::create_dir(base.join("outside")).unwrap();
    fs::write(base.join("secret"), "secret").unwrap();
    symlink(base.join("secret"), root.join("out")).unwrap();
    symlink(base.join("outside"), root.join("away")).unwrap();
    symlink(base.join("not-there"), root.join("dangling")).unwrap();
    symlink(root.join("src"), root.join("inward")).unwrap();
    let catalogue = Catalogue::new(ToolOptions {
        denied: vec![root.join("state")],
        ..ToolOptions::default()
    });
    Place {
        _folder: folder,
        base,
        root,
        catalogue,
    }
}

impl Place {
    async fn as_agent(&self, scope: WriteScope, tool: &str, arguments: Value) -> ToolOutput {
        let rights = Rights::new("kid", &[], scope, Bundle::default());
        let site = Site {
            run: RunId(Uuid::from_u128(1)),
            id: StepId(Uuid::from_u128(2)),
            step: 1,
            attempt: 1,
        };
        let call = Call {
            site,
            id: "call-1",
            name: tool,
            root: &self.root,
            served: None,
            rights: &rights,
            arguments: &arguments,
            environment: &RunEnvironment::default(),
            links: &[],
            nodes: NodeContext::default(),
            program: crate::process::ProgramStep::first(site.run, site.id),
        };
        match self.catalogue.call(call).await {
            Called::Done(output) => output,
            other => panic!("{tool}: {other:?}"),
        }
    }

    async fn done(&self, tool: &str, arguments: Value) -> String {
        let output = self.as_agent(WriteScope::Workspace, tool, arguments).await;
        assert!(!output.is_error, "{}", output.text);
        output.text
    }

    async fn refused(&self, tool: &str, arguments: Value) -> String {
        let output = self.as_agent(WriteScope::Workspace, tool, arguments).await;
        assert!(output.is_error, "{}", output.text);
        output.text
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn to(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

fn change(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "old_text": old, "new_text": new })
}

#[tokio::test]
async fn a_file_is_made_replaced_and_changed_and_a_repeat_says_so() {
    let place = place();
    let made = place
        .done("write", to("new/deep/a.txt", "one\ntwo\n"))
        .await;
    assert_eq!(made, "created new/deep/a.txt: 8 bytes, 2 lines");
    let again = place
        .done("write", to("new/deep/a.txt", "one\ntwo\n"))
        .await;
    assert!(again.contains("has this content already"), "{again}");
    let changed = place
        .done("edit", change("new/deep/a.txt", "two", "two\nthree"))
        .await;
    assert_eq!(changed, "changed new/deep/a.txt at line 2");
    let again = place
        .done("edit", change("new/deep/a.txt", "two", "two\nthree"))
        .await;
    assert!(again.contains("already"), "{again}");
    assert_eq!(place.read("new/deep/a.txt"), "one\ntwo\nthree\n");
    place.done("write", to("inward/b.txt", "b")).await;
    assert_eq!(place.read("src/b.txt"), "b");
    // No temporary file is left beside the written one.
    let names = fs::read_dir(place.root.join("new/deep")).unwrap().count();
    assert_eq!(names, 1);
}

#[tokio::test]
async fn g10_7_nothing_outside_and_nothing_of_the_daemon_or_of_git_is_written() {
    let place = place();
    for path in [
        "../x",
        "/etc/x",
        "out",
        "away/x",
        "away/deep/x",
        "dangling",
        "src/../../x",
        "state/token",
        "state/new/x",
        ".git/hooks/post-commit",
        "src/.git/config",
        ".",
        "src",
        "new/../..",
    ] {
        for (tool, arguments) in [
            ("write", to(path, "x")),
            ("edit", change(path, "secret", "x")),
        ] {
            let text = place.refused(tool, arguments).await;
            assert!(!text.contains("changed src"), "{tool} {path}: {text}");
        }
    }
    assert_eq!(
        fs::read_to_string(place.base.join("secret")).unwrap(),
        "secret"
    );
    assert_eq!(fs::read_dir(place.base.join("outside")).unwrap().count(), 0);
    let beside = fs::read_dir(&place.base).unwrap().count();
    assert_eq!(beside, 3);
}

#[tokio::test]
async fn c5_an_agent_of_its_own_folder_writes_there_only() {
    let place = place();
    let own = to("subagents/kid/notes.md", "mine");
    let output = place.as_agent(WriteScope::Own, "write", own).await;
    assert!(!output.is_error, "{}", output.text);
    assert_eq!(place.read("subagents/kid/notes.md"), "mine");
    for path in [
        "notes.md",
        "subagents/other/x",
        "subagents/kid/../x",
        "subagents/kidney/x",
    ] {
        let output = place
            .as_agent(WriteScope::Own, "write", to(path, "x"))
            .await;
        assert!(
            output.text.contains("access_denied"),
            "{path}: {}",
            output.text
        );
        assert!(output.text.contains("subagents/kid/"), "{}", output.text);
    }
    let output = place
        .as_agent(WriteScope::None, "write", to("a", "x"))
        .await;
    assert!(output.text.contains("access_denied"), "{}", output.text);
}

#[tokio::test]
async fn mode_bits_and_line_ends_stay() {
    let place = place();
    let script = place.root.join("run.sh");
    fs::write(&script, "#!/bin/sh\r\necho a\r\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    place
        .done("edit", change("run.sh", "echo a\n", "echo a\necho b\n"))
        .await;
    assert_eq!(place.read("run.sh"), "#!/bin/sh\r\necho a\r\necho b\r\n");
    assert_eq!(mode(&script), 0o750);
    place
        .done("write", to("run.sh", "#!/bin/sh\necho c\n"))
        .await;
    assert_eq!(place.read("run.sh"), "#!/bin/sh\r\necho c\r\n");
    assert_eq!(mode(&script), 0o750);
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_with_the_reason() {
    let place = place();
    fs::write(place.root.join("image"), b"\x89PNG\xff").unwrap();
    fs::write(place.root.join("nul"), b"a\0b").unwrap();
    fs::write(place.root.join("fixed"), "a").unwrap();
    fs::set_permissions(place.root.join("fixed"), fs::Permissions::from_mode(0o444)).unwrap();
    let pipe = place.root.join("pipe");
    let pipe_mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, pipe_mode).unwrap();
    for (path, says) in [
        ("image", "not UTF-8"),
        ("nul", "NUL"),
        ("fixed", "read-only"),
        ("pipe", "not a regular file"),
    ] {
        for (tool, arguments) in [("write", to(path, "x")), ("edit", change(path, "a", "x"))] {
            let text = place.refused(tool, arguments).await;
            assert!(text.contains(says), "{tool} {path}: {text}");
        }
    }
    let text = place.refused("write", to("x", "a\0b")).await;
    assert!(text.contains("NUL"), "{text}");
    let text = place.refused("edit", change("none", "a", "b")).await;
    assert!(text.contains("no such file"), "{text}");
}
