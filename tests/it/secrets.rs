//! The state folder and its secrets: files that others could have planted, or that cannot be
//! secrets, are refused with a remedy, by the daemon and by clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Output;

use crate::harness::{Place, Script, run, says};

const NOBODY: u32 = 65534;
const GOOD: &str = "0123456789abcdef0123456789abcdef\n";

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

fn said(output: Output) -> (i32, String) {
    let code = output.status.code().unwrap();
    (code, String::from_utf8(output.stderr).unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A state folder of the user, as a daemon leaves it.
fn with_folder() -> Place {
    let place = place();
    fs::create_dir(place.state()).unwrap();
    set_mode(&place.state(), 0o700);
    place
}

/// Creates something at the path of a secret.
type Put = fn(&Path);

const IMPOSSIBLE: &[(&str, Put)] = &[
    ("it is empty", |path| fs::write(path, "").unwrap()),
    ("it is empty", |path| fs::write(path, "\n \n").unwrap()),
    ("a secret needs at least", |path| {
        fs::write(path, "short\n").unwrap()
    }),
    ("more than one line", |path| {
        fs::write(path, GOOD.repeat(2)).unwrap()
    }),
    ("it is not UTF-8 text", |path| {
        fs::write(path, [0xff; 64]).unwrap()
    }),
    ("characters that no token has", |path| {
        fs::write(path, [0; 64]).unwrap()
    }),
    ("more than 4096 bytes", |path| {
        fs::write(path, "a".repeat(1 << 20)).unwrap()
    }),
    ("it is not a regular file", |path| {
        fs::create_dir(path).unwrap()
    }),
    ("it is not a regular file", |path| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
    }),
    ("it is a symbolic link", |path| {
        let elsewhere = path.parent().unwrap().parent().unwrap().join("elsewhere");
        fs::write(&elsewhere, GOOD).unwrap();
        set_mode(&elsewhere, 0o600);
        symlink(elsewhere, path).unwrap();
    }),
    ("other users can write to it", |path| {
        fs::write(path, GOOD).unwrap();
        set_mode(path, 0o666);
    }),
];

#[test]
fn a_secret_that_cannot_be_one_is_refused_with_what_to_do_and_left_as_it_is() {
    for (name, advice) in [
        ("token", "the next start creates a new one"),
        ("env.key", "Restore the right key"),
    ] {
        for (why, put) in IMPOSSIBLE {
            let place = with_folder();
            let path = place.state().join(name);
            put(&path);
            if !why.contains("write") && fs::symlink_metadata(&path).unwrap().is_file() {
                set_mode(&path, 0o600);
            }
            let before = (!why.contains("regular")).then(|| fs::read(&path).unwrap());
            let (code, err) = said(place.command(&["serve"]).output().unwrap());
            assert_eq!(code, 77, "{name}, {why}: {err}");
            for part in [*why, advice, path.to_str().unwrap()] {
                assert!(err.contains(part), "{name}: {part:?} is not in {err}");
            }
            assert!(
                !place.database().exists(),
                "{name}, {why}: something was made"
            );
            if let Some(before) = before {
                assert_eq!(fs::read(&path).unwrap(), before);
            }
        }
    }
}

#[test]
fn a_secret_that_others_may_read_is_closed_with_a_warning() {
    run(async {
        let place = with_folder();
        let token = place.state().join("token");
        fs::write(&token, GOOD).unwrap();
        set_mode(&token, 0o644);
        let daemon = place.start().await;
        assert_eq!(
            daemon.token(),
            GOOD.trim(),
            "it is still the one that counts"
        );
        let mode = fs::metadata(&token).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            daemon.logged().contains("others could read this secret"),
            "{}",
            daemon.logged()
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_client_says_what_is_wrong_with_a_token_file_and_shows_it_to_no_daemon() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = place.path().join("given");
        for (why, put) in IMPOSSIBLE {
            // A client may follow links, and may use a short token of a different daemon.
            if why.contains("link") || why.contains("at least") {
                continue;
            }
            put(&path);
            let line = ["ps", "--token-file", "given"];
            let (code, err) = said(place.command(&line).output().unwrap());
            assert_eq!(code, 11, "{why}: {err}");
            assert!(err.contains(why) && err.contains("given"), "{why}: {err}");
            match path.is_dir() {
                true => fs::remove_dir(&path).unwrap(),
                false => fs::remove_file(&path).unwrap(),
            }
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_state_folder_that_another_user_could_have_filled_is_refused_wherever_the_socket_is() {
    let try_it = |place: &Place, why: &str| {
        let elsewhere = tempfile::tempdir().unwrap();
        let socket = elsewhere.path().join("a.sock");
        let socket = socket.to_str().unwrap();
        for more in [&["serve"][..], &["serve", "--detach"]] {
            for more in [more.to_vec(), [more, &["--socket", socket]].concat()] {
                let (code, err) = said(place.command(&more).output().unwrap());
                assert_eq!(code, 77, "{more:?}: {err}");
                assert!(err.contains(why), "{more:?}: {err}");
                let entries = fs::read_dir(place.state()).unwrap();
                let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(names, ["token"], "{more:?}: something was made");
            }
        }
    };
    let planted = |mode| {
        let place = with_folder();
        fs::write(place.state().join("token"), GOOD).unwrap();
        set_mode(&place.state().join("token"), 0o600);
        set_mode(&place.state(), mode);
        place
    };
    for mode in [0o777, 0o770, 0o702] {
        try_it(&planted(mode), "chmod 700");
    }
    if !rustix::process::geteuid().is_root() {
        println!("another user's folder: skipped, only root can make one");
        return;
    }
    let place = planted(0o700);
    for path in [place.state(), place.state().join("token")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    try_it(&place, "owned by user 65534");
    // The folder belongs to the daemon's user, the planted file does not.
    chown(place.state(), Some(0), Some(0)).unwrap();
    let (code, err) = said(place.command(&["serve"]).output().unwrap());
    assert_eq!(code, 77, "{err}");
    assert!(err.contains("owned by user 65534"), "{err}");
    // A folder for the socket in which another user could replace it.
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = folder.path().join("a.sock");
    let place = with_folder();
    let line = ["serve", "--socket", socket.to_str().unwrap()];
    let (code, err) = said(place.command(&line).output().unwrap());
    assert_eq!(code, 77, "{err}");
    assert!(
        err.contains("Choose a folder of your own for the socket"),
        "{err}"
    );
}

#[test]
fn a_credential_that_cannot_be_looked_for_stops_the_start_and_a_missing_one_does_not() {
    let place = with_folder();
    let credentials = place.path().join("credentials");
    // A file in the place of the folder.
    fs::write(&credentials, "").unwrap();
    let serve = || {
        let mut command = place.command(&["serve"]);
        command.env("CREDENTIALS_DIRECTORY", &credentials);
        command
    };
    let (code, error) = said(serve().output().unwrap());
    assert_eq!(code, 78, "{error}");
    let path = credentials.join("abide-env-key");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("Nothing was started"), "{error}");
    assert!(!place.state().join("env.key").exists());
    fs::remove_file(&credentials).unwrap();
    fs::create_dir(&credentials).unwrap();
    run(async {
        let daemon = place.start_command(serve()).await.unwrap();
        assert!(place.state().join("env.key").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}
