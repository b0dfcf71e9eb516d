//! Lists the root folders of a workspace's skills, from lowest to highest priority. Called by
//! `library`.

use std::path::{Path, PathBuf};

use super::SkillSettings;

/// The origin of skills; a later source has priority over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkillSource {
    /// Published by a node.
    Node,
    /// Folders added in the settings.
    Extra,
    /// Built into the program.
    Bundled,
    /// The daemon's own folder.
    Managed,
    /// The user's own folders.
    Personal,
    /// The project that contains the workspace.
    Project,
    /// The folder in which the run works.
    Workspace,
}

impl SkillSource {
    /// The source's name in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            SkillSource::Node => "node",
            SkillSource::Extra => "extra",
            SkillSource::Bundled => "bundled",
            SkillSource::Managed => "managed",
            SkillSource::Personal => "personal",
            SkillSource::Project => "project",
            SkillSource::Workspace => "workspace",
        }
    }
}

/// A root folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SkillRoot {
    /// The source of its skills.
    pub source: SkillSource,
    /// The folder; it need not exist.
    pub folder: PathBuf,
    /// The folder belongs to the user or the daemon, so its links may point anywhere.
    pub trusts_links: bool,
    /// Folders outside it that links may point to.
    pub link_targets: Vec<PathBuf>,
}

impl SkillRoot {
    /// A root for a folder named on the command line.
    pub(super) fn given(folder: &Path) -> SkillRoot {
        SkillRoot {
            source: SkillSource::Extra,
            folder: folder.to_owned(),
            trusts_links: true,
            link_targets: Vec::new(),
        }
    }
}

/// The roots for work in `cwd`, lowest priority first. Built-in skills are in none of them.
pub(super) fn roots(
    settings: &SkillSettings,
    cwd: Option<&Path>,
    project: Option<&Path>,
) -> Vec<SkillRoot> {
    let mut found: Vec<(SkillSource, PathBuf)> = Vec::new();
    let extra = settings.extra_dirs.iter().cloned();
    found.extend(extra.map(|folder| (SkillSource::Extra, folder)));
    let managed = settings.managed.iter().cloned();
    found.extend(managed.map(|folder| (SkillSource::Managed, folder)));
    if let Some(home) = &settings.home {
        if settings.claude_dirs {
            found.push((SkillSource::Personal, home.join(".claude/skills")));
        }
        found.push((SkillSource::Personal, home.join(".agents/skills")));
    }
    if let Some(config) = &settings.config {
        found.push((SkillSource::Personal, config.join("skills")));
    }
    if let Some(project) = project {
        if settings.claude_dirs {
            found.push((SkillSource::Project, project.join(".claude/skills")));
        }
        found.push((SkillSource::Project, project.join(".agents/skills")));
        found.push((SkillSource::Project, project.join(".abide/skills")));
    }
    if let Some(cwd) = cwd {
        found.push((SkillSource::Workspace, cwd.join("skills")));
    }
    let mut roots: Vec<SkillRoot> = Vec::new();
    for (source, folder) in found {
        // A home folder may also be a project; a folder counts at its lowest priority.
        if roots.iter().any(|root| root.folder == folder) {
            continue;
        }
        roots.push(SkillRoot {
            source,
            folder,
            trusts_links: matches!(source, SkillSource::Managed | SkillSource::Personal),
            link_targets: settings.link_targets.clone(),
        });
    }
    roots
}
