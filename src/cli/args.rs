//! The command line as clap parses it, and its execution up to the exit code.

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{chat, demo, help, setup, top};
use crate::cli::commands::{
    acp, agents, answer, approvals, attach, audit, backup, cancel, completions, config, doctor,
    env, events, history, inbox, logs, man, mcp, mcp_serve, memory, node, nodes, ps, restore,
    retry, review, rpc, run, send, serve, service, sessions, skills, spawn, status, steer, stop,
    tls, tokens, trust, usage, wait, webhooks,
};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::common::signals;
use crate::cli::output::print;
use crate::daemon;

/// A durable session daemon with a persistent subagent registry.
#[derive(Debug, Parser)]
#[command(
    name = "abide",
    version = version(),
    max_term_width = 80,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = AFTER
)]
pub struct CliArgs {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: CliCommand,
}

/// Versions of the program and of its database library.
fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let versions = daemon::versions();
        // Clap adds the program's name itself.
        versions.trim_start_matches("abide ").to_owned()
    });
    &TEXT
}

const AFTER: &str = "\
A run or session is named by its id or key, the first or last digits of its id
(4 or more), its label, or @last: the newest run that run, spawn or chat started
from this terminal, or with the same ABIDE_TERMINAL. A run names its
session where a session is expected, and a session names its newest run.

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 not ended yet, 5 timeout,
6 cancelled, 7 interrupted, 8 needs a user, 9 refused, 10 no daemon, 11 auth;
serve: 74 store, 75 folder, port or store in use, 77 permissions,
78 configuration, 79 restart needed";

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::Serve),
    Service(service::ServiceArgs),
    Status(status::StatusArgs),
    Stop(stop::StopArgs),
    Run(run::RunArgs),
    Spawn(spawn::CliSpawnArgs),
    Wait(wait::CliWaitArgs),
    Steer(steer::SteerArgs),
    Cancel(cancel::CancelArgs),
    Retry(retry::Retry),
    Review(review::Review),
    Env(env::EnvOf),
    Attach(attach::Attach),
    Send(send::CliSendArgs),
    Chat(chat::ChatArgs),
    Answer(answer::AnswerArgs),
    Approvals(approvals::ApprovalsArgs),
    Ps(ps::Ps),
    Top(top::Top),
    Sessions(sessions::SessionsArgs),
    Logs(logs::Logs),
    History(history::HistoryArgs),
    Inbox(inbox::InboxArgs),
    Audit(audit::AuditArgs),
    Config(config::ConfigArgs),
    Completions(completions::Completions),
    Man(man::ManArgs),
    Backup(backup::BackupArgs),
    Restore(restore::Restore),
    Doctor(doctor::Doctor),
    Events(events::EventsArgs),
    Agents(agents::AgentsArgs),
    Mcp(mcp::Mcp),
    McpServe(mcp_serve::McpServe),
    Nodes(nodes::NodesArgs),
    Memory(memory::MemoryArgs),
    Node(node::NodeArgs),
    Skills(skills::SkillsArgs),
    Tls(tls::TlsArgs),
    Tokens(tokens::TokensArgs),
    Trust(trust::TrustArgs),
    Usage(usage::UsageArgs),
    Webhooks(webhooks::WebhooksArgs),
    Setup(setup::Setup),
    Acp(acp::AcpArgs),
    Rpc(rpc::Rpc),
    Demo(demo::Demo),
}

/// Runs the command line of this process and returns its exit code.
pub fn main() -> ExitCode {
    if let Some(code) = crate::process::launched().or_else(crate::process::kept) {
        return code;
    }
    // The help pages are laid out only if one is shown: that takes longer than the parsing.
    let parsed = CliArgs::command().try_get_matches();
    let matches = parsed.or_else(|_| help::command_with_help().try_get_matches());
    match matches.and_then(|matches| CliArgs::from_arg_matches(&matches)) {
        Ok(arguments) => execute(arguments),
        Err(error) => no_command(&error),
    }
}

/// Prints a help page or a usage error when no command was parsed.
fn no_command(error: &clap::Error) -> ExitCode {
    let is_page = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_page || !error.use_stderr() {
        // If printing fails, the exit code still reports the error.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE));
    }
    // A client that passes --json gets JSON even if the rest of the command line is invalid.
    let json = std::env::args_os().any(|argument| argument == "--json");
    // Read once more without styles: plain rendering would also drop escape sequences that were
    // typed, which `report` makes visible.
    let plain = help::command_with_help().styles(Styles::plain());
    let said = match plain.try_get_matches() {
        Err(plain) => plain.render().ansi().to_string(),
        Ok(_) => error.render().to_string(),
    };
    let failure = misread(&said);
    report(&failure, json);
    ExitCode::from(failure.code)
}

/// Turns clap's error text into a usage failure: the first paragraph is the message, the others are
/// hints, the last of which names the help of the command.
fn misread(said: &str) -> Failure {
    let mut paragraphs = said.trim().split("\n\n").map(one_line);
    let what = paragraphs.next().unwrap_or_default();
    let failure = Failure::usage(what.strip_prefix("error: ").unwrap_or(&what));
    let hints = paragraphs.filter(|hint| !hint.ends_with("try '--help'."));
    let failure = hints.fold(failure, Failure::hint);
    failure.hint(format!("see: {} --help", command_of_this_process()))
}

