//! Where skills come from: the roots of a place, from the lowest to the highest. Called by
//! `library`.

use std::path::{Path, PathBuf};

use super::Settings;

/// Whose skills they are; the later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Folders that the settings add.
    Extra,
    /// Part of this program.
    Bundled,
    /// Kept by the daemon.
    Managed,
    /// This user's own.
    Personal,
    /// The project's around the work.
    Project,
    /// The folder of the work.
    Workspace,
}

impl Source {
    /// The word in lists.
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

/// A folder below which skills lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Whose.
    pub source: Source,
    /// The folder, which need not be there.
    pub folder: PathBuf,
    /// Its owner is this user, whose links may lead anywhere.
    pub trusts_links: bool,
    /// Folders outside it to which links may lead.
    pub link_targets: Vec<PathBuf>,
}

impl Root {
    /// A folder that somebody has named.
    pub(super) fn given(folder: &Path) -> Root {
        Root {
            source: Source::Extra,
            folder: folder.to_owned(),
            trusts_links: true,
            link_targets: Vec::new(),
        }
    }
}

/// The roots of work in `cwd`, the lowest first. Bundled skills are in none of them.
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
        // A home folder may be a project; a folder counts where it stands lowest.
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
