//! Lists the root folders of a workspace's skills, from lowest to highest priority. Called by
//! `library`.

use std::path::{Path, PathBuf};

use super::Settings;

/// The origin of skills; a later source has priority over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
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

impl Source {
    /// The source's name in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Extra => "extra",
            Source::Bundled => "bundled",
            Source::Managed => "managed",
            Source::Personal => "personal",
            Source::Project => "project",
            Source::Workspace => "workspace",
        }
    }
}

/// A root folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// The source of its skills.
    pub source: Source,
    /// The folder; it need not exist.
    pub folder: PathBuf,
    /// The folder belongs to the user or the daemon, so its links may point anywhere.
    pub trusts_links: bool,
    /// Folders outside it that links may point to.
    pub link_targets: Vec<PathBuf>,
}

impl Root {
    /// A root for a folder named on the command line.
    pub(super) fn given(folder: &Path) -> Root {
        Root {
            source: Source::Extra,
            folder: folder.to_owned(),
            trusts_links: true,
            link_targets: Vec::new(),
        }
    }
}

/// The roots for work in `cwd`, lowest priority first. Built-in skills are in none of them.
pub(super) fn roots(settings: &Settings, cwd: Option<&Path>, project: Option<&Path>) -> Vec<Root> {
    let mut found: Vec<(Source, PathBuf)> = Vec::new();
    let extra = settings.extra_dirs.iter().cloned();
    found.extend(extra.map(|folder| (Source::Extra, folder)));
    let managed = settings.managed.iter().cloned();
    found.extend(managed.map(|folder| (Source::Managed, folder)));
    if let Some(home) = &settings.home {
        if settings.claude_dirs {
            found.push((Source::Personal, home.join(".claude/skills")));
        }
        found.push((Source::Personal, home.join(".agents/skills")));
    }
    if let Some(config) = &settings.config {
        found.push((Source::Personal, config.join("skills")));
    }
    if let Some(project) = project {
        if settings.claude_dirs {
            found.push((Source::Project, project.join(".claude/skills")));
        }
        found.push((Source::Project, project.join(".agents/skills")));
        found.push((Source::Project, project.join(".abide/skills")));
    }
    if let Some(cwd) = cwd {
        found.push((Source::Workspace, cwd.join("skills")));
    }
    let mut roots: Vec<Root> = Vec::new();
    for (source, folder) in found {
        // A home folder may also be a project; a folder counts at its lowest priority.
        if roots.iter().any(|root| root.folder == folder) {
            continue;
        }
        roots.push(Root {
            source,
            folder,
            trusts_links: matches!(source, Source::Managed | Source::Personal),
            link_targets: settings.link_targets.clone(),
        });
    }
    roots
}