/// The command and subcommands that this process was started with, as far as they exist.
fn command_of_this_process() -> String {
    let mut command = CliArgs::command();
    let mut words = vec!["abide".to_owned()];
    for argument in std::env::args_os().skip(1) {
        let argument = argument.to_string_lossy();
        let below = command.find_subcommand(&*argument).cloned();
        match below {
            Some(below) => {
                words.push(below.get_name().to_owned());
                command = below;
            }
            None if argument.starts_with('-') => {}
            None => break,
        }
    }
    words.join(" ")
}

fn one_line(paragraph: &str) -> String {
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ")
}

/// Runs a command and prints its failure, if any.
fn execute(arguments: CliArgs) -> ExitCode {
    let CliArgs { common, command } = arguments;
    let code = match carry_out(&common, command) {
        Ok(code) => code,
        Err(failure) => {
            report(&failure, common.json);
            failure.code
        }
    };
    ExitCode::from(code)
}

/// Future of a running command. Boxed, so that each is compiled once instead of at every await.
type CommandFuture<'a> = Pin<Box<dyn Future<Output = Result<u8, Failure>> + 'a>>;

fn carry_out(common: &Common, command: CliCommand) -> Result<u8, Failure> {
    let work: CommandFuture<'_> = match command {
        // The daemon creates its own runtime; the other three need none.
        CliCommand::Serve(command) if !command.detach => return command.run(common),
        CliCommand::Restore(command) => return command.run(common),
        CliCommand::Completions(command) => return command.run(),
        CliCommand::Man(command) => return command.run(),
        CliCommand::Node(command) if command.is_service() => return command.serve(common),
        CliCommand::Serve(command) => Box::pin(command.detach(common)),
        CliCommand::Service(command) => Box::pin(command.run(common)),
        CliCommand::Status(command) => Box::pin(command.run(common)),
        CliCommand::Stop(command) => Box::pin(command.run(common)),
        CliCommand::Run(command) => Box::pin(signals::in_order(command.run(common))),
        CliCommand::Spawn(command) => Box::pin(command.run(common)),
        CliCommand::Wait(command) => Box::pin(signals::in_order(command.run(common))),
        CliCommand::Steer(command) => Box::pin(command.run(common)),
        CliCommand::Cancel(command) => Box::pin(command.run(common)),
        CliCommand::Review(command) => Box::pin(command.run(common)),
        CliCommand::Env(command) => Box::pin(command.run(common)),
        CliCommand::Retry(command) => Box::pin(command.run(common)),
        CliCommand::Attach(command) => Box::pin(signals::in_order(command.run(common))),
        CliCommand::Send(command) => Box::pin(command.run(common)),
        CliCommand::Chat(command) => Box::pin(signals::in_order(command.run(common))),
        CliCommand::Answer(command) => Box::pin(command.run(common)),
        CliCommand::Approvals(command) => Box::pin(command.run(common)),
        CliCommand::Ps(command) => Box::pin(command.run(common)),
        CliCommand::Top(command) => Box::pin(command.run(common)),
        CliCommand::Sessions(command) => Box::pin(command.run(common)),
        CliCommand::Logs(command) => Box::pin(command.run(common)),
        CliCommand::History(command) => Box::pin(command.run(common)),
        CliCommand::Inbox(command) => Box::pin(command.run(common)),
        CliCommand::Audit(command) => Box::pin(command.run(common)),
        CliCommand::Config(command) => Box::pin(command.run(common)),
        CliCommand::Backup(command) => Box::pin(command.run(common)),
        CliCommand::Doctor(command) => Box::pin(command.run(common)),
        CliCommand::Events(command) => Box::pin(command.run(common)),
        CliCommand::Agents(command) => Box::pin(command.run(common)),
        CliCommand::Mcp(command) => Box::pin(command.run(common)),
        CliCommand::McpServe(command) => Box::pin(command.run(common)),
        CliCommand::Nodes(command) => Box::pin(command.run(common)),
        CliCommand::Tokens(command) => Box::pin(command.run(common)),
        CliCommand::Memory(command) => Box::pin(command.run(common)),
        CliCommand::Node(command) => Box::pin(command.run(common)),
        CliCommand::Skills(command) => Box::pin(command.run(common)),
        CliCommand::Tls(command) => Box::pin(command.run(common)),
        CliCommand::Trust(command) => Box::pin(command.run(common)),
        CliCommand::Usage(command) => Box::pin(command.run(common)),
        CliCommand::Webhooks(command) => Box::pin(command.run(common)),
        CliCommand::Setup(command) => Box::pin(command.run(common)),
        CliCommand::Acp(command) => Box::pin(command.run(common)),
        CliCommand::Rpc(command) => Box::pin(command.run(common)),
        CliCommand::Demo(command) => Box::pin(command.run(common)),
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::local("the program cannot start", error))?
        .block_on(work)
}

fn report(failure: &Failure, json: bool) {
    if failure.kind == print::CLOSED {
        return;
    }
    if json {
        // If printing fails, the exit code still reports the error.
        let _ = print::object(&failure.json());
    } else {
        let text = crate::cli::output::text::clean(&failure.to_string());
        let text = print::note_for_screen(&text, "abide: ".len());
        print::note(&format!("{} {text}", print::styled(print::BAD, "abide:")));
    }
}
