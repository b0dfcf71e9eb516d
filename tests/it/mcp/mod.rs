//! MCP servers with the real daemon: the tools that agents get, the outcomes of calls, and what
//! stops servers.

mod http;
mod odd;
pub(crate) mod outside;
mod server;

use serde_json::{Value, json};

use crate::harness::{Daemon, Link, Place, Script, calls, eventually, run, says};
use crate::processes::is_alive;

pub(crate) use http::{TOKEN, start as http_server};
pub(crate) use server::{lines, with_server, with_stubborn_server};

/// A place whose agent `worker` calls this tool of server `mem` on the input `[go]`.
fn place(tool: &str, arguments: Value, start: &str) -> Place {
    let script = Script::new().on("[go]", [calls(tool, arguments), says("it is over")]);
    let place = Place::new(script).with_agent("worker", "mcp_servers: [mem]");
    with_server(place, "mem", start)
}

/// The server with this name, as `mcp.list` shows it.
async fn shown(client: &Link, name: &str) -> Value {
    let listed = client.call("mcp.list", json!({})).await;
    let servers = listed["servers"].as_array().unwrap();
    let found = servers.iter().find(|server| server["name"] == name);
    found.unwrap_or_else(|| panic!("{listed}")).clone()
}

/// Waits until the server is in this state.
pub(crate) async fn until_state(client: &Link, name: &str, state: &str) -> Value {
    eventually(&format!("server {name} {state}"), async || {
        let server = shown(client, name).await;
        (server["state"] == state).then_some(server)
    })
    .await
}

/// A daemon whose server `mem` is ready, and a client.
async fn ready(place: &Place) -> (Daemon, Link) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    until_state(&client, "mem", "ready").await;
    (daemon, client)
}

/// The results of the model's calls in this session.
async fn results(client: &Link, session: &str) -> Vec<Value> {
    let history = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", history).await;
    let messages = history["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results.cloned().collect()
}

/// Runs `worker` once; returns the result of its only call.
async fn go(client: &Link) -> Value {
    let spawned = client
        .spawn(json!({ "task": "[go]", "agent": "worker" }))
        .await;
    let ended = client.ended(&spawned.id).await;
    assert_eq!(ended["result"], "it is over", "{ended}");
    results(client, &spawned.session).await.remove(0)
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn g12_8_what_is_listed_can_be_called_and_is_pinned() {
    run(async {
        let place = place("mem__add", json!({ "text": "one" }), "");
        let (daemon, client) = ready(&place).await;
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        let add = tools["tools"].as_array().unwrap().iter();
        let add = add.clone().find(|tool| tool["name"] == "mem__add").unwrap();
        assert_eq!(add["description"], "adds");
        assert_eq!(add["parameters"]["properties"]["text"]["type"], "string");
        assert!(add["parameters"].get("$schema").is_none(), "{add}");
        let of = json!({ "server": "mem", "tool": "add", "effect": "once", "local": true });
        assert_eq!(add["served"], of);

        let spawn = json!({ "task": "[go]", "agent": "worker" });
        let spawned = client.spawn(spawn).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "it is over", "{ended}");
        assert_eq!(ended["pins"]["tools"], tools["hash"], "{ended}");
        assert_eq!(ended["warnings"], json!([]), "{ended}");
        let told = results(&client, &spawned.session).await;
        assert_eq!(told[0]["text"], "added one", "{told:?}");
        assert_eq!(lines(&place, "added"), 1);
        let steps = client
            .call("runs.steps", json!({ "runId": spawned.id }))
            .await;
        let step = steps["steps"].as_array().unwrap().iter();
        let step = step
            .clone()
            .find(|step| step["tool"] == "mem__add")
            .unwrap();
        assert_eq!(step["effect"], "once", "{step}");

        let server = shown(&client, "mem").await;
        let pid = u32::try_from(server["pid"].as_u64().unwrap()).unwrap();
        assert!(is_alive(pid));
        assert_eq!(daemon.stop().await, 0);
        assert!(!is_alive(pid));
    });
}

fn pid_of(server: &Value) -> u32 {
    u32::try_from(server["pid"].as_u64().unwrap()).unwrap()
}

fn text(result: &Value) -> &str {
    result["text"].as_str().unwrap()
}

/// The reason why this is not among an agent's tools.
fn skipped<'a>(tools: &'a Value, name: &str) -> &'a str {
    let all = tools["skipped"].as_array().unwrap().iter();
    let one = all
        .clone()
        .find(|one| one["name"].as_str().unwrap().contains(name));
    one.unwrap_or_else(|| panic!("{tools}"))["reason"]
        .as_str()
        .unwrap()
}

