//! `abide nodes`: other machines that are paired with the gateway.

mod list;
mod run;

use clap::{Args, Subcommand};

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{clean, span};
use crate::clock::Clock;
use crate::kernel::node::NodeCommand;
use crate::wire::nodes::{
    AnswerNode, ApproveNode, InviteNode, ListNodes, NodeDecision, RefuseNode, RemoveNode,
    RenameNode,
};

/// Pair other machines with this gateway, and run programs on them
///
/// A node connects to the gateway and runs what its own allow-list permits. It is admitted by the
/// code that it shows, or comes with a setup code of `invite`.
#[derive(Debug, Args)]
#[command(after_help = "abide nodes
abide nodes approve ABCD-2345
abide nodes invite --name mac
abide nodes run mac -- uname -a
abide nodes remove mac")]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    what: Option<NodesCommand>,
}

#[derive(Debug, Subcommand)]
enum NodesCommand {
    /// List the nodes, those that wait to be admitted, and their questions
    List,
    /// Show one node
    Show {
        /// Name or id of the node
        node: String,
    },
    /// Admit a waiting node, or approve what a node offers
    Approve(ApproveArgs),
    /// Refuse a waiting node, or what a node offers beyond what was approved
    Refuse {
        /// Code of the waiting node, or name of the node
        #[arg(value_name = "CODE|NODE")]
        node: String,
    },
    /// Make a setup code, which pairs one machine within ten minutes
    Invite(InviteArgs),
    /// Rename a node
    Rename {
        /// Name or id of the node
        node: String,
        /// Its new name
        name: String,
    },
    /// Remove a node; it is cut off at once
    Remove {
        /// Name or id of the node
        node: String,
    },
    /// Answer a question of a node's allow-list
    Answer(AnswerArgs),
    /// Run a program on a node, with its output and exit code
    Run(run::NodeRunArgs),
}

#[derive(Debug, Args)]
struct ApproveArgs {
    /// Code of the waiting node, or name of the node
    #[arg(value_name = "CODE|NODE")]
    node: String,

    /// Name that the node gets [default: the one that it asks for]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    limit: LimitArgs,
}

#[derive(Debug, Args)]
struct InviteArgs {
    /// Name that the node gets [default: the one that it asks for]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    limit: LimitArgs,
}

#[derive(Debug, Args)]
struct LimitArgs {
    /// Approve only this command, such as system.run; may be repeated
    #[arg(long = "command", value_name = "COMMAND", value_parser = command)]
    commands: Option<Vec<NodeCommand>>,

    /// Approve only this folder; may be repeated
    #[arg(long = "root", value_name = "DIR")]
    roots: Option<Vec<String>>,
}

fn command(text: &str) -> Result<NodeCommand, String> {
    NodeCommand::parse(text).ok_or_else(|| {
        let known = NodeCommand::ALL.iter().map(|one| one.as_str());
        let known: Vec<&str> = known.collect();
        format!("the commands are {}", known.join(", "))
    })
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// Id of the question, or its last digits, as the list shows them
    id: String,
    /// Whether the program may run
    #[arg(value_parser = decision, value_name = "allow|deny")]
    decision: NodeDecision,
}

fn decision(text: &str) -> Result<NodeDecision, String> {
    NodeDecision::parse(text).ok_or_else(|| "allow or deny".to_owned())
}

impl NodesArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let what = self.what.unwrap_or(NodesCommand::List);
        let link = DaemonLink::open(&common.place).await?;
        match what {
            NodesCommand::List => list::list(&link, common).await,
            NodesCommand::Show { node } => list::show(&link, node, common).await,
            NodesCommand::Approve(approve) => approve.run(&link, common).await,
            NodesCommand::Refuse { node } => refuse(&link, node, common).await,
            NodesCommand::Invite(invite) => invite.run(&link, common).await,
            NodesCommand::Rename { node, name } => {
                let request = RenameNode { node, name };
                if let Some(node) = link.ask_or_print(&request, common).await? {
                    print::answer(&format!("{} is renamed to {}", request.node, node.name))?;
                }
                Ok(0)
            }
            NodesCommand::Remove { node } => {
                let removed = link.ask_or_print(&RemoveNode { node }, common).await?;
                if let Some(removed) = removed {
                    print::answer(&format!("{} is removed", removed.name))?;
                }
                Ok(0)
            }
            NodesCommand::Answer(answer) => answer.run(&link, common).await,
            NodesCommand::Run(run) => run.run(link, common).await,
        }
    }
}

