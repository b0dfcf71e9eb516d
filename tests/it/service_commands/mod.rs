//! `abide service` through the real binary, with scripted service managers that really start the
//! installed service.

mod cycle;
mod manager;
mod refusals;
mod upgrade;

use std::fs;
use std::path::{Path, PathBuf};

use self::manager::ScriptedManager;
use crate::harness::{Link, Place, Script, says};

/// A place whose runs with `[held]` in their task end once `go` is let go.
fn place() -> Place {
    Place::new(Script::new().on("[held]", [says("held is done").held_by("go")]))
        .with("gateway.drain_timeout", "\"0s\"")
}

/// Puts a copy of the program into this folder.
fn put(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("abide");
    fs::copy(env!("CARGO_BIN_EXE_abide"), &path).unwrap();
    path
}

/// A connection to the service's daemon.
async fn client(manager: &ScriptedManager) -> Link {
    let socket = manager.place().state().join("abide.sock");
    Link::local(&socket).await.unwrap()
}
