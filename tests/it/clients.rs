//! `abide rpc --client`: the generated clients pass the strict checkers of their languages, and
//! programs that use them work with a real daemon, over its kill, and with servers that the test plays;
//! the bot of `docs/bots.md` serves a chat.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener};
use tokio::process::Command;

use crate::harness::{Place, Script, calls, eventually, peers, run, says};
use crate::home::{Home, output_of};
use crate::house::root;
use crate::providers::outside::{Outside, free_port};

/// What a program prints before the daemon is killed; the last line says that it waits.
const BEFORE: &[&str] = &[
    "ok said",
    "not_found false true",
    "None",
    "run.queued",
    "run.ended",
    "ok",
    "holding",
];

fn place() -> Place {
    let script = Script::new()
        .on("[say]", [says("said")])
        .on("[hold]", [says("held").held_by("go")]);
    Place::new(script)
}

/// Writes the client and the program that uses it into `folder`.
fn write_sources(place: &Place, language: &str, ending: &str, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let client = folder.join(format!("abide_client.{ending}"));
    let mut write = place.command(&["rpc", "--client", language, "--output"]);
    let said = output_of(write.arg(&client));
    assert_eq!((said.code, &*said.out, &*said.err), (0, "", ""));
    for name in ["program", "played"] {
        let program = format!("{name}.{ending}");
        let source = root().join("tests/it/clients").join(&program);
        fs::copy(source, folder.join(&program)).unwrap();
    }
}

fn checked(command: &mut std::process::Command) {
    let said = output_of(command.stdin(Stdio::null()));
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
}

/// Runs a program that uses a client. The daemon is killed and started again while the program
/// follows the events of a run.
async fn used(place: &Place, program: std::process::Command) {
    let daemon = place.start().await;
    let mut program = Command::from(program);
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for expected in BEFORE {
        let line = lines.next_line().await.unwrap();
        assert_eq!(
            line.map(|line| line.to_lowercase()),
            Some(expected.to_lowercase())
        );
    }
    daemon.kill().await;
    let daemon = place.start().await;
    place.let_go("go");
    let mut rest = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        rest.push(line);
    }
    // A restarted run may start again; its end is one event.
    rest.retain(|line| line != "holding");
    assert_eq!(rest, ["held ok"]);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(daemon.stop().await, 0);
}

/// What is no answer of a daemon, and events behind a proxy: one is cut off by a lost connection, and then
/// the proxy has no daemon for a while.
const PLAYED: &[&str] = &[
    "HTTP/1.1 200 OK\r\n\r\n{\"other\": 1}",
    "HTTP/1.1 200 OK\r\n\r\ndata: {\"kind\":\"snapshot\",\"data\":{\"cursor\":5,\"storeId\":\"one\"}}\n\n\
     data: {\"cursor\":6,\"kind\":\"run.en",
    "HTTP/1.1 502 Bad Gateway\r\n\r\n<html>",
    "HTTP/1.1 200 OK\r\n\r\ndata: {\"cursor\":6,\"kind\":\"run.ended\",\"data\":{}}\n\n",
];

/// Reads a request with its body.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8(request.clone()).unwrap().to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "{text}");
    }
    String::from_utf8(request).unwrap()
}

