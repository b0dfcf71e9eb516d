//! The Unix socket: how clients find it, which users may connect, and its permissions.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use abide::client::Client;
use serde_json::{Value, json};

use crate::harness::{Place, Script, run, says};

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

fn socket(place: &Place) -> PathBuf {
    place.state().join("abide.sock")
}

/// The permission bits of the file at `path`.
fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs the command line; returns exit code, output and standard error.
fn abide(place: &Place, line: &[&str]) -> (i32, String, String) {
    said(place.command(line).output().unwrap())
}

fn said(output: Output) -> (i32, String, String) {
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A curl request over the socket: HTTP status and body.
fn curl(socket: &Path, more: &[&str]) -> (u16, Value) {
    curled(Command::new("curl").args(arguments(socket, more)))
}

fn arguments(socket: &Path, more: &[&str]) -> Vec<String> {
    let own = ["-sS", "-w", "\n%{http_code}", "--unix-socket"];
    let own = own.iter().map(|text| (*text).to_owned());
    own.chain([socket.to_str().unwrap().to_owned()])
        .chain(more.iter().map(|text| (*text).to_owned()))
        .collect()
}

fn curled(command: &mut Command) -> (u16, Value) {
    let (code, out, err) = said(command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    let (body, status) = out.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap())
}

const JSON: &str = "Content-Type: application/json";
const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"gateway.ping"}"#;

#[test]
fn the_same_doors_are_on_the_socket_and_need_no_token() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = socket(&place);
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
        assert_eq!((mode(&path), mode(&place.state())), (0o600, 0o700));

        let (status, body) = curl(&path, &["-H", JSON, "-d", PING, "http://localhost/"]);
        assert_eq!((status, &body["id"]), (200, &json!(7)), "{body}");
        let (status, body) = curl(&path, &["http://localhost/ready"]);
        assert_eq!((status, &body["state"]), (200, &json!("ready")));
        // The same call over TCP is unauthorized.
        let (status, _) = daemon.get("/").unwrap();
        assert_eq!(status, 401);

        let client = Client::connect_socket(&path).await.unwrap();
        let told: Value = client.call("gateway.status", json!({})).await.unwrap();
        assert_eq!(told["socket"], path.to_str().unwrap());
        let hello: Value = client.call("gateway.hello", json!({})).await.unwrap();
        assert_eq!(hello["principal"]["user"], "admin");
        let file = fs::read_to_string(place.state().join("endpoint.json")).unwrap();
        let endpoint: Value = serde_json::from_str(&file).unwrap();
        assert_eq!(endpoint["socket"], path.to_str().unwrap());
        // Work started over the socket is visible over TCP.
        let task = json!({ "task": "[a]", "agent": "explore" });
        let run: Value = client.call("sessions.spawn", task).await.unwrap();
        let id = run["runId"].as_str().unwrap();
        let over_tcp = daemon.client().await;
        assert_eq!(over_tcp.ended(id).await["result"], "a is done");

        drop(client);
        assert_eq!(daemon.stop().await, 0);
        assert!(!path.exists(), "a clean stop leaves no socket behind");
    });
}

