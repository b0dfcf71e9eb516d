//! Builds the daemon binary that is measured.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;

/// Builds the daemon with the packaging profile and without benchmark-only features.
pub fn dist() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    for (name, _) in std::env::vars_os() {
        // Cargo's variables about this package would trigger build scripts again.
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let mut child = command
        .args(["build", "--profile", "dist", "--bin", "abide"])
        .arg("--message-format=json-render-diagnostics")
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("no output of cargo")?;
    let mut built = None;
    for line in BufReader::new(stdout).lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if let Some(executable) = message["executable"].as_str() {
            built = Some(PathBuf::from(executable));
        }
    }
    if !child.wait()?.success() {
        return Err("the daemon could not be built".into());
    }
    Ok(built.ok_or("cargo built no binary")?)
}
