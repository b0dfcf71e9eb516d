//! Says how the program is linked: addresses that the loader has to put in, some forty thousand,
//! are kept in their short form. That takes a megabyte off the file, and off the memory of
//! whatever starts.
//!
//! A program that is linked so needs version 2.36 of the GNU C library where it runs, and a
//! linker that knows the form. It is left out where either is in doubt, and where
//! `ABIDE_PORTABLE=1` asks for a program that is taken elsewhere.

use std::env;
use std::process::Command;

/// The first GNU C library whose loader knows the short form.
const KNOWS_IT: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ABIDE_PORTABLE");
    let is_wanted = env::var_os("ABIDE_PORTABLE").is_none_or(|asked| asked.is_empty());
    if is_wanted && is_for_this_machine() && is_usual_linker() && knows_it() {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// What is built for another machine may meet any loader there.
fn is_for_this_machine() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var("HOST").is_ok_and(|host| is("TARGET", &host))
}

/// Rust's own or the system's. Some others end a build for an option that they do not know.
fn is_usual_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_none() && !flags.contains("link")
}

/// Does this machine's loader?
fn knows_it() -> bool {
    libc().is_some_and(|version| version >= KNOWS_IT)
}

/// The version of this machine's GNU C library.
fn libc() -> Option<(u32, u32)> {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let said = String::from_utf8(asked.ok()?.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
