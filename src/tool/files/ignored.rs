//! Applies the files `.ignore`, `.gitignore` and `.git/info/exclude` of a tree. They are read
//! through open folders, and only if they are regular files. Called by `walk`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::file_work::open_folder::{FOLDER, file_in, folder_in};
use crate::file_work::open_regular;
use crate::tool::Workspace;

/// The maximum number of bytes read of such a file.
const FILE_LIMIT: u64 = 1 << 20;

const IGNORE: &str = ".ignore";
const GITIGNORE: &str = ".gitignore";
const GIT: &str = ".git";

/// Which ignore files a folder has.
#[derive(Clone, Copy, Default)]
pub(crate) struct IgnoreFiles {
    ignore: bool,
    gitignore: bool,
    git: bool,
}

impl IgnoreFiles {
    const ALL: IgnoreFiles = IgnoreFiles {
        ignore: true,
        gitignore: true,
        git: true,
    };

    /// Records an entry of the folder.
    pub(crate) fn see(&mut self, name: &OsStr) {
        self.ignore |= name == IGNORE;
        self.gitignore |= name == GITIGNORE;
        self.git |= name == GIT;
    }
}

/// The rules of a folder.
#[derive(Default)]
struct Rules {
    ignore: Option<Gitignore>,
    gitignore: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// A repository starts here: the rules of an enclosing one do not apply in it.
    is_repository: bool,
}

/// The rules of a folder and its ancestors, the outermost first.
#[derive(Default)]
pub(crate) struct Ignored(Vec<Rules>);

impl Ignored {
    /// Reads the rules of the ancestors of `start`: within the workspace, and outside of it up to
    /// the root of the enclosing repository.
    pub(crate) fn above(workspace: &Workspace, start: &Path, unread: &mut Vec<String>) -> Self {
        let mut all = Ignored::default();
        let root = workspace.root();
        let repository = root.ancestors().find(|folder| folder.join(GIT).exists());
        let mut around: Vec<&Path> = match repository {
            Some(top) => root
                .ancestors()
                .skip(1)
                .take_while(|one| one.starts_with(top))
                .collect(),
            None => Vec::new(),
        };
        around.reverse();
        for folder in around {
            let read = |name: &str| open_regular(&folder.join(name));
            let rules = Rules::read(folder, IgnoreFiles::ALL, &read, folder.join(GIT).exists());
            all.0
                .push(rules.kept(folder, &|path| path.display().to_string(), unread));
        }
        let inside = start
            .ancestors()
            .skip(1)
            .take_while(|one| one.starts_with(root));
        let mut inside: Vec<&Path> = inside.collect();
        inside.reverse();
        for folder in inside {
            // A folder that cannot be opened is not walked either.
            let opened = workspace.below(folder);
            if let Ok(opened) = opened.and_then(|below| workspace.held().folder(below)) {
                let shown = |path: &Path| workspace.shown(path);
                all.enter(&opened, folder, IgnoreFiles::ALL, &shown, unread);
            }
        }
        all
    }

    /// Enters a folder that has these files; files that cannot be read are added to `unread`.
    pub(crate) fn enter(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        files: IgnoreFiles,
        shown: &dyn Fn(&Path) -> String,
        unread: &mut Vec<String>,
    ) {
        let read = |name: &str| match name.rsplit_once('/') {
            None => file_in(folder, Path::new(name)),
            Some((folders, name)) => {
                let mut at = folder_in(folder, Path::new(GIT), FOLDER)?;
                for part in Path::new(folders).iter().skip(1) {
                    at = folder_in(&at, Path::new(part), FOLDER)?;
                }
                file_in(&at, Path::new(name))
            }
        };
        let rules = Rules::read(path, files, &read, files.git);
        self.0.push(rules.kept(path, shown, unread));
    }

    /// Leaves the folder that was entered last.
    pub(crate) fn leave(&mut self) {
        self.0.pop();
    }

    /// True if the path is ignored. `.ignore` takes precedence over `.gitignore`, and that over the
    /// repository's own list; within each, the nearest rule wins.
    pub(crate) fn matches(&self, path: &Path, is_folder: bool) -> bool {
        let in_repository = || {
            let mut outermost = false;
            self.0.iter().rev().take_while(move |rules| {
                let counts = !outermost;
                outermost |= rules.is_repository;
                counts
            })
        };
        let ignore = self
            .0
            .iter()
            .rev()
            .filter_map(|rules| rules.ignore.as_ref());
        let gitignore = in_repository().filter_map(|rules| rules.gitignore.as_ref());
        let exclude = in_repository().filter_map(|rules| rules.exclude.as_ref());
        for rules in ignore.chain(gitignore).chain(exclude) {
            match rules.matched(path, is_folder) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

/// Rules, and the files that could not be read with their errors.
struct Parsed<'a> {
    rules: Rules,
    faults: Vec<(&'a str, io::Error)>,
}

impl Parsed<'_> {
    fn kept(
        self,
        folder: &Path,
        shown: &dyn Fn(&Path) -> String,
        unread: &mut Vec<String>,
    ) -> Rules {
        for (name, fault) in self.faults {
            let file = shown(&folder.join(name));
            unread.push(format!("{file} was skipped: {fault}"));
        }
        self.rules
    }
}

impl Rules {
    fn read(
        folder: &Path,
        files: IgnoreFiles,
        open: &dyn Fn(&str) -> io::Result<File>,
        is_repository: bool,
    ) -> Parsed<'static> {
        let mut faults = Vec::new();
        let mut rules = |is_there: bool, name: &'static str| {
            if !is_there {
                return None;
            }
            match open(name).and_then(text) {
                Ok(text) => Some(parsed(folder, &text)),
                // The list of a worktree or submodule may be elsewhere.
                Err(fault)
                    if matches!(
                        fault.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    None
                }
                Err(fault) => {
                    faults.push((name, fault));
                    None
                }
            }
        };
        Parsed {
            rules: Rules {
                ignore: rules(files.ignore, IGNORE),
                gitignore: rules(files.gitignore, GITIGNORE),
                exclude: rules(files.git, ".git/info/exclude"),
                is_repository,
            },
            faults,
        }
    }
}

fn text(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(text
        .strip_prefix('\u{feff}')
        .map(str::to_owned)
        .unwrap_or(text))
}

/// Parses rules; invalid lines are ignored.
fn parsed(folder: &Path, text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
