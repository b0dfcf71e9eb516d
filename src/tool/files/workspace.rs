//! The folder that a run's tools may access, and the check that no path leads out of it. Every tool
//! resolves its paths here.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::definition_files;
use crate::file_work::open_folder::{self, OpenFolder};
use crate::kernel::policy::gate::Writes;
use crate::kernel::text::redact::Redactor;
use crate::kernel::text::visible_but;

/// The resolved paths of a call, each resolved once, so that the tool opens the path that a rule
/// judged even if links change meanwhile.
pub(crate) type LedTo = Arc<Mutex<BTreeMap<String, PathBuf>>>;

/// Why a workspace was not opened, with a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It does not exist any more: all tools of the run fail.
    Gone(String),
    /// It may not be used, or is unavailable now.
    Refused(String),
}

/// A folder with all its descendants, except those that are denied.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    held: OpenFolder,
    denied: Vec<PathBuf>,
    writes: Writes,
    masks: Redactor,
    led_to: LedTo,
}

impl Workspace {
    /// Opens the workspace at `root`, a path that contained no links when it was recorded; the
    /// folders `denied` are refused even within it.
    pub fn open(root: &Path, denied: &[PathBuf]) -> Result<Self, Unopened> {
        let shown = root.display();
        let held = OpenFolder::open(root).map_err(|error| match error.kind() {
            _ if open_folder::is_swapped(&error) => Unopened::Gone(format!(
                "access denied: the workspace {shown} or a parent folder was replaced by a link"
            )),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unopened::Gone(format!(
                "the workspace {shown} does not exist any more: {error}"
            )),
            _ => Unopened::Refused(format!("the workspace {shown} cannot be opened: {error}")),
        })?;
        let workspace = Workspace {
            denied: denied.iter().map(|path| settled(path)).collect(),
            root: root.to_owned(),
            held,
            writes: Writes::Nowhere,
            masks: Redactor::default(),
            led_to: LedTo::default(),
        };
        if workspace.denies(&workspace.root) {
            return Err(Unopened::Refused(format!(
                "the workspace {shown} is in a folder of the daemon itself, which tools may \
                 not access; choose another cwd"
            )));
        }
        Ok(workspace)
    }

    /// Sets where tools may write; without this they may write nowhere.
    #[must_use]
    pub(crate) fn writing(mut self, writes: Writes) -> Self {
        self.writes = writes;
        self
    }

    /// Sets the paths that were resolved before.
    #[must_use]
    pub(crate) fn led(mut self, led_to: Option<LedTo>) -> Self {
        self.led_to = led_to.unwrap_or_default();
        self
    }

    /// The paths resolved so far.
    pub(crate) fn led_to(&self) -> LedTo {
        Arc::clone(&self.led_to)
    }

    /// Resolves the links in the existing part of `path`; the rest stays as written.
    fn follow(&self, path: &str) -> PathBuf {
        let mut led_to = self.led_to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = led_to.get(path) {
            return known.clone();
        }
        let found = settled(&self.root.join(path));
        led_to.insert(path.to_owned(), found.clone());
        found
    }

    /// Sets the masks of environment values that the run must not see.
    #[must_use]
    pub(crate) fn masking(mut self, masks: Redactor) -> Self {
        self.masks = masks;
        self
    }

    /// True if `new` contains the mask of a value where `old` contains the value. The run has not
    /// seen the value, so the change would be unintended. Masks that are text in `old` may stay.
    pub(crate) fn would_mask(&self, old: &str, new: &str) -> bool {
        let (before, after) = (self.masks.counts(old), self.masks.counts(new));
        before.iter().any(|(mask, count)| {
            let left = after.get(mask).copied().unwrap_or_default();
            left < *count && has_more_lines_with(mask, old, new)
        })
    }

    /// The absolute path of the folder, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// True if `path`, which has no links, belongs to the daemon itself.
    pub(crate) fn denies(&self, path: &Path) -> bool {
        self.denied.iter().any(|denied| path.starts_with(denied))
    }

