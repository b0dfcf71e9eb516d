//! MCP servers with unusual behaviour: handshake, lists, amount of data, and how they are reached.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::outside::{listening, with_program};
use super::{go, lines, names, results, shown, skipped as reason, text, until_state};
use crate::harness::peers;
use crate::harness::{ModelServer, Place, Script, calls, chat, eventually, run, says};
use crate::house::root;
use crate::providers::outside::free_port;

/// The real interpreter, bypassing any wrapper that needs an environment.
fn python() -> Result<String, String> {
    let mut asked = Command::new("python3");
    let asked = asked.args(["-c", "import sys; print(sys.executable)"]);
    match asked.output() {
        Ok(said) if said.status.success() => {
            Ok(String::from_utf8(said.stdout).unwrap().trim().to_owned())
        }
        other => Err(format!("python3 does not run: {other:?}")),
    }
}

fn peer() -> String {
    let file = root().join("tests/it/mcp/peers/odd.py");
    file.to_str().unwrap().to_owned()
}

/// A place whose agent calls `tool` on the input `[go]`.
fn place(tool: &str, arguments: Value) -> Place {
    let script = Script::new().on("[go]", [calls(tool, arguments), says("it is over")]);
    Place::new(script).with_agent("worker", "mcp_servers: [odd]")
}

fn odd(place: Place, python: &str, way: &str) -> Place {
    with_program(place, "odd", &[python, &peer(), way])
}

/// The number of requests for this method that the server received.
fn asked(place: &Place, method: &str) -> usize {
    let text = std::fs::read_to_string(place.work().join("asked")).unwrap_or_default();
    text.lines().filter(|line| *line == method).count()
}

/// Takes some 6 s: nine kinds of servers, two daemons each, and one that hangs until its start is
/// given up.
#[test]
fn a_server_that_does_not_know_the_first_question_becomes_ready_all_the_same() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("servers that do not know a question", &why),
    };
    // The number of starts of each, before and after its handshake is known.
    for (way, starts) in [
        ("refuses", [1, 1]),
        ("no_id", [1, 1]),
        ("other_id", [1, 1]),
        ("null_result", [1, 1]),
        ("empty_result", [1, 1]),
        ("exits", [2, 1]),
        ("closes", [2, 1]),
        ("hangs", [2, 1]),
        ("old", [3, 1]),
    ] {
        run(async {
            let place = place("odd__echo", json!({ "text": "hello" }));
            let limit = if way == "hangs" { "\"6s\"" } else { "\"1m\"" };
            let place = odd(place, &python, way).with("mcp.odd.start_timeout", limit);
            let mut before = 0;
            for starts in starts {
                let daemon = place.start().await;
                let client = daemon.client().await;
                let server = until_state(&client, "odd", "ready").await;
                let told = go(&client).await;
                assert_eq!(text(&told), r#"{"text": "hello"}"#, "{way}: {told}");
                assert_eq!(server["starts"], starts, "{way}: {server}");
                let all = lines(&place, "starts");
                assert_eq!(all - before, starts, "{way}");
                before = all;
                assert_eq!(daemon.stop().await, 0);
            }
        });
    }
}