#[test]
fn g12_5_an_agent_has_the_servers_that_it_declares() {
    run(async {
        let place = place("mem__add", json!({}), "")
            .with_agent("none", "mcp_servers: []")
            .with_agent("unset", "max_loops: 3")
            .with_agent("listed", "tools: [read]")
            .with_agent("picked", "tools: [read, mem__add]")
            .with_agent("named", "tools: [read]\nmcp_servers: [mem]")
            .with_agent("off", "mcp_servers: [mem]\ntools: {mem__add: false}")
            .with_agent("closed", "mcp_servers: [mem]\ngate: {\"mem__*\": deny}")
            .with_agent("wrong", "mcp_servers: [memory]");
        let (daemon, client) = ready(&place).await;
        for (agent, has) in [
            ("none", false),
            ("unset", true),
            ("listed", false),
            ("picked", true),
            ("named", true),
            ("off", false),
            ("closed", false),
            ("wrong", false),
            ("build", true),
            ("explore", false),
        ] {
            let tools = client.call("tools.list", json!({ "agent": agent })).await;
            let listed = names(&tools).contains(&"mem__add");
            assert_eq!(listed, has, "{agent}: {tools}");
        }
        let picked = client
            .call("tools.list", json!({ "agent": "picked" }))
            .await;
        assert_eq!(names(&picked), ["read", "mem__add"]);
        let wrong = client.call("agents.get", json!({ "agent": "wrong" })).await;
        let said = wrong["warnings"].to_string();
        assert!(
            said.contains("MCP server memory") && said.contains("mem"),
            "{said}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g12_1_nobody_waits_for_a_server_that_hangs_and_g12_2_its_limit_ends_it() {
    run(async {
        let place = place("mem__add", json!({}), "hang").with("mcp.mem.start_timeout", "\"2s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let starting = until_state(&client, "mem", "starting").await;
        let spawn = json!({ "task": "[go]", "agent": "worker" });
        let accepted = client.call("sessions.spawn", spawn).await;
        assert_eq!(accepted["status"], "accepted", "{accepted}");
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        // Which of the two depends on the time of the request.
        let late = skipped(&tools, "mem");
        assert!(
            late.contains("still starting") || late.contains("start_timeout"),
            "{late}"
        );
        let ended = client.ended(accepted["runId"].as_str().unwrap()).await;
        assert_eq!(ended["result"], "it is over", "{ended}");
        assert!(ended["warnings"].to_string().contains("mem"), "{ended}");
        let failed = until_state(&client, "mem", "failed").await;
        let why = failed["lastError"].as_str().unwrap();
        assert!(why.contains("not ready after 2s"), "{why}");
        if let Some(pid) = starting["pid"].as_u64() {
            assert!(!is_alive(u32::try_from(pid).unwrap()));
        }
        assert_eq!(failed.get("pid"), None);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_server_that_cannot_start_says_why_wherever_one_looks() {
    run(async {
        let place = place("mem__add", json!({}), "fail")
            .with("mcp.lost.command", "\"no-such-program\"")
            .with("mcp.both.command", "\"cat\"")
            .with("mcp.both.url", "\"http://127.0.0.1:9/mcp\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let failed = until_state(&client, "mem", "failed").await;
        let why = failed["lastError"].as_str().unwrap();
        assert!(why.contains("exit status 3"), "{why}");
        assert!(why.contains("no licence was found"), "{why}");
        let lost = until_state(&client, "lost", "failed").await;
        assert!(
            lost["lastError"].as_str().unwrap().contains("PATH"),
            "{lost}"
        );
        let both = until_state(&client, "both", "failed").await;
        assert!(
            both["lastError"].as_str().unwrap().contains("both"),
            "{both}"
        );
        let found = client.call("gateway.doctor", json!({})).await.to_string();
        assert!(
            found.contains("mcp.mem") && found.contains("no licence"),
            "{found}"
        );
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        assert!(skipped(&tools, "mem").contains("no licence"), "{tools}");

        let shown = place.command(&["mcp"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let row = shown.lines().find(|line| line.contains("mem")).unwrap();
        assert!(row.starts_with("failed"), "{shown}");
        let one = place.command(&["mcp", "mem"]).output().unwrap();
        let one = String::from_utf8(one.stdout).unwrap();
        let one = one.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one.contains("no licence was found"), "{one}");
        let unknown = place.command(&["mcp", "nothing"]).output().unwrap();
        assert_eq!(unknown.status.code(), Some(3));
        assert_eq!(daemon.stop().await, 0);
        let down = place.command(&["mcp", "--json"]).output().unwrap();
        assert_eq!(down.status.code(), Some(10));
    });
}

#[test]
fn g12_7_calls_in_flight_fail_with_their_server_and_the_next_one_starts_it_again() {
    run(async {
        let place = place("mem__die", json!({ "text": "x" }), "");
        let (daemon, client) = ready(&place).await;
        let before = pid_of(&shown(&client, "mem").await);
        let told = go(&client).await;
        assert_eq!(told["isError"], true, "{told}");
        assert_eq!(lines(&place, "died"), 1);
        // A call in flight fails with the pipe; the exit status of the program is known a moment
        // later.
        let failed = until_state(&client, "mem", "failed").await;
        let said = failed.to_string() + text(&told);
        for part in ["exit status 7", "a fatal thing", "is not known"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert_eq!(failed["starts"], 1, "{failed}");
        // Its tools are kept: a call starts it again.
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        assert!(names(&tools).contains(&"mem__die"), "{tools}");
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        client.ended(&spawned.id).await;
        let failed = until_state(&client, "mem", "failed").await;
        assert_eq!((lines(&place, "died"), &failed["starts"]), (2, &json!(2)));
        assert!(!is_alive(before));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g12_7_one_start_is_tried_and_no_more() {
    run(async {
        let place = place("mem__die", json!({ "text": "x" }), "once");
        let (daemon, client) = ready(&place).await;
        go(&client).await;
        until_state(&client, "mem", "failed").await;
        let told = go(&client).await;
        assert!(text(&told).contains("exit status 4"), "{told}");
        assert_eq!(lines(&place, "starts"), 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g12_3_one_process_serves_everybody_and_g12_4_its_descendants_end_with_it() {
    run(async {
        let place = place("mem__children", json!({}), "");
        let (daemon, client) = ready(&place).await;
        let pid = pid_of(&shown(&client, "mem").await);
        for _ in 0..2 {
            go(&client).await;
        }
        assert_eq!(pid_of(&shown(&client, "mem").await), pid);
        assert_eq!(lines(&place, "starts"), 1);
        let child = eventually("the child", async || {
            let text = std::fs::read_to_string(place.work().join("child")).ok()?;
            text.trim().parse::<u32>().ok()
        })
        .await;
        assert!(is_alive(child));
        assert_eq!(daemon.stop().await, 0);
        assert!(!is_alive(pid) && !is_alive(child));
    });
}

#[test]
fn g12_6_a_long_result_is_cut_and_the_rest_can_be_fetched() {
    run(async {
        let place = place("mem__big", json!({}), "");
        let (daemon, client) = ready(&place).await;
        let told = go(&client).await;
        assert!(text(&told).len() <= 64 * 1024, "{}", text(&told).len());
        let note = text(&told).rsplit_once("… cut: ").unwrap().1.to_owned();
        assert!(note.contains("output {toolCallId:"), "{note}");
        let runs = client.call("runs.list", json!({})).await;
        let output = json!({
            "runId": runs["runs"][0]["runId"],
            "toolCallId": told["toolCallId"],
            "offset": 200_000,
        });
        let rest = client.call("runs.output", output).await;
        assert!(
            rest["text"].as_str().unwrap().ends_with("the end"),
            "{rest}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g12_9_lines_that_are_no_messages_are_skipped_and_many_mark_the_server() {
    run(async {
        let place = place("mem__add", json!({ "text": "one" }), "chatty");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let noisy = until_state(&client, "mem", "noisy").await;
        assert!(noisy["noise"].as_u64().unwrap() >= 20, "{noisy}");
        assert!(
            noisy["noiseLines"].to_string().contains("loading part"),
            "{noisy}"
        );
        assert_eq!(text(&go(&client).await), "added one");
        let found = client.call("gateway.doctor", json!({})).await.to_string();
        assert!(
            found.contains("mcp.mem") && found.contains("non-protocol lines"),
            "{found}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_changed_list_of_tools_is_followed() {
    run(async {
        let place = place("mem__grow", json!({}), "");
        let (daemon, client) = ready(&place).await;
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        assert!(!names(&tools).contains(&"mem__late"), "{tools}");
        go(&client).await;
        eventually("the new tool", async || {
            let tools = client
                .call("tools.list", json!({ "agent": "worker" }))
                .await;
            names(&tools).contains(&"mem__late").then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn names_are_such_as_every_provider_takes_and_clashes_are_refused_with_both() {
    run(async {
        let script = Script::new().on("[go]", [says("it is over")]);
        let place = Place::new(script).with_agent("worker", "mcp_servers: [mem]");
        let place = with_server(place, "mem", "");
        let (daemon, client) = ready(&place).await;
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        let why = skipped(&tools, "twin");
        assert!(why.contains("\"Twin\" and \"twin\""), "{why}");
        let dotted = names(&tools)
            .into_iter()
            .find(|name| name.contains("dotted"));
        let dotted = dotted.unwrap().to_owned();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(dotted.len() <= 64 && dotted.chars().all(fits), "{dotted}");
        assert_eq!(daemon.stop().await, 0);

        // The name that models use maps back to the server's own name.
        let script = Script::new().on("[go]", [calls(&dotted, json!({})), says("it is over")]);
        let place = Place::new(script).with_agent("worker", "mcp_servers: [mem]");
        let place = with_server(place, "mem", "");
        let (daemon, client) = ready(&place).await;
        assert_eq!(text(&go(&client).await), "dotted.name answers");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_server_gets_its_own_environment_and_nothing_of_the_daemons() {
    run(async {
        let place = place("mem__environment", json!({}), "");
        let mut command = place.command(&["serve"]);
        command
            .env("OPENAI_API_KEY", "canary-2")
            .env("PATH", "/usr/bin:/bin");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        until_state(&client, "mem", "ready").await;
        let told = go(&client).await;
        let names: Vec<&str> = text(&told).split(' ').collect();
        assert!(
            names.contains(&"TOKEN") && names.contains(&"PATH"),
            "{names:?}"
        );
        for foreign in [
            "OPENAI_API_KEY",
            "ABIDE_SOCKET",
            "ABIDE_CONFIG",
            "ABIDE_RUN_ID",
        ] {
            assert!(!names.contains(&foreign), "{names:?}");
        }
        let config = client.call("gateway.config", json!({})).await.to_string();
        assert!(
            config.contains("mcp.mem.env") && !config.contains("canary"),
            "{config}"
        );
        assert_eq!(daemon.stop().await, 0);
        assert!(!place.log().contains("canary"));
    });
}

#[test]
fn a_restart_takes_no_tool_away_while_its_servers_start() {
    run(async {
        let place = place("mem__add", json!({ "text": "one" }), "");
        let (daemon, client) = ready(&place).await;
        let before = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        // A server's list of tools is stored as soon as it is shown.
        assert_eq!(daemon.stop().await, 0);
        let mut place = with_server(place, "mem", "hang");
        place.set("mcp.mem.start_timeout", "\"2s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let after = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        assert_eq!(after["hash"], before["hash"], "{after}");
        // The call waits for the start and reports its outcome.
        let told = go(&client).await;
        assert!(text(&told).contains("not ready after 2s"), "{told}");
        assert_eq!(lines(&place, "added"), 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_kill_ends_the_servers_tree_before_anything_goes_on() {
    run(async {
        let place = place("mem__slow", json!({ "text": "x" }), "");
        let (daemon, client) = ready(&place).await;
        let server = pid_of(&shown(&client, "mem").await);
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        eventually("the call", async || {
            (lines(&place, "begun") == 1).then_some(())
        })
        .await;
        daemon.kill().await;
        let daemon = place.start().await;
        assert!(!is_alive(server));
        let client = daemon.client().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "it is over", "{ended}");
        let told = results(&client, &spawned.session).await.remove(0);
        assert!(text(&told).contains("uncertain"), "{told}");
        assert_eq!(lines(&place, "begun"), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g10_11_a_rule_above_holds_for_the_tools_of_servers_too() {
    run(async {
        let spawn = json!({ "task": "[child]", "agent": "helper" });
        let script = Script::new()
            .on("[go]", [calls("sessions_spawn", spawn), says("asked")])
            .on(
                "[child]",
                [
                    calls("mem__add", json!({ "text": "x" })),
                    says("child is over"),
                ],
            )
            .on_announce("child", [says("told")]);
        let place = Place::new(script)
            .with_agent(
                "worker",
                "mcp_servers: []\ntools: [sessions_spawn]\ngate: {\"mem__*\": deny}\n\
                 allow_agents: [helper]",
            )
            .with_agent("helper", "mcp_servers: [mem]");
        let place = with_server(place, "mem", "");
        let (daemon, client) = ready(&place).await;
        let parent = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        client.ended(&parent.id).await;
        client.quiet().await;
        let runs = client.call("runs.list", json!({ "agent": "helper" })).await;
        let child = &runs["runs"][0];
        assert_eq!(child["result"], "child is over", "{child}");
        let told = results(&client, child["sessionKey"].as_str().unwrap()).await;
        assert!(text(&told[0]).contains("worker"), "{told:?}");
        assert_eq!(lines(&place, "added"), 0);
        // Without that parent it may call the tool.
        let own = client
            .spawn(json!({ "task": "[child]", "agent": "helper" }))
            .await;
        client.ended(&own.id).await;
        assert_eq!(lines(&place, "added"), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c5_who_may_not_write_everywhere_has_no_programs_call_for_it() {
    run(async {
        let place = place("mem__look", json!({}), "")
            .with_agent("worker", "mcp_servers: [mem]\nwrite_scope: none");
        let (daemon, client) = ready(&place).await;
        let told = go(&client).await;
        assert!(text(&told).contains("access_denied"), "{told}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_call_without_an_answer_is_given_up_and_its_server_goes_on() {
    run(async {
        let place =
            place("mem__slow", json!({ "text": "x" }), "").with("mcp.mem.call_timeout", "1");
        let (daemon, client) = ready(&place).await;
        let told = go(&client).await;
        assert!(text(&told).contains("call_timeout"), "{told}");
        let server = shown(&client, "mem").await;
        assert_eq!(
            (&server["state"], &server["starts"]),
            (&json!("ready"), &json!(1))
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_failure_of_a_tool_is_its_answer() {
    run(async {
        let place = place("mem__fail", json!({}), "");
        let (daemon, client) = ready(&place).await;
        let told = go(&client).await;
        assert_eq!(
            (text(&told), &told["isError"]),
            ("it cannot be done", &json!(true))
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_reload_follows_the_settings_and_a_run_keeps_its_pins() {
    run(async {
        let script = Script::new().on(
            "[go]",
            [
                calls("read", json!({ "path": "notes.txt" })).held_by("reloaded"),
                calls("mem__add", json!({ "text": "x" })),
                says("it is over"),
            ],
        );
        let place = Place::new(script).with_agent("worker", "max_loops: 9");
        let mut place = with_server(place, "mem", "");
        let (daemon, client) = ready(&place).await;
        let server = pid_of(&shown(&client, "mem").await);
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        for key in ["command", "args", "env"] {
            place.unset(&format!("mcp.mem.{key}"));
        }
        client.call("gateway.reload", json!({})).await;
        assert!(!is_alive(server));
        let listed = client.call("mcp.list", json!({})).await;
        assert_eq!(listed["servers"], json!([]), "{listed}");
        place.let_go("reloaded");
        client.ended(&spawned.id).await;
        let told = results(&client, &spawned.session).await;
        assert!(
            text(&told[1]).contains("not configured any more"),
            "{told:?}"
        );

        let place = with_server(place, "other", "");
        client.call("gateway.reload", json!({})).await;
        until_state(&client, "other", "ready").await;
        let tools = client
            .call("tools.list", json!({ "agent": "worker" }))
            .await;
        assert!(names(&tools).contains(&"other__add"), "{tools}");
        assert_eq!(daemon.stop().await, 0);
        drop(place);
    });
}

#[test]
fn a_server_behind_an_address_is_told_who_calls_and_nobody_else_is() {
    run(async {
        let script = Script::new().on("[go]", [calls("far__fail", json!({})), says("it is over")]);
        let url = http::start();
        let place = Place::new(script)
            .with_agent("worker", "mcp_servers: [far]")
            .with("mcp.far.url", &format!("{url:?}"))
            .with("mcp.far.headers", "{ \"X-Team\" = \"tests\" }")
            .with("mcp.far.auth", "{ bearer_env = \"FAR_TOKEN\" }");
        // Without the variable, the reason names it.
        let daemon = place.start().await;
        let client = daemon.client().await;
        let failed = until_state(&client, "far", "failed").await;
        assert!(
            failed["lastError"].as_str().unwrap().contains("FAR_TOKEN"),
            "{failed}"
        );
        assert_eq!(daemon.stop().await, 0);

        let mut command = place.command(&["serve"]);
        command.env("FAR_TOKEN", http::TOKEN);
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let server = until_state(&client, "far", "ready").await;
        assert_eq!(
            (&server["transport"], server.get("pid")),
            (&json!("http"), None)
        );
        assert_eq!(text(&go(&client).await), "it cannot be done");
        let config = client.call("gateway.config", json!({})).await.to_string();
        assert!(!config.contains(http::TOKEN) && !place.log().contains(http::TOKEN));
        assert_eq!(daemon.stop().await, 0);

        let mut command = place.command(&["serve"]);
        command.env("FAR_TOKEN", "wrong");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        until_state(&client, "far", "failed").await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g10_9_a_server_speaks_for_nobody_over_the_socket() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let place = place("mem__daemon", json!({ "text": socket }), "")
            .with("gateway.socket", &format!("{socket:?}"));
        let (daemon, client) = ready(&place).await;
        let told = go(&client).await;
        assert!(text(&told).contains("no tool server"), "{told}");
        assert!(text(&told).contains("forbidden"), "{told}");
        // The same command from outside the run is answered.
        let shown = place.command(&["status", "--json"]).output().unwrap();
        assert!(shown.status.success());
        assert_eq!(daemon.stop().await, 0);
    });
}