    /// Resolves `path` to an existing file or folder without links. The error says why this fails
    /// and which folder is permitted.
    pub(crate) fn resolve(&self, path: &str) -> Result<PathBuf, String> {
        let real = self.place(path)?;
        match real.symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                Err(format!("no such file or folder: {path} is a broken link"))
            }
            Ok(_) => Ok(real),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "no such file or folder: {path} (paths are relative to the workspace {})",
                self.root.display()
            )),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    /// Resolves `path` for writing; the file may not exist yet. The error says why this fails and
    /// where tools may write.
    pub(crate) fn resolve_for_writing(&self, path: &str) -> Result<PathBuf, String> {
        let place = self.place(path)?;
        if place
            .strip_prefix(&self.root)
            .is_ok_and(|below| below.iter().any(|part| part == ".git"))
        {
            return Err(format!(
                "access denied: {path} belongs to git, which may execute it; change it \
                 with git"
            ));
        }
        // The approval showed the path as written, and a link may have changed since.
        let names_one = |place: &Path| {
            definition_files::names_one(place.strip_prefix(&self.root).unwrap_or(place))
        };
        if names_one(&place) && !names_one(&lexical(&self.root.join(path))) {
            return Err(format!(
                "access denied: {path} leads through a link to {}, which defines what agents may do; \
                 name that file itself",
                self.shown(&place)
            ));
        }
        match &self.writes {
            Writes::Anywhere => Ok(place),
            Writes::Below(folder) if place.starts_with(self.root.join(folder)) => Ok(place),
            Writes::Below(folder) => Err(format!(
                "access_denied: this agent may write only in {folder}/ of the workspace (field \
                 write_scope); {path} is outside of it, nothing was written"
            )),
            Writes::Nowhere => Err(format!(
                "access_denied: this agent may not write (field write_scope); {path} was left as it \
                 is"
            )),
        }
    }

    /// Resolves links in the existing part of `path`; it must be in the workspace and not belong to
    /// the daemon.
    fn place(&self, path: &str) -> Result<PathBuf, String> {
        if path.contains('\0') {
            return Err("a path cannot contain U+0000".to_owned());
        }
        // Both must be within the workspace: the path as written, so that nothing outside is
        // accessed, and its resolved form.
        let written = lexical(&self.root.join(path));
        if !written.starts_with(&self.root) {
            return Err(self.outside(path));
        }
        let settled = self.follow(path);
        if !settled.starts_with(&self.root) {
            return Err(self.outside(path));
        }
        if self.denies(&settled) {
            return Err(format!(
                "access denied: {path} belongs to the daemon itself; tools may not access it"
            ));
        }
        Ok(settled)
    }

    /// The open folder.
    pub(crate) fn held(&self) -> &OpenFolder {
        &self.held
    }

    /// A resolved path relative to the workspace.
    pub(crate) fn below<'a>(&self, path: &'a Path) -> io::Result<&'a Path> {
        let below = path.strip_prefix(&self.root);
        below.map_err(|_| io::Error::from(Errno::LOOP))
    }

    /// Opens a resolved regular file for reading. If it or an ancestor folder was replaced by a
    /// link since, this fails; opening a pipe does not block.
    pub(crate) fn open_file(&self, path: &Path) -> Result<File, String> {
        let opened = self.below(path).and_then(|below| self.held.file(below));
        opened.map_err(|error| self.unread(path, &error))
    }

    /// True if a resolved path is a folder.
    pub(crate) fn is_folder(&self, path: &Path) -> Result<bool, String> {
        let looked = self
            .below(path)
            .and_then(|below| self.held.is_folder(below));
        looked.map_err(|error| self.unread(path, &error))
    }

    /// The error for a resolved path that cannot be read.
    pub(crate) fn unread(&self, path: &Path, error: &io::Error) -> String {
        let shown = self.shown(path);
        match open_folder::is_swapped(error) {
            true => {
                format!(
                    "access denied: {shown} or a parent folder was replaced by a link meanwhile"
                )
            }
            false => format!("{shown}: {error}"),
        }
    }

    /// `path` as written and with links resolved, both absolute; the file may not exist.
    pub(crate) fn spellings(&self, path: &str) -> (PathBuf, PathBuf) {
        (lexical(&self.root.join(path)), self.follow(path))
    }

    fn outside(&self, path: &str) -> String {
        format!(
            "access denied: {path} is outside the allowed folder {}",
            self.root.display()
        )
    }

    /// A resolved path as results show it: relative to the root, separated by `/`.
    pub(crate) fn shown(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let parts: Vec<_> = below
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect();
        if parts.is_empty() {
            return ".".to_owned();
        }
        // A name with a line end must not look like two results.
        visible_but(&parts.join("/"), char::is_control)
    }
}

/// True if `new` contains a line with this mask more often than `old`.
fn has_more_lines_with(mask: &str, old: &str, new: &str) -> bool {
    let mut known: HashMap<&str, usize> = HashMap::new();
    for line in old.lines().filter(|line| line.contains(mask)) {
        *known.entry(line).or_default() += 1;
    }
    let mut said = new.lines().filter(|line| line.contains(mask));
    said.any(|line| match known.get_mut(line) {
        Some(left @ 1..) => {
            *left -= 1;
            false
        }
        _ => true,
    })
}

/// Removes `.` and `..` from `path` textually.
fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

