//! Detects files that define what agents may do: agents, skills, tool servers, and settings of this
//! program and of similar ones. Writing one always needs approval, whatever the rules say, so that
//! no agent can extend its own rights or those of another.

use std::path::{Component, Path};

use crate::tool::Workspace;

/// Folders in which every file counts: they contain definitions, skills, hooks and settings.
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
/// The same within `.github`.
const GITHUB: &[&str] = &["agents", "chatmodes", "skills"];
/// File names that count in every folder.
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

/// True if the text of the path alone names such a file.
pub(crate) fn names_one(path: &Path) -> bool {
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

/// Why writing `path` needs approval; `None` if the rules alone decide.
pub(crate) fn reason(workspace: &Workspace, path: &str) -> Option<String> {
    let (written, led_to) = workspace.spellings(path);
    let found = [&written, &led_to].into_iter().any(|place| {
        let below = place.strip_prefix(workspace.root()).unwrap_or(place);
        names_one(below) || is_of_skill(workspace.root(), place)
    });
    found.then(|| why(path))
}

/// True if the file is within the folder of a skill.
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

/// The same for a server tool, of which it is unknown which arguments are paths.
pub(crate) fn reason_in(texts: &[String]) -> Option<String> {
    let is_path = |text: &&String| text.len() <= 4096 && !text.contains('\n');
    let named = texts.iter().filter(is_path);
    let mut named = named.filter(|text| names_one(Path::new(text.trim_start_matches("file://"))));
    named.next().map(|text| why(text))
}

fn why(path: &str) -> String {
    format!("{path} defines what agents may do; writing such a file always needs approval")
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