/// Answers a request, and ends the connection.
async fn answer(mut stream: impl AsyncWrite + Unpin, answer: &str) {
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// A server that gives these answers, each over a connection of its own, and keeps the requests.
struct Played {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn start(answers: &'static [&'static str]) -> Played {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let played = Played {
            url: format!("http://{}", server.local_addr().unwrap()),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&played.requests);
        tokio::spawn(async move {
            for text in answers {
                let (mut stream, _) = server.accept().await.unwrap();
                let request = request(&mut stream).await;
                requests.lock().unwrap().push(request);
                answer(stream, text).await;
            }
        });
        played
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// The output of a program that ends well.
async fn said_by(program: std::process::Command) -> String {
    let mut program = Command::from(program);
    program.stdin(Stdio::null()).kill_on_drop(true);
    let output = program.output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Takes some 4 s: the client pauses before it follows the events again.
async fn follows_behind_a_proxy(mut program: std::process::Command) {
    let server = Played::start(PLAYED).await;
    program.arg(&server.url);
    let said = said_by(program).await;
    let lines: Vec<String> = said.lines().map(str::to_lowercase).collect();
    assert_eq!(lines, ["invalid_reply false", "snapshot", "run.ended"]);
    let requests = server.requests();
    assert_eq!(requests.len(), PLAYED.len());
    let is_named = |request: &String| {
        let place = request.lines().next().unwrap();
        place.contains("since=5") && place.contains("storeId=one")
    };
    let named: Vec<bool> = requests.iter().map(is_named).collect();
    assert_eq!(named, [false, false, true, true], "{requests:?}");
}

/// Takes some 15 s: the checker reads the whole file.
#[test]
fn the_python_client_is_typed_and_works_over_a_kill_of_the_daemon() {
    let python = match peers::python() {
        Ok(folder) => folder.join("bin/python"),
        Err(why) => return peers::skipped("the checker of the Python client", &why),
    };
    run(async {
        let place = place();
        let folder = place.path().join("client");
        write_sources(&place, "python", "py", &folder);
        let mut check = std::process::Command::new(&python);
        checked(
            check
                .args(["-m", "mypy", "--strict", "program.py", "played.py"])
                .current_dir(&folder),
        );
        let mut program = std::process::Command::new(&python);
        program.arg("program.py").current_dir(&folder);
        program.env("ABIDE_STATE_DIR", place.state());
        used(&place, program).await;
        let mut program = std::process::Command::new(&python);
        program.arg("played.py").current_dir(&folder);
        follows_behind_a_proxy(program).await;
    });
}

/// What `Client.find()` has found: the kind of the failure of a call, else `answered`.
const FIND: &str = r#"
from abide_client import AbideError, Client
try:
    Client.find().gateway.ping()
    print("answered")
except AbideError as error:
    print(error.kind)
"#;

#[test]
fn the_token_of_a_folder_is_sent_to_the_daemon_of_that_folder_alone() {
    if let Err(why) = peers::carry_out(std::process::Command::new("python3").arg("--version")) {
        return peers::skipped("the way of the Python client to its daemon", &why);
    }
    run(async {
        let place = place();
        let folder = place.path().join("client");
        write_sources(&place, "python", "py", &folder);
        let (given, wrong) = (folder.join("given"), folder.join("wrong"));
        fs::write(&given, "given\n").unwrap();
        fs::write(&wrong, "wrong\n").unwrap();
        let (given, wrong) = (given.to_str().unwrap(), wrong.to_str().unwrap());
        let daemon = place.start().await;
        let found = async |variables: &[(&str, &str)]| {
            let mut program = std::process::Command::new("python3");
            program.args(["-c", FIND]).current_dir(&folder).env_clear();
            program.env("PATH", std::env::var_os("PATH").unwrap());
            program.env("ABIDE_STATE_DIR", place.state());
            program.envs(variables.iter().copied());
            said_by(program).await.trim().to_owned()
        };
        assert_eq!(found(&[]).await, "answered");
        assert_eq!(found(&[("ABIDE_URL", daemon.url())]).await, "answered");
        // A named token replaces that of the folder.
        let named = ("ABIDE_TOKEN_FILE", wrong);
        assert_eq!(found(&[named]).await, "unauthorized");

        // Another address gets the token that was named, and without one not even a connection.
        let other = Played::start(PLAYED).await;
        let address = ("ABIDE_URL", &*other.url);
        assert_eq!(found(&[address]).await, "unauthorized");
        assert_eq!(other.requests(), Vec::<String>::new());
        let named = ("ABIDE_TOKEN_FILE", given);
        assert_eq!(found(&[address, named]).await, "invalid_reply");
        let asked = other.requests().concat();
        assert!(asked.contains("Authorization: Bearer given"), "{asked:?}");

        // Another socket gets the token beside it, of which there is none here.
        let path = place.path().join("other.sock");
        let socket = UnixListener::bind(&path).unwrap();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = socket.accept().await.unwrap();
            let asked = request(&mut stream).await;
            answer(stream, PLAYED[0]).await;
            asked
        });
        let socket = ("ABIDE_SOCKET", path.to_str().unwrap());
        assert_eq!(found(&[socket]).await, "invalid_reply");
        let asked = asked.await.unwrap();
        assert!(!asked.contains("Authorization"), "{asked:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Takes some 10 s: the checker reads the whole file.
#[test]
fn the_typescript_client_is_typed_and_works_over_a_kill_of_the_daemon() {
    let peers = match peers::node("typescript") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the checker of the TypeScript client", &why),
    };
    run(async {
        // The address must be the same after the restart.
        let address = format!("127.0.0.1:{}", free_port());
        let place = place().with("gateway.listen", &format!("{address:?}"));
        let folder = place.path().join("client");
        write_sources(&place, "typescript", "ts", &folder);
        fs::write(folder.join("package.json"), r#"{"type": "module"}"#).unwrap();
        let mut check = std::process::Command::new("node");
        check
            .arg(peers.join("node_modules/typescript/bin/tsc"))
            .args([
                "--strict",
                "--noUncheckedIndexedAccess",
                "--exactOptionalPropertyTypes",
            ])
            .args(["--target", "es2022", "--module", "nodenext"])
            .args(["--lib", "es2022,dom,dom.asynciterable"])
            .args(["program.ts", "played.ts"])
            .current_dir(&folder);
        checked(&mut check);
        // The token is written by the first start.
        let daemon = place.start().await;
        let token = daemon.token().to_owned();
        assert_eq!(daemon.stop().await, 0);
        let mut program = std::process::Command::new("node");
        program
            .arg("program.js")
            .arg(format!("http://{address}/"))
            .arg(token);
        program.current_dir(&folder);
        used(&place, program).await;
        let mut program = std::process::Command::new("node");
        program.arg("played.js").current_dir(&folder);
        follows_behind_a_proxy(program).await;
    });
}

#[test]
fn a_client_needs_no_daemon_and_is_the_same_each_time() {
    let home = Home::new();
    for (language, opening) in [
        ("python", "\"\"\"Client of abide for Python"),
        ("typescript", "// Client of abide for Node"),
    ] {
        let first = home.abide(&["rpc", "--client", language]);
        assert_eq!((first.code, &*first.err), (0, ""));
        assert!(first.out.starts_with(opening), "{}", &first.out[..200]);
        assert!(
            first
                .out
                .contains(&format!("abide rpc --client {language}"))
        );
        assert_eq!(home.abide(&["rpc", "--client", language]).out, first.out);
        // Names with a number would be those of types that share a name.
        let numbered = ["Decision2", "Deleted2", "Health2", "Snapshot2", "State2"];
        assert!(numbered.iter().all(|name| !first.out.contains(name)));
    }
    let unknown = home.abide(&["rpc", "--client", "cobol"]);
    assert_eq!(unknown.code, 2, "{}", unknown.err);
    let both = home.abide(&["rpc", "--client", "python", "gateway.ping"]);
    assert_eq!(both.code, 2, "{}", both.err);
    let nowhere = home.abide(&["rpc", "--client", "python", "--output", "none/client.py"]);
    assert_eq!(nowhere.code, 1, "{}", nowhere.err);
    assert!(nowhere.err.contains("none/client.py"), "{}", nowhere.err);
}

/// The messages that the chat service shows.
fn messages(chat: &Outside) -> Vec<Value> {
    let shown: Value = serde_json::from_str(&chat.ask("GET", "/", "").unwrap()).unwrap();
    shown.as_array().unwrap().clone()
}

/// The texts of the messages, once they are these.
async fn shows(chat: &Outside, expected: &[&str]) {
    eventually(&format!("messages {expected:?}"), async || {
        let messages = messages(chat);
        let texts: Vec<&str> = messages
            .iter()
            .map(|message| message["text"].as_str().unwrap())
            .collect();
        (texts == expected).then_some(())
    })
    .await;
}

fn say(chat: &Outside, person: u32, text: &str) {
    say_in(chat, json!(-7), person, text);
}

fn say_in(chat: &Outside, room: Value, person: u32, text: &str) {
    let message = json!({ "from": { "id": person }, "chat": { "id": room }, "text": text });
    chat.json("POST", "/update", &json!({ "message": message }));
}

fn start_bot(place: &Place, folder: &Path, api: &str) -> tokio::process::Child {
    let mut bot = Command::new("python3");
    bot.arg("bot.py")
        .current_dir(folder)
        .env("ABIDE_STATE_DIR", place.state())
        .env("CHAT_API", api)
        .env("CHAT_USERS", "41,42")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    bot.spawn().unwrap()
}

/// The service repeats all updates after each start of the bot: none may become a second run.
#[test]
fn the_bot_of_the_document_works_over_kills_of_itself_and_of_the_daemon() {
    if let Err(why) = peers::carry_out(std::process::Command::new("python3").arg("--version")) {
        return peers::skipped("the bot of docs/bots.md", &why);
    }
    run(async {
        let script = Script::new()
            .on("[say]", [says("said")])
            .on(
                "[stream]",
                [says("one two three four").in_pieces(4, 2, "more")],
            )
            .on(
                "[ask]",
                [calls("shell", json!({ "command": "true" })), says("done")],
            );
        let place = Place::new(script);
        let folder = place.path().join("bot");
        fs::create_dir_all(&folder).unwrap();
        let mut write = place.command(&["rpc", "--client", "python"]);
        let client = output_of(&mut write);
        assert_eq!(client.code, 0, "{}", client.err);
        fs::write(folder.join("abide_client.py"), client.out).unwrap();
        let document = fs::read_to_string(root().join("docs/bots.md")).unwrap();
        let (_, source) = document.split_once("```python\n").unwrap();
        fs::write(folder.join("bot.py"), source.split("```").next().unwrap()).unwrap();

        let port = free_port();
        let mut serve = std::process::Command::new("python3");
        serve.arg(root().join("tests/it/clients/chat_server.py"));
        serve.arg(port.to_string());
        let chat = Outside::start(serve, port, "/").await;
        let daemon = place.start().await;
        let mut bot = start_bot(&place, &folder, &chat.url("/bot"));

        say(&chat, 99, "[say] of a stranger");
        // What is refused for good does not stop the bot for others: the daemon refuses the key of this
        // session and the button, and the chat service the answer in a chat that has blocked the bot.
        say_in(&chat, json!("no name"), 42, "[say]");
        let odd = json!({ "from": { "id": 42 }, "data": "odd" });
        chat.json("POST", "/update", &json!({ "callback_query": odd }));
        say_in(&chat, json!(403), 42, "[say]");
        say(&chat, 42, "[say]");
        shows(&chat, &["said"]).await;
        say(&chat, 42, "[stream]");
        shows(&chat, &["said", "one two "]).await;
        bot.kill().await.unwrap();
        daemon.kill().await;
        let daemon = place.start().await;
        let mut bot = start_bot(&place, &folder, &chat.url("/bot"));
        place.let_go("more");
        shows(&chat, &["said", "one two three four"]).await;

        say(&chat, 42, "[ask]");
        let pressed = eventually("buttons", async || {
            let buttons = messages(&chat).last()?["reply_markup"]["inline_keyboard"][0].clone();
            buttons[0]["callback_data"].as_str().map(str::to_owned)
        })
        .await;
        // A bot that is killed before it has stored what it sent sends it again.
        let identity = pressed.split(' ').nth(1).unwrap();
        eventually("the stored message", async || {
            let stored = fs::read_to_string(folder.join("bot.json")).unwrap();
            stored.contains(identity).then_some(())
        })
        .await;
        bot.kill().await.unwrap();
        let mut bot = start_bot(&place, &folder, &chat.url("/bot"));
        let press = |person: u32| {
            let query = json!({ "from": { "id": person }, "data": pressed });
            chat.json("POST", "/update", &json!({ "callback_query": query }));
        };
        press(42);
        let ended = ["said", "one two three four", "done", "shell: allowed"];
        shows(&chat, &ended).await;
        // An old button: it is refused, and the bot goes on.
        press(41);
        say(&chat, 41, "[say] again");
        shows(&chat, &[&ended[..], &["said"]].concat()).await;
        bot.kill().await.unwrap();

        let runs = daemon.client().await.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 5, "{runs}");
        assert_eq!(daemon.stop().await, 0);
    });
}