/// Resolves the links in the existing part of `path`; the rest stays as written.
fn settled(path: &Path) -> PathBuf {
    let mut exists = path;
    loop {
        if let Ok(real) = exists.canonicalize() {
            let rest = path.strip_prefix(exists).unwrap_or(Path::new(""));
            return lexical(&real.join(rest));
        }
        match exists.parent() {
            Some(parent) => exists = parent,
            None => return lexical(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::Mode;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Fixture {
        _folder: tempfile::TempDir,
        outside: PathBuf,
        workspace: Workspace,
    }

    /// Creates `ws/` with files, links inward and outward and the daemon's own folder, and `secret`
    /// beside it.
    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let root = base.join("ws");
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::create_dir_all(root.join("state")).unwrap();
        fs::create_dir_all(base.join("ws-sibling")).unwrap();
        fs::write(root.join("src/a.rs"), "inside").unwrap();
        fs::write(root.join("state/token"), "secret").unwrap();
        fs::write(base.join("secret"), "secret").unwrap();
        fs::write(base.join("ws-sibling/secret"), "secret").unwrap();
        symlink(root.join("src/a.rs"), root.join("inward")).unwrap();
        symlink(base.join("secret"), root.join("out")).unwrap();
        symlink(&base, root.join("up")).unwrap();
        symlink(root.join("state"), root.join("src/hidden")).unwrap();
        let workspace = Workspace::open(&root, &[root.join("state")]).unwrap();
        Fixture {
            outside: base,
            _folder: folder,
            workspace,
        }
    }

    #[test]
    fn what_lies_inside_is_found() {
        let fixture = fixture();
        let whole = fixture.workspace.root().join("src/a.rs");
        for path in [
            "src/a.rs",
            "./src/../src/a.rs",
            "inward",
            whole.to_str().unwrap(),
        ] {
            assert_eq!(fixture.workspace.resolve(path).unwrap(), whole, "{path}");
        }
    }

    #[test]
    fn what_lies_outside_is_refused_with_the_allowed_folder() {
        let fixture = fixture();
        let secret = fixture.outside.join("secret");
        for path in [
            "..",
            "../secret",
            "src/../../secret",
            "/",
            "/etc/passwd",
            secret.to_str().unwrap(),
            "../ws-sibling/secret",
            "out",
            "up/secret",
            "up/not-there",
        ] {
            let error = fixture.workspace.resolve(path).unwrap_err();
            assert!(
                error.contains("outside the allowed folder"),
                "{path}: {error}"
            );
            let root = fixture.workspace.root().to_str().unwrap();
            assert!(error.contains(root), "{path}: {error}");
        }
        assert!(fixture.workspace.resolve("a\0b").is_err());
    }

    #[test]
    fn g10_7_the_daemons_own_folders_are_refused() {
        let fixture = fixture();
        for path in ["state", "state/token", "src/hidden/token", "state/new"] {
            let error = fixture.workspace.resolve(path).unwrap_err();
            assert!(error.contains("belongs to the daemon"), "{path}: {error}");
        }
        let root = fixture.workspace.root().join("state");
        assert!(Workspace::open(&root, std::slice::from_ref(&root)).is_err());
    }

    #[test]
    fn what_defines_agents_is_written_by_its_own_name_only() {
        let fixture = fixture();
        let root = fixture.workspace.root().to_owned();
        fs::create_dir_all(root.join(".abide/agents")).unwrap();
        symlink(root.join(".abide"), root.join("notes")).unwrap();
        let workspace = fixture.workspace.writing(Writes::Anywhere);
        let error = workspace
            .resolve_for_writing("notes/agents/a.md")
            .unwrap_err();
        assert!(error.contains(".abide/agents/a.md"), "{error}");
        assert!(workspace.resolve_for_writing(".abide/agents/a.md").is_ok());
        assert!(workspace.resolve_for_writing("src/new.rs").is_ok());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let fixture = fixture();
        let pipe = fixture.workspace.root().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let error = fixture.workspace.open_file(&pipe).unwrap_err();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn what_has_become_a_link_since_it_was_resolved_is_not_followed() {
        let fixture = fixture();
        let root = fixture.workspace.root();
        fs::create_dir(fixture.outside.join("other")).unwrap();
        fs::write(fixture.outside.join("other/a.rs"), "outside").unwrap();
        let file = fixture.workspace.resolve("src/a.rs").unwrap();
        let folder = fixture.workspace.resolve("src").unwrap();
        assert!(fixture.workspace.open_file(&file).is_ok());
        fs::rename(root.join("src"), root.join("gone")).unwrap();
        symlink(fixture.outside.join("other"), root.join("src")).unwrap();
        for refused in [
            fixture.workspace.open_file(&file).map(drop),
            fixture.workspace.open_file(&folder).map(drop),
            fixture
                .workspace
                .held()
                .folder(Path::new("src"))
                .map(drop)
                .map_err(|error| fixture.workspace.unread(&folder, &error)),
        ] {
            let error = refused.unwrap_err();
            assert!(
                error.contains("was replaced by a link meanwhile"),
                "{error}"
            );
        }
        assert_eq!(fixture.workspace.is_folder(&folder), Ok(false));
    }

    proptest! {
        #[test]
        fn no_path_leads_out(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "..", ".", "src", "a.rs", "out", "up", "inward", "secret", "ws", "state",
                    "hidden", "token", "", "ws-sibling", "deep",
                ]),
                1..8,
            )
        ) {
            let fixture = fixture();
            if let Ok(path) = fixture.workspace.resolve(&parts.join("/")) {
                prop_assert!(path.starts_with(fixture.workspace.root()));
                prop_assert!(!path.starts_with(fixture.workspace.root().join("state")));
            }
        }
    }
}
