//! Says how the program is linked: addresses that the loader has to put in, some forty thousand,
//! are kept in their short form. That takes a megabyte off the file, and off the memory of
//! whatever starts.

use std::env;
use std::process::Command;

/// The first GNU C library whose loader knows the short form.
const KNOWS_IT: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if is_for_this_machine() && libc().is_some_and(|version| version >= KNOWS_IT) {
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

/// The version of this machine's GNU C library.
fn libc() -> Option<(u32, u32)> {
    let asked = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let said = String::from_utf8(asked.ok()?.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