/// A code has letters and digits in two groups; a node with such a name is named by its id.
fn is_code(text: &str) -> bool {
    let letters: Vec<char> = text.chars().filter(|letter| *letter != '-').collect();
    letters.len() == 8
        && letters.iter().all(char::is_ascii_alphanumeric)
        && (text.len() == 8 || text.find('-') == Some(4))
}

/// Whether `text` is the code of a node that waits now.
async fn is_waiting(link: &DaemonLink, text: &str) -> Result<bool, Failure> {
    let plain = |code: &str| code.replace('-', "").to_ascii_uppercase();
    if !is_code(text) {
        return Ok(false);
    }
    let listed = link.ask(&ListNodes {}).await?;
    let is_node = listed.nodes.iter().any(|node| node.name == text);
    let mut waiting = listed.waiting.iter();
    Ok(!is_node || waiting.any(|one| plain(&one.code) == plain(text)))
}

impl ApproveArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let is_code = is_waiting(link, &self.node).await?;
        let (code, node) = match is_code {
            true => (Some(self.node), None),
            false => (None, Some(self.node)),
        };
        let request = ApproveNode {
            code,
            node,
            name: self.name,
            commands: self.limit.commands.map(|all| all.into_iter().collect()),
            roots: self.limit.roots.map(|all| all.into_iter().collect()),
        };
        let Some(node) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        let what = match is_code {
            true => "is paired",
            false => "is approved",
        };
        let may = list::parts(&node.approved.beyond(&node.denied));
        print::folded(&format!("{} {what}; it may: {may}", node.name))?;
        Ok(0)
    }
}

async fn refuse(link: &DaemonLink, node: String, common: &Common) -> Result<u8, Failure> {
    let is_code = is_waiting(link, &node).await?;
    let request = match is_code {
        true => RefuseNode {
            code: Some(node),
            node: None,
        },
        false => RefuseNode {
            code: None,
            node: Some(node),
        },
    };
    if let Some(refused) = link.ask_or_print(&request, common).await? {
        let what = match is_code {
            true => "is refused",
            false => "keeps what was approved; the rest is denied",
        };
        print::answer(&format!("{} {what}", clean(&refused.name)))?;
    }
    Ok(0)
}

impl InviteArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = InviteNode {
            name: self.name,
            commands: self.limit.commands.map(|all| all.into_iter().collect()),
            roots: self.limit.roots.map(|all| all.into_iter().collect()),
        };
        let Some(made) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        print::answer(&made.code)?;
        let left = span(made.expires_at.since(Clock::system().now()));
        print::note(&format!(
            "valid once, for {left}; on the other machine: abide node pair --gateway {} --code {}",
            made.url, made.code
        ));
        Ok(0)
    }
}

impl AnswerArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let listed = link.ask(&ListNodes {}).await?;
        let ids: Vec<_> = listed.questions.iter().map(|asked| asked.id).collect();
        let id =
            crate::cli::commands::answer::find_open(&ids, &self.id, "question", "abide nodes")?;
        let asked = listed.questions.into_iter().find(|asked| asked.id == id);
        let request = AnswerNode {
            id,
            digest: asked.map(|asked| asked.question.digest).unwrap_or_default(),
            decision: self.decision,
        };
        if link.ask_or_print(&request, common).await?.is_some() {
            let done = match self.decision {
                NodeDecision::Allow => "allowed",
                NodeDecision::Deny => "denied",
            };
            print::answer(done)?;
        }
        Ok(0)
    }
}
