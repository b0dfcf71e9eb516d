//! Files that define what agents may do: agents, skills, servers of tools, and settings of this
//! program and of others like it. A tool that would write one needs a person's approval, whatever
//! its rules say, so that no agent gives itself or the next one other rights.

use std::path::{Component, Path};

use super::Workspace;

/// Folders of which everything counts: definitions, skills, hooks and settings lie there.
const FOLDERS: &[&str] = &[
    ".abide",
    ".agents",
    ".amazonq",
    ".claude",
    ".claude-plugin",
    ".codex",
    ".cursor",
    ".gemini",
    ".kiro",
    ".opencode",
    ".roo",
    ".windsurf",
];
/// The same inside `.github`.
const GITHUB: &[&str] = &["agents", "chatmodes", "skills"];
/// Files of these names, wherever they lie.
const FILES: &[&str] = &[
    "agents.md",
    "claude.md",
    "claude.local.md",
    "gemini.md",
    "skill.md",
    ".mcp.json",
    "mcp.json",
    "mcp_settings.json",
    "mcp_config.json",
    "opencode.json",
    "opencode.jsonc",
    ".roomodes",
    ".cursorrules",
    ".windsurfrules",
    ".clinerules",
];

/// Does a path, by its text alone, name such a file?
pub(super) fn names_one(path: &Path) -> bool {
    let parts: Vec<String> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
            _ => None,
        })
        .collect();
    let is = |known: &[&str], part: &String| known.contains(&part.as_str());
    let in_github = parts
        .windows(2)
        .any(|pair| pair[0] == ".github" && is(GITHUB, &pair[1]));
    in_github
        || parts.iter().any(|part| is(FOLDERS, part))
        || parts.last().is_some_and(|name| is(FILES, name))
}

/// Why a person must allow that `path` is written; `None`: its rules alone decide.
pub(super) fn reason(workspace: &Workspace, path: &str) -> Option<String> {
    let (written, led_to) = workspace.spellings(path);
    let found = [&written, &led_to].into_iter().any(|place| {
        let below = place.strip_prefix(workspace.root()).unwrap_or(place);
        names_one(below) || is_of_skill(workspace.root(), place)
    });
    found.then(|| why(path))
}

/// Does the file lie in the folder of a skill?
fn is_of_skill(root: &Path, place: &Path) -> bool {
    let above = place.ancestors().skip(1);
    above
        .take_while(|folder| folder.starts_with(root))
        .any(|folder| {
            ["SKILL.md", "skill.md"]
                .iter()
                .any(|name| folder.join(name).is_file())
        })
}

/// The same for a tool of a server: which of its arguments are paths is not known.
pub(super) fn reason_in(texts: &[String]) -> Option<String> {
    let is_path = |text: &&String| text.len() <= 4096 && !text.contains('\n');
    let named = texts.iter().filter(is_path);
    let mut named = named.filter(|text| names_one(Path::new(text.trim_start_matches("file://"))));
    named.next().map(|text| why(text))
}

fn why(path: &str) -> String {
    format!(
        "{path} defines what agents may do, and no rule allows an agent to write such a file by itself"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_defines_agents_is_known_in_every_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".abide/agents")).unwrap();
        fs::create_dir_all(root.join("tools/deploy/scripts")).unwrap();
        fs::write(root.join("tools/deploy/SKILL.md"), "").unwrap();
        symlink(root.join(".abide"), root.join("notes")).unwrap();
        symlink(root.join("tools"), root.join("other")).unwrap();
        let workspace = Workspace::open(&root, &[]).unwrap();
        let whole = root.join(".abide/agents/build.md");
        for path in [
            ".abide/agents/build.md",
            "./.abide//agents/../agents/build.md",
            "src/../.abide/x",
            whole.to_str().unwrap(),
            "notes/agents/build.md",
            "deep/inside/.abide/agents/a.toml",
            ".Claude/agents/a.md",
            ".claude/settings.json",
            ".github/agents/a.agent.md",
            "skills/new/SKILL.md",
            "skills/new/skill.md",
            "tools/deploy/scripts/run.sh",
            "other/deploy/scripts/run.sh",
            ".mcp.json",
            "sub/opencode.json",
            "AGENTS.md",
        ] {
            assert!(reason(&workspace, path).is_some(), "{path}");
        }
        for path in [
            "src/main.rs",
            "docs/abide.md",
            "tools/notes.md",
            ".github/workflows/ci.yml",
            "agents/a.md",
            "SKILL.md.txt",
        ] {
            assert!(reason(&workspace, path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_workspace_inside_such_a_folder_is_as_its_own_paths_say() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder
            .path()
            .canonicalize()
            .unwrap()
            .join(".claude/worktrees/one");
        fs::create_dir_all(&root).unwrap();
        let workspace = Workspace::open(&root, &[]).unwrap();
        assert!(reason(&workspace, "src/main.rs").is_none());
        assert!(reason(&workspace, ".claude/agents/a.md").is_some());
    }
}
