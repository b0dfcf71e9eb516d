//! Encrypted TCP connections, through the real binary: which certificates clients accept, how the
//! daemon gets and changes its own, and who may connect without.

mod certificates;
mod command;
mod doors;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use abide::clock::Clock;
use abide::kernel::time::Timestamp;
use abide::tls::{Fingerprint, SelfSigned, self_signed};
use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, eventually};

fn cert_of(place: &Place) -> PathBuf {
    place.path().join("tls_cert.pem")
}

fn key_of(place: &Place) -> PathBuf {
    place.path().join("tls_key.pem")
}

/// Replaces the file atomically.
fn put(path: &Path, text: &str, mode: u32) {
    let aside = path.with_extension("new");
    fs::write(&aside, text).unwrap();
    fs::set_permissions(&aside, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(&aside, path).unwrap();
}

/// Gives the place a new certificate for `localhost`, valid for `days` from `since`.
pub(crate) fn certify(place: &Place, days: u32, since: Timestamp) -> Fingerprint {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let made: SelfSigned = self_signed(&names, days, since).unwrap();
    // In this order an observer may see a pair that does not fit, as with any renewal.
    put(&key_of(place), &made.key_pem(), 0o600);
    put(&cert_of(place), &made.certificate_pem(), 0o644);
    made.fingerprint()
}

pub(crate) fn now() -> Timestamp {
    Clock::system().now()
}

/// A place whose daemon speaks TLS, and the fingerprint of its certificate.
pub(crate) fn encrypted() -> (Place, Fingerprint) {
    let place = Place::new(Script::new());
    let print = certify(&place, 90, now());
    (configured(place), print)
}

/// Its daemon speaks TLS with the certificate of the place.
pub(crate) fn configured(mut place: Place) -> Place {
    for (key, path) in [
        ("gateway.tls_cert_file", cert_of(&place)),
        ("gateway.tls_key_file", key_of(&place)),
    ] {
        place.set(key, &format!("{path:?}"));
    }
    place
}

/// A command that reaches the daemon by `url` and the token alone, as from another machine.
fn remote(place: &Place, url: &str, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command
        .env_remove("ABIDE_STATE_DIR")
        .args(["--url", url, "--token-file"])
        .arg(place.state().join("token"));
    command
}

/// Exit code and standard error.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // Long lines are wrapped between words.
    let words: Vec<&str> = text.split_whitespace().collect();
    (output.status.code(), words.join(" "))
}

fn run_of(mut command: Command) -> (Option<i32>, String) {
    said(&command.output().unwrap())
}

/// The findings of `gateway.doctor` with this id.
async fn findings(daemon: &Daemon, id: &str) -> Vec<Value> {
    let found = daemon
        .client()
        .await
        .call("gateway.doctor", json!({}))
        .await;
    let all = found["findings"].as_array().unwrap().clone();
    all.into_iter().filter(|one| one["id"] == id).collect()
}

/// Waits until local clients are told of this certificate.
pub(crate) async fn in_force(place: &Place, print: Fingerprint) {
    let file = place.state().join("endpoint.json");
    eventually("the new certificate", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        async move { text.contains(&print.to_string()).then_some(()) }
    })
    .await;
}
