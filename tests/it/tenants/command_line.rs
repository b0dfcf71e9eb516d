//! `abide tokens`, as users see it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, Terminal, run};

/// Exit code, standard output and standard error.
fn output(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn tokens(place: &Place, words: &[&str]) -> (i32, String, String) {
    output(place.command(&[&["tokens"], words].concat()))
}

/// `abide tokens list` from another machine, with the token in this file.
fn listed_by(place: &Place, daemon: &Daemon, file: &Path) -> (i32, String, String) {
    let mut command = place.command(&["tokens", "list", "--url", daemon.url(), "--token-file"]);
    command.arg(file).env_remove("ABIDE_STATE_DIR");
    output(command)
}

/// A file of mode 600 with this token.
fn kept(place: &Place, name: &str, secret: &str) -> std::path::PathBuf {
    let file = place.path().join(name);
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn tokens_are_created_listed_and_revoked_from_the_command_line() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let (code, out, err) = tokens(&place, &[]);
        assert_eq!((code, out.as_str()), (0, ""));
        assert!(err.contains("no tokens yet: abide tokens create"), "{err}");

        // Only the token itself is on standard output, so that it can be piped into a file.
        let (code, secret, err) = tokens(
            &place,
            &[
                "create",
                "--user",
                "ann",
                "--scope",
                "read,run",
                "--expires",
                "30d",
                "--label",
                "laptop",
            ],
        );
        assert_eq!((code, secret.lines().count()), (0, 1), "{err}");
        assert!(secret.starts_with("abide_"), "{}", secret.len());
        assert!(err.contains("user ann in org default: read,run"), "{err}");
        assert!(err.contains("not shown again") && !err.contains(secret.trim()));
        let words = [
            "create",
            "--user",
            "bot",
            "--org",
            "team",
            "--scope",
            "read,run,approve,node,admin",
        ];
        let (code, out, _) = tokens(&place, &[&words[..], &["--json"]].concat());
        let made: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &made["token"]["org"]), (0, &json!("team")), "{made}");

        let (code, out, _) = tokens(&place, &["list", "--json"]);
        let list: Value = serde_json::from_str(&out).unwrap();
        let all = list["tokens"].as_array().unwrap();
        assert_eq!((code, all.len()), (0, 2), "{list}");
        assert!(!out.contains(secret.trim()));
        let (code, out, _) = tokens(&place, &["list", "--org", "team"]);
        assert!(
            code == 0 && out.contains("bot") && !out.contains("ann"),
            "{out}"
        );
        // On a screen of 80 columns nothing is cut off.
        let mut screen = Terminal::start(place.command(&["tokens"]));
        let (code, shown) = screen.end();
        assert_eq!(code, 0, "{shown}");
        for word in ["ann", "bot", "active", "never", "LABEL"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        let fits = |line: &str| line.trim_end().chars().count() <= 80;
        assert!(shown.lines().all(fits), "{shown}");

        let ann = kept(&place, "ann", &secret);
        let (code, _, err) = listed_by(&place, &daemon, &ann);
        assert_eq!(code, 9, "{err}");
        assert!(err.contains("needs the scope admin"), "{err}");
        // An administrator of another org sees the tokens of that org.
        let bot = kept(&place, "bot", made["secret"].as_str().unwrap());
        let (code, out, err) = listed_by(&place, &daemon, &bot);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("bot") && !out.contains("ann"), "{out}");

        let id = all.iter().find(|one| one["user"] == "ann").unwrap()["id"]
            .as_str()
            .unwrap();
        let digits = &id[id.len() - 8..];
        let (code, out, err) = tokens(&place, &["revoke", digits]);
        assert_eq!(code, 0, "{err}");
        assert!(
            out.contains(&format!("revoked: {digits} of user ann in org default")),
            "{out}"
        );
        let (code, _, err) = listed_by(&place, &daemon, &ann);
        assert_eq!(code, 11, "{err}");
        let (_, out, _) = tokens(&place, &["list"]);
        assert!(out.contains("revoked"), "{out}");
        assert_eq!(tokens(&place, &["revoke", "00000000"]).0, 3);
        for wrong in [
            &["create", "--user", "ann"][..],
            &["create", "--user", "ann", "--scope", "read,fly"],
            &[
                "create",
                "--user",
                "ann",
                "--scope",
                "read",
                "--expires",
                "soon",
            ],
        ] {
            let (code, out, err) = tokens(&place, wrong);
            assert_eq!((code, out.as_str()), (2, ""), "{err}");
        }
        assert_eq!(daemon.stop().await, 0);
        for words in [
            &["list"][..],
            &["create", "--user", "ann", "--scope", "read"],
            &["revoke", id],
        ] {
            let (code, out, err) = tokens(&place, words);
            assert_eq!((code, out.as_str()), (10, ""), "{words:?}: {err}");
        }
    });
}
