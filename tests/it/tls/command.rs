//! `abide tls`: makes and shows certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::*;
use crate::harness::run;

fn printed(place: &Place, arguments: &[&str]) -> String {
    let output = place.command(arguments).output().unwrap();
    let text = said(&output);
    assert_eq!(text.0, Some(0), "{}", text.1);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_new_certificate_is_shown_set_and_used() {
    run(async {
        let place = Place::new(Script::new());
        let (code, text) = run_of(place.command(&["tls", "show"]));
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("abide tls new"), "{text}");

        let new = [
            "tls",
            "new",
            "--name",
            "build.example",
            "--days",
            "90",
            "--use",
            "--json",
        ];
        let made: Value = serde_json::from_str(&printed(&place, &new)).unwrap();
        let [certificate, key] =
            ["certificate", "key"].map(|field| PathBuf::from(made[field].as_str().unwrap()));
        assert_eq!(certificate, cert_of(&place), "beside the settings");
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let names = json!(["build.example", "localhost", "127.0.0.1", "::1"]);
        assert_eq!(made["names"], names);
        let print = made["fingerprint"].as_str().unwrap();

        let daemon = place.start().await;
        let (code, text) = run_of(remote(&place, daemon.url(), &["status", "--pin", print]));
        assert_eq!(code, Some(0), "{text}");
        let shown = printed(&place, &["tls", "show"]);
        for part in [print, "build.example, localhost", "valid until"] {
            assert!(shown.contains(part), "{shown}");
        }

        // Nothing is replaced unasked.
        let (code, text) = run_of(place.command(&["tls", "new"]));
        assert_eq!(code, Some(9), "{text}");
        assert!(printed(&place, &["tls", "show"]).contains(print));
        let replaced = printed(&place, &["tls", "new", "--replace", "--json"]);
        let replaced: Value = serde_json::from_str(&replaced).unwrap();
        let new: Fingerprint = replaced["fingerprint"].as_str().unwrap().parse().unwrap();
        in_force(&place, new).await;
        assert_eq!(daemon.stop().await, 0);

        let shown = printed(&place, &["tls", "show"]);
        assert!(shown.contains(&new.to_string()), "{shown}");
    });
}

#[test]
fn names_days_and_folder_are_checked_before_anything_is_written() {
    let place = Place::new(Script::new());
    let out = place.path().join("new/tls");
    let out = out.to_str().unwrap();
    for bad in [
        &["--name", "a b"][..],
        &["--name", "https://a"],
        &["--days", "0"],
        &["--days", "40000"],
    ] {
        let mut words = vec!["tls", "new", "--out", out];
        words.extend(bad);
        let (code, text) = run_of(place.command(&words));
        assert_eq!(code, Some(2), "{bad:?}: {text}");
        assert!(!Path::new(out).exists());
    }
    let made = printed(&place, &["tls", "new", "--out", out]);
    assert!(made.contains("SHA-256"), "{made}");
    let (_, text) = run_of(place.command(&["tls", "new", "--out", out, "--replace"]));
    assert!(text.contains("tls_cert_file = "), "{text}");
    let settings = fs::read_to_string(place.path().join("abide.toml")).unwrap();
    assert!(!settings.contains("tls"), "{settings}");
    // Neither file of an interrupted replacement is left behind.
    let left = fs::read_dir(out).unwrap().count();
    assert_eq!(left, 2);
}
