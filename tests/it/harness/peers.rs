//! Third-party programs that tests run the product with: servers, clients and validators from the
//! registries of Python and Node. They are installed once into a cache that all checkouts share;
//! without a network and without that cache the tests that need them are skipped with a message.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::house::root;

/// The virtual environment with the packages of `tests/it/peers/requirements.txt`; the error is why
/// there is none.
pub(crate) fn python() -> Result<PathBuf, String> {
    let here = root().join("tests/it/peers");
    let folder = installed("python", &here, &["requirements.txt"], install_python)?;
    Ok(folder.join("venv"))
}

/// The folder whose `node_modules` has the packages of `tests/it/peers/SET/package.json`; the error
/// is why there is none.
pub(crate) fn node(set: &str) -> Result<PathBuf, String> {
    let here = root().join("tests/it/peers").join(set);
    installed(
        set,
        &here,
        &["package.json", "package-lock.json"],
        install_node,
    )
}

/// Prints past the test runner's capture that `what` was not checked: a skipped check must not look
/// like a success.
pub(crate) fn skipped(what: &str, why: &str) {
    announce(&format!("skipped: {what} did not run: {why}"));
}

/// Prints a line past the test runner's capture.
pub(crate) fn announce(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Runs a program to its end; the error is the last line that it wrote to stderr.
pub(crate) fn carry_out(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = said.lines().last().unwrap_or("it failed");
            Err(format!("{program}: {last}"))
        }
        Err(fault) => Err(format!("{program}: {fault}")),
    }
}

/// The cache: `ABIDE_TEST_CACHE`, else `abide-tests` in the user's cache folder; without a home folder
/// it is in this checkout.
fn cache() -> PathBuf {
    let of = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(cache) = of("ABIDE_TEST_CACHE") {
        return cache;
    }
    let of_user = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    of_user.map_or_else(
        || root().join("target/peers"),
        |cache| cache.join("abide-tests"),
    )
}

/// The folder for what these files in `here` name; it is installed unless it is there. Other versions
/// of the files have another folder.
fn installed(
    kind: &str,
    here: &Path,
    files: &[&str],
    install: fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let mut digest = blake3::Hasher::new();
    for file in files {
        digest.update(&fs::read(here.join(file)).unwrap());
    }
    let digest = digest.finalize().to_hex();
    let folder = cache().join(format!("{kind}-{}", &digest[..12]));
    let done = folder.join("installed");
    fs::create_dir_all(&folder).map_err(|fault| format!("{}: {fault}", folder.display()))?;
    // Tests of several checkouts may run at the same time.
    let lock = File::create(folder.join("lock")).map_err(|fault| fault.to_string())?;
    lock.lock().map_err(|fault| fault.to_string())?;
    if !done.exists() {
        for file in files {
            fs::copy(here.join(file), folder.join(file)).map_err(|fault| fault.to_string())?;
        }
        install(&folder)?;
        fs::write(done, "").map_err(|fault| fault.to_string())?;
    }
    Ok(folder)
}

fn install_python(folder: &Path) -> Result<(), String> {
    carry_out(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(folder.join("venv")),
    )?;
    let mut install = Command::new(folder.join("venv/bin/python"));
    install
        // Bytecode of the few modules that are used is made when they are.
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--no-input",
        ])
        .args(["--disable-pip-version-check", "--retries=1", "--timeout=60"])
        .arg("--requirement")
        .arg(folder.join("requirements.txt"));
    carry_out(&mut install)
}

fn install_node(folder: &Path) -> Result<(), String> {
    // Not `ci`: it refuses packages that name others which were never published for some systems.
    let mut install = Command::new("npm");
    install
        .args([
            "install",
            "--no-save",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
        ])
        .args(["--fetch-retries=1", "--fetch-timeout=60000"])
        .current_dir(folder);
    carry_out(&mut install)
}