#[test]
fn the_command_line_takes_the_socket_first_and_the_address_where_it_is_lost() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = socket(&place);
        let token = place.state().join("token");
        let aside = place.path().join("token");
        fs::rename(&token, &aside).unwrap();
        // There is no token, so this uses the socket.
        let (code, out, err) = abide(&place, &["status", "--json"]);
        assert_eq!(code, 0, "{err}");
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(told["socket"], path.to_str().unwrap());
        let (_, out, _) = abide(&place, &["status"]);
        assert!(
            out.contains(&format!("socket   {}", path.display())),
            "{out}"
        );
        // A named token is always used.
        fs::write(place.path().join("wrong"), "wrong").unwrap();
        let (code, _, err) = abide(&place, &["status", "--token-file", "wrong"]);
        assert_eq!(code, 11, "{err}");

        fs::rename(&aside, &token).unwrap();
        fs::remove_file(&path).unwrap();
        let (code, _, err) = abide(&place, &["status"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_named_socket_is_where_it_was_named() {
    run(async {
        let mut place = place();
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("made/a.sock");
        place.set("gateway.socket", &format!("{named:?}"));
        let daemon = place.start().await;
        assert_eq!(
            (mode(&named), mode(named.parent().unwrap())),
            (0o600, 0o700)
        );
        assert!(!socket(&place).exists());
        // A client that knows only the path.
        let elsewhere = folder.path().join("elsewhere");
        let ask = |arguments: &[&str], variable: Option<&Path>| {
            let mut command = place.command(arguments);
            command.env("ABIDE_STATE_DIR", &elsewhere);
            if let Some(path) = variable {
                command.env("ABIDE_SOCKET", path);
            }
            said(command.output().unwrap())
        };
        let text = named.to_str().unwrap();
        for (line, variable) in [
            (&["status", "--json", "--socket", text][..], None),
            (&["status", "--json"][..], Some(named.as_path())),
        ] {
            let (code, out, err) = ask(line, variable);
            assert_eq!(code, 0, "{err}");
            let told: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(told["pid"], daemon.pid());
        }
        // There is no fallback if the named socket does not accept connections.
        let nowhere = folder.path().join("nowhere.sock");
        let (code, _, err) = abide(&place, &["ps", "--socket", nowhere.to_str().unwrap()]);
        assert_eq!(code, 10, "{err}");
        assert!(err.contains("nowhere.sock"), "{err}");
        let (code, _, err) = ask(&["stop", "--socket", text], None);
        assert_eq!(code, 0, "{err}");
        let mut daemon = daemon;
        assert_eq!(daemon.ended().await.code(), Some(0));
        assert!(!named.exists());
    });
}

#[test]
fn g15_3_the_socket_of_a_dead_daemon_is_replaced() {
    run(async {
        let place = place();
        place.start().await.kill().await;
        let path = socket(&place);
        assert!(path.exists());
        let daemon = place.start().await;
        assert!(Client::connect_socket(&path).await.is_ok());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g15_2_a_socket_of_somebody_else_is_left_alone() {
    run(async {
        let place = place();
        let path = place.path().join("other.sock");
        let living = UnixListener::bind(&path).unwrap();
        let text = path.to_str().unwrap();
        let (code, _, err) = abide(&place, &["serve", "--socket", text]);
        assert_eq!(code, 75, "{err}");
        assert!(err.contains(text), "{err}");
        assert!(!place.database().exists(), "something was opened");
        assert!(path.exists(), "it was taken away");
        drop(living);

        let file = place.path().join("notes");
        fs::write(&file, "mine").unwrap();
        let (code, _, err) = abide(&place, &["serve", "--socket", file.to_str().unwrap()]);
        assert_eq!(code, 78, "{err}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");

        // A folder in which other users could replace the socket.
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let inside = open.join("s");
        let (code, _, err) = abide(&place, &["serve", "--socket", inside.to_str().unwrap()]);
        assert_eq!(code, 77, "{err}");
        assert!(!inside.exists());
    });
}

#[test]
fn a_state_folder_with_a_long_path_has_its_socket_in_the_runtime_folder() {
    run(async {
        let place = place();
        let runtime = tempfile::tempdir().unwrap();
        let long = place.path().join("long/".repeat(20));
        let command = |arguments: &[&str]| {
            let mut command = place.command(arguments);
            command
                .env("ABIDE_STATE_DIR", &long)
                .env("XDG_RUNTIME_DIR", runtime.path());
            command
        };
        let (code, out, err) = said(command(&["serve", "--detach", "--json"]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        let endpoint: Value = serde_json::from_str(&out).unwrap();
        let path = PathBuf::from(endpoint["socket"].as_str().unwrap());
        assert_eq!(path.parent().unwrap(), runtime.path().join("abide"));
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::remove_file(long.join("token")).unwrap();
        let (code, _, err) = said(command(&["stop"]).output().unwrap());
        assert_eq!(code, 0, "{err}");
        assert!(!path.exists());

        // Without such a folder only TCP is available, and the log says so.
        let mut bare = command(&["serve", "--detach", "--json"]);
        let (code, out, err) = said(bare.env_remove("XDG_RUNTIME_DIR").output().unwrap());
        assert_eq!(code, 0, "{err}");
        let endpoint: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(endpoint["socket"], Value::Null);
        let log = fs::read_to_string(long.join("abide.log")).unwrap();
        assert!(log.contains("no Unix socket"), "{log}");
        let (code, _, err) = said(command(&["stop"]).output().unwrap());
        assert_eq!(code, 0, "{err}");
    });
}

#[test]
fn g10_1_web_pages_do_not_come_in_by_a_forwarded_socket() {
    run(async {
        let place = place().with("gateway.allowed_origins", "[\"https://panel.lan\"]");
        let daemon = place.start().await;
        let ask = |header: &str| {
            let line = ["-H", JSON, "-H", header, "-d", PING, "http://localhost/"];
            curl(&socket(&place), &line)
        };
        assert_eq!(ask("Origin: https://panel.lan").0, 200);
        for header in ["Origin: https://evil.example", "Host: evil.example:7777"] {
            let (status, body) = ask(header);
            assert_eq!(status, 403, "{header}");
            assert_eq!(body["error"]["data"]["kind"], "forbidden");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn another_user_is_refused_by_the_system_and_by_the_daemon() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = socket(&place);
        let as_nobody = || {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl"]);
            command.args(arguments(
                &path,
                &["-H", JSON, "-d", PING, "http://localhost/"],
            ));
            command
        };
        // With the original permissions, another user cannot even connect.
        assert_ne!(as_nobody().output().unwrap().status.code(), Some(0));
        // Opening the files to others does not open the daemon to them.
        for open in [place.path(), &place.state()] {
            fs::set_permissions(open, fs::Permissions::from_mode(0o711)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let (status, body) = curled(&mut as_nobody());
        assert_eq!(status, 403, "{body}");
        let error = &body["error"];
        assert_eq!(error["data"]["kind"], "forbidden");
        assert!(
            error["message"].as_str().unwrap().contains("65534"),
            "{error}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A command of this program as a user who may not open the daemon's socket but read everything else.
fn shut_out(place: &Place, arguments: &[&str]) -> Command {
    let program = place.path().join("abide");
    let built = Path::new(env!("CARGO_BIN_EXE_abide"));
    if !program.exists() {
        fs::hard_link(built, &program)
            .or_else(|_| fs::copy(built, &program).map(drop))
            .unwrap();
    }
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(program);
            command
        }
        false => Command::new(program),
    };
    command.args(arguments).env_clear();
    for (name, value) in place.command(&[]).get_envs() {
        command.env(name, value.unwrap());
    }
    command.current_dir(place.path());
    command
}

#[test]
fn a_client_that_may_not_open_the_socket_does_not_come_in_by_the_address_with_the_owners_token() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = socket(&place);
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for open in [place.path(), &place.state()] {
            mode(open, 0o711);
        }
        for readable in ["endpoint.json", "token"] {
            mode(&place.state().join(readable), 0o644);
        }
        mode(&path, 0o000);
        for named in [&[][..], &["--socket", path.to_str().unwrap()]] {
            for command in [
                &["status"][..],
                &["rpc", "gateway.ping"],
                &["rpc", "--stdio"],
            ] {
                let mut command = shut_out(&place, &[command, named].concat());
                let output = command.stdin(Stdio::null()).output().unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(9), "{command:?}: {error}");
                let owner = rustix::process::geteuid().as_raw();
                for said in [
                    &format!("no permission to connect to the socket {}", path.display()),
                    &format!("belongs to user {owner} (mode 0)"),
                    "Nothing was sent",
                ] {
                    assert!(error.contains(said), "{said}: {error}");
                }
            }
        }
        // With a token that the caller names, the address is used.
        let token = place.state().join("token");
        let named = ["--token-file", token.to_str().unwrap()];
        let output = shut_out(&place, &[&["status"][..], &named].concat()).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_of_a_run_does_not_come_in_by_the_address_if_the_socket_is_gone() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = socket(&place);
        fs::remove_file(&path).unwrap();
        let status = |of_run: bool| {
            let mut command = place.command(&["status"]);
            if of_run {
                command.env("ABIDE_RUN_ID", "01936f0e-0000-7000-8000-000000000001");
            }
            command.output().unwrap()
        };
        let output = status(true);
        assert_eq!(output.status.code(), Some(10), "{output:?}");
        let output = status(false);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}
