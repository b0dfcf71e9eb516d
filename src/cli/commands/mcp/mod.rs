//! `abide mcp`: shows the MCP servers, their state and their tools.

mod change;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{BAD, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{TextTable, age, clean, wrap};
use crate::clock::Clock;
use crate::wire::servers::{ListServers, Server, Servers};

/// List the MCP servers and their tools
///
/// Each is defined by a table [mcp.NAME] in the configuration, which abide mcp add writes. A failed
/// server is started again by the next call of one of its tools, and by abide config reload if its
/// table has changed.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "abide mcp
abide mcp files
abide mcp add files -- npx -y @modelcontextprotocol/server-filesystem ."
)]
pub(crate) struct Mcp {
    /// Show this server with its tools [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(subcommand)]
    what: Option<McpCommand>,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    Add(change::Add),
    Remove(change::Remove),
}

impl Mcp {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        match self.what {
            Some(McpCommand::Add(add)) => return add.run(common).await,
            Some(McpCommand::Remove(remove)) => return remove.run(common).await,
            None => {}
        }
        let link = DaemonLink::open(&common.place).await?;
        let raw = link.raw(&ListServers {}).await?;
        let Servers { servers } = link::read(&raw)?;
        match self.name {
            None => listed(&raw, &servers, common),
            Some(name) => {
                let found = servers.iter().position(|server| server.name == name);
                let Some(found) = found else {
                    let message = format!("no MCP server {}", clean(&name));
                    return Err(Failure::new(exit::NOT_FOUND, "not_found", message)
                        .hint("list servers: abide mcp"));
                };
                if common.json {
                    print::object(&raw["servers"][found])?;
                    return Ok(0);
                }
                shown(&servers[found])
            }
        }
    }
}

fn listed(raw: &Value, servers: &[Server], common: &Common) -> Result<u8, Failure> {
    if common.json {
        print::object(raw)?;
        return Ok(0);
    }
    if servers.is_empty() {
        print::note("no MCP servers; add one: abide mcp add NAME -- COMMAND");
        return Ok(0);
    }
    let now = Clock::system().now();
    let mut table = TextTable::new(&["STATE", "SINCE", "TOOLS", "KIND", "NAME", "ERROR"]);
    for server in servers {
        table.row(vec![
            server.state.clone(),
            age(server.since, now),
            server.tools.len().to_string(),
            server.transport.clone(),
            server.name.clone(),
            server.last_error.clone().unwrap_or_default(),
        ]);
    }
    print::answer(&table.lines().join("\n"))?;
    Ok(0)
}

fn shown(server: &Server) -> Result<u8, Failure> {
    let state = match server.state.as_str() {
        "ready" => styled(GOOD, "ready"),
        "failed" => styled(BAD, "failed"),
        other => other.to_owned(),
    };
    let mut about = vec![server.transport.clone()];
    if server.scope == "run" {
        about.push("one for each run".to_owned());
    }
    about.extend(server.pid.map(|pid| format!("process {pid}")));
    about.extend(
        server
            .protocol
            .as_ref()
            .map(|one| format!("revision {one}")),
    );
    about.push(format!("started {}×", server.starts));
    let name = styled(HEAD, clean(&server.name));
    let about = styled(DIM, clean(&about.join(", ")));
    print::folded(&format!("{name}  {state}  {about}"))?;
    if let Some(error) = &server.last_error {
        lines("last error: ", error)?;
    }
    if server.noise > 0 {
        let said = server.noise_lines.last().map_or("", String::as_str);
        let text = format!("{}, the last one: {said}", server.noise);
        lines("invalid output lines: ", &text)?;
    }
    if !server.tools.is_empty() {
        let mut table = TextTable::new(&["IF REPEATED", "TOOL"]);
        for tool in &server.tools {
            let repeat = match tool.effect.as_str() {
                "read" => "no effect",
                "idempotent" => "no further effect",
                _ => "takes effect again",
            };
            table.row(vec![repeat.to_owned(), tool.name.clone()]);
        }
        print::answer(&table.lines().join("\n"))?;
    }
    for skipped in &server.skipped {
        lines("not offered: ", &skipped.reason)?;
    }
    Ok(0)
}

fn lines(what: &str, text: &str) -> Result<(), Failure> {
    for line in wrap(&format!("{what}{}", clean(text)), print::columns()) {
        print::answer(&line)?;
    }
    Ok(())
}