/// Takes some 11 s: the library's own limit for the first answer is 10 s.
#[test]
fn a_server_of_the_current_protocol_may_take_longer_than_ten_seconds_to_answer() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("a slow server of the current protocol", &why),
    };
    run(async {
        let place = place("odd__echo", json!({ "text": "hello" }));
        let place = odd(place, &python, "slow_now");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let server = until_state(&client, "odd", "ready").await;
        assert_eq!(server["protocol"], "2026-07-28", "{server}");
        assert_eq!(server["starts"], 1, "{server}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_server_over_http_that_fails_at_the_first_question_is_greeted_otherwise() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("servers over HTTP that do not know a question", &why),
    };
    for way in ["fails", "cuts", "refuses", "empty_result"] {
        run(async {
            let port = free_port();
            let url = format!("\"http://127.0.0.1:{port}/mcp\"");
            let place = place("odd__echo", json!({ "text": "hello" })).with("mcp.odd.url", &url);
            let mut serve = Command::new(&python);
            serve
                .args([&peer(), way, &port.to_string()])
                .current_dir(place.work());
            let _server = listening(&mut serve, port).await;
            let daemon = place.start().await;
            let client = daemon.client().await;
            until_state(&client, "odd", "ready").await;
            let told = go(&client).await;
            assert_eq!(text(&told), r#"{"text": "hello"}"#, "{way}: {told}");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_list_without_an_end_is_read_so_far_and_no_further() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("servers whose lists do not end", &why),
    };
    for (way, pages, tools, why) in [
        ("repeats", 2, 1, "again"),
        ("endless", 64, 64, "64 pages"),
        ("vast", 1, 256, "1024 tools"),
        ("half", 2, 1, "no such page"),
    ] {
        run(async {
            let place = odd(place("odd__echo", json!({})), &python, way);
            let daemon = place.start().await;
            let client = daemon.client().await;
            let server = until_state(&client, "odd", "ready").await;
            assert_eq!(asked(&place, "tools/list"), pages, "{way}");
            assert_eq!(names(&server).len(), tools, "{way}");
            let said = server["skipped"].to_string();
            assert!(
                said.contains(why) && said.contains("the list"),
                "{way}: {said}"
            );
            let tools = json!({ "agent": "worker" });
            let tools = client.call("tools.list", tools).await;
            assert!(reason(&tools, "the list").contains(why), "{way}: {tools}");
            assert!(place.log().contains(why), "{way}");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

/// Checks that the schemas use nothing that any provider refuses.
fn strict(tools: &Value) {
    for tool in tools.as_array().unwrap() {
        let function = &tool["function"];
        let parameters = function["parameters"].as_object().unwrap();
        assert_eq!(parameters["type"], "object", "{tool}");
        assert!(parameters["properties"].is_object(), "{tool}");
        for word in ["anyOf", "oneOf", "allOf", "not", "enum", "$ref"] {
            assert!(!parameters.contains_key(word), "{tool}");
        }
        let schema = &function["parameters"];
        assert!(crate::schemas::is_schema(schema), "{tool}");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        for name in parameters["properties"].as_object().unwrap().keys() {
            assert!(name.chars().all(fits), "{tool}");
        }
        let name = function["name"].as_str().unwrap();
        assert!(name.len() <= 64 && !name.contains(|c| !fits(c) || c == '.'));
    }
}

#[test]
fn an_odd_tool_costs_itself_and_no_call_of_a_model() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("servers with odd tools", &why),
    };
    for (way, is_http) in [
        ("odd", false),
        ("odd_now", false),
        ("odd", true),
        ("odd_now", true),
    ] {
        run(async {
            let server = ModelServer::start();
            let call = chat::calls(&[("c1", "odd__renames", r#"{"_top": 3}"#)]);
            server.on("[job]", vec![call, chat::says(&["it is over"])]);
            let place = crate::providers::place(&server, "chat/small")
                .with_agent("worker", "mcp_servers: [odd]");
            let port = free_port();
            let url = format!("\"http://127.0.0.1:{port}/mcp\"");
            let mut _serving = None;
            let place = match is_http {
                true => {
                    let place = place.with("mcp.odd.url", &url);
                    let mut serve = Command::new(&python);
                    serve
                        .args([&peer(), way, &port.to_string()])
                        .current_dir(place.work());
                    _serving = Some(listening(&mut serve, port).await);
                    place
                }
                false => odd(place, &python, way),
            };
            let daemon = place.start().await;
            let client = daemon.client().await;
            let listed = until_state(&client, "odd", "ready").await;
            let is_new = asked(&place, "initialize") == 0;
            assert_eq!(is_new, way == "odd_now", "the era of {way}, {is_http}");
            let offered = names(&listed);
            for name in [
                "echo",
                "no_schema",
                "null_schema",
                "list_schema",
                "choice",
                "renames",
                "loose",
                "double",
                "wordy",
                "wordy2",
            ] {
                assert!(
                    offered.contains(&&*format!("odd__{name}")),
                    "{name}: {offered:?}"
                );
            }
            let tools = json!({ "agent": "worker" });
            let tools = client.call("tools.list", tools).await;
            assert!(reason(&tools, "text_schema").contains("object"), "{tools}");
            assert!(reason(&tools, "far").contains("example.org"), "{tools}");
            assert!(reason(&tools, "double").contains("twice"), "{tools}");
            assert!(reason(&tools, "number 15").contains("no name"), "{tools}");
            assert!(
                reason(&tools, "number 16").contains("not a JSON object"),
                "{tools}"
            );

            let spawned = json!({ "task": "[job]", "agent": "worker" });
            let spawned = client.spawn(spawned).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "it is over", "{ended}");
            let told = results(&client, &spawned.session).await;
            assert_eq!(text(&told[0]), r#"{"$top": 3}"#, "{told:?}");
            for request in server.requests() {
                assert!(request.body.len() < 256 * 1024, "{}", request.body.len());
                strict(&request.json()["tools"]);
            }
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_server_that_sends_very_much_is_taken_at_a_bounded_pace() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("servers that send very much", &why),
    };
    run(async {
        // 2,500 changes of the list at once cause only a few list requests.
        let place = odd(place("odd__storm", json!({})), &python, "storm");
        let daemon = place.start().await;
        let client = daemon.client().await;
        until_state(&client, "odd", "ready").await;
        assert_eq!(text(&go(&client).await), "{}");
        let lists = asked(&place, "tools/list");
        assert!(lists <= 12, "{lists} lists");
        assert_eq!(shown(&client, "odd").await["state"], "ready");
        assert_eq!(daemon.stop().await, 0);
    });
    run(async {
        let place = odd(place("odd__chatter", json!({})), &python, "chatter");
        let daemon = place.start().await;
        let client = daemon.client().await;
        until_state(&client, "odd", "ready").await;
        assert_eq!(text(&go(&client).await), "{}");
        let server = until_state(&client, "odd", "noisy").await;
        assert!(
            server["noiseLines"].as_array().unwrap().len() <= 5,
            "{server}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
    run(async {
        let place = odd(place("odd__huge", json!({})), &python, "huge");
        let daemon = place.start().await;
        let client = daemon.client().await;
        until_state(&client, "odd", "ready").await;
        let told = go(&client).await;
        assert_eq!(told["isError"], true, "{told}");
        assert!(text(&told).contains("16777216 bytes"), "{told}");
        let server = shown(&client, "odd").await;
        assert_eq!(
            (&server["state"], &server["starts"]),
            (&json!("ready"), &json!(1))
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A proxy that records what it is asked for and refuses it.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(stream).read_line(&mut line);
            notes.lock().unwrap().push(line);
        }
    });
    (address, asked)
}

#[test]
fn what_listens_on_this_machine_is_asked_directly_and_the_rest_through_the_proxy() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("a server over HTTP beside a proxy", &why),
    };
    for variable in ["HTTP_PROXY", "ALL_PROXY", "http_proxy"] {
        run(async {
            let server = ModelServer::start();
            let call = chat::calls(&[("c1", "odd__echo", r#"{"text": "hello"}"#)]);
            server.on("[job]", vec![call, chat::says(&["it is over"])]);
            let port = free_port();
            let url = format!("\"http://localhost:{port}/mcp\"");
            let place = crate::providers::place(&server, "chat/small")
                .with_agent("worker", "mcp_servers: [odd]")
                .with("mcp.odd.url", &url)
                .with("mcp.away.url", "\"http://tools.example/mcp\"");
            let mut serve = Command::new(&python);
            serve
                .args([&peer(), "refuses", &port.to_string()])
                .current_dir(place.work());
            let _server = listening(&mut serve, port).await;
            let (address, asked) = proxy();
            let mut command = place.command(&["serve"]);
            command.env(variable, &address);
            let daemon = place.start_command(command).await.unwrap();
            let client = daemon.client().await;
            until_state(&client, "odd", "ready").await;
            let spawned = json!({ "task": "[job]", "agent": "worker" });
            let spawned = client.spawn(spawned).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "it is over", "{ended}");
            let away =
                eventually("the proxy", async || asked.lock().unwrap().first().cloned()).await;
            assert!(away.contains("http://tools.example/mcp"), "{away}");
            let asked = asked.lock().unwrap().clone();
            assert!(
                asked.iter().all(|line| line.contains("tools.example")),
                "{asked:?}"
            );
            assert_eq!(daemon.stop().await, 0);
        });
    }
}
