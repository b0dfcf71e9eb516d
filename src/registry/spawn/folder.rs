//! Resolves the working folder of a session or run: canonicalized once, when it is requested, and
//! stored without symbolic links, so that a link created later cannot redirect the run's tools.

use std::io;
use std::path::Path;

use crate::file_work::DEFINITIONS;
use crate::kernel::fault::{Fault, Kind};

/// The canonical path of `cwd`; refused if it is not an existing folder.
pub(crate) async fn taken(cwd: Option<String>) -> Result<Option<String>, Fault> {
    let Some(cwd) = cwd else { return Ok(None) };
    let looked = DEFINITIONS
        .run(move |_| look(Path::new(&cwd)).map_err(|fault| refused(&cwd, &fault)))
        .await;
    match looked {
        Ok(looked) => looked.map(Some),
        Err(busy) => Err(Fault::new(Kind::Busy, busy.to_string())),
    }
}

fn look(cwd: &Path) -> io::Result<String> {
    let folder = cwd.canonicalize()?;
    if !folder.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    let unfit = |_| io::Error::new(io::ErrorKind::InvalidData, "its path is not UTF-8");
    folder.into_os_string().into_string().map_err(unfit)
}

fn refused(cwd: &str, fault: &io::Error) -> Fault {
    let why = match fault.kind() {
        io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
        _ => fault.to_string(),
    };
    Fault::params(
        "cwd",
        format!("{cwd} cannot be used: {why}; nothing was changed"),
    )
    .hint("create the folder first, or pass another one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_folder_is_taken_without_links_and_what_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("work")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        std::os::unix::fs::symlink(base.join("work"), base.join("link")).unwrap();
        let text = |name: &str| base.join(name).to_str().unwrap().to_owned();
        let taken = async |name: &str| super::taken(Some(text(name))).await;
        assert_eq!(taken("link/../link").await.unwrap(), Some(text("work")));
        for (name, why) in [("gone", "no such folder"), ("file", "not a folder")] {
            let fault = taken(name).await.unwrap_err();
            assert_eq!(fault.kind, Kind::InvalidParams);
            assert!(fault.message.contains(why), "{fault:?}");
        }
        assert_eq!(super::taken(None).await.unwrap(), None);
    }
}
