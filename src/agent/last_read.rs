//! Keeps the last known content of files that cannot be read now. Exhausted descriptors, missing
//! permissions or a failing disk say nothing about the content, so the last read stays in effect
//! until the next successful one.

use super::folder::AgentFile;
use super::raw::LoadError;

/// Returns `now` with unreadable files replaced by their state in `before`, and one reason for each
/// unreadable place.
pub(super) fn keep(now: Vec<AgentFile>, before: &[AgentFile]) -> (Vec<AgentFile>, Vec<String>) {
    let mut unread = Vec::new();
    let mut kept = Vec::with_capacity(now.len());
    for mut found in now {
        if !found.unread {
            kept.push(found);
            continue;
        }
        let known: Vec<AgentFile> = before
            .iter()
            .filter(|known| known.outcome.is_ok())
            .filter(|known| {
                known.file == found.file || known.file.parent() == Some(found.file.as_path())
            })
            .cloned()
            .collect();
        if let Err(broken) = &found.outcome {
            let place = found.file.display();
            unread.push(format!("{place}: {}", broken.reason));
            if !known.is_empty() {
                let reason = format!(
                    "{}; the last successful read stays in effect, and reading is retried automatically",
                    broken.reason
                );
                found.outcome = Err(LoadError::whole(reason));
            }
        }
        kept.push(found);
        kept.extend(known);
    }
    (kept, unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::folder::{self, Dialect};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn names(found: &[AgentFile]) -> Vec<&str> {
        let good = found.iter().filter_map(|found| found.outcome.as_ref().ok());
        good.map(|draft| draft.definition.name.as_str()).collect()
    }

    fn unreadable(file: &Path) -> AgentFile {
        AgentFile {
            file: file.to_owned(),
            outcome: Err(LoadError::whole("it cannot be read: Too many open files")),
            unread: true,
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_it_was_and_what_is_gone_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let read = || folder::read(dir.path(), Dialect::Own, None);
        for name in ["a", "b", "c"] {
            let text = "---\ndescription: d\n---\nLook.\n";
            fs::write(dir.path().join(format!("{name}.md")), text).unwrap();
        }
        let before = read();
        assert_eq!(names(&before), ["a", "b", "c"]);

        // The whole folder is unreadable.
        let (kept, unread) = keep(vec![unreadable(dir.path())], &before);
        assert_eq!(names(&kept), ["a", "b", "c"]);
        assert_eq!(unread.len(), 1, "{unread:?}");
        assert!(unread[0].contains("Too many open files"), "{unread:?}");
        // Repeated reads keep it.
        let (kept, _) = keep(vec![unreadable(dir.path())], &kept);
        assert_eq!(names(&kept), ["a", "b", "c"]);

        // One file is unreadable, while another is removed and a third is refused. The third is
        // parseable, since an unparseable file counts as being saved.
        fs::remove_file(dir.path().join("b.md")).unwrap();
        let refused = "---\ndescription: d\nmode: none-of-these\n---\nLook.\n";
        fs::write(dir.path().join("c.md"), refused).unwrap();
        let mut now = read();
        now[0] = unreadable(&dir.path().join("a.md"));
        let (kept, unread) = keep(now, &before);
        assert_eq!((names(&kept), unread.len()), (vec!["a"], 1));

        // What was never read cannot be kept, and is reported.
        let (kept, unread) = keep(vec![unreadable(dir.path())], &[]);
        assert_eq!((names(&kept), unread.len()), (vec![], 1));
    }

    #[test]
    fn a_folder_or_file_without_the_right_to_read_is_unread_and_one_that_is_gone_is_not() {
        if rustix::process::geteuid().is_root() {
            // Root reads everything; the daemon's tests cover this as another user.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.md"), "---\ndescription: d\n---\nLook.\n").unwrap();
        let closed = fs::Permissions::from_mode(0o000);
        fs::set_permissions(dir.path().join("a.md"), closed).unwrap();
        assert!(folder::read(dir.path(), Dialect::Own, None)[0].unread);
        assert!(folder::read(&dir.path().join("none"), Dialect::Own, None).is_empty());
    }
}
