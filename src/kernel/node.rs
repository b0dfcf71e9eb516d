//! Paired nodes: other machines on which a gateway runs programs and reads files. What a node
//! offers, what it is called for, and how a call ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::text::text_enum::text_enum;

mod pairing;

pub use pairing::{NAME_LIMIT, NodeInvite, OfferLimit, PairedNode, free_name, name_from};

/// Maximum number of folders in an offer.
pub const ROOTS_LIMIT: usize = 64;
/// Maximum size of each text about a machine and of each folder in an offer, in bytes.
const TEXT_LIMIT: usize = 1024;
/// Maximum size of each output stream in a result, in bytes.
pub const OUTPUT_LIMIT: usize = 256 * 1024;
/// Maximum size of the skills that a node publishes, in bytes.
pub const SKILLS_LIMIT: usize = 512 * 1024;

text_enum! {
    /// What a node can do for a gateway.
    NodeCommand {
        /// Finds programs by name.
        Which = "system.which",
        /// Runs a program.
        Run = "system.run",
        /// Lists a folder below an allowed root.
        List = "fs.list",
        /// Reads a part of a file below an allowed root.
        Read = "fs.read",
        /// Describes the machine.
        Describe = "node.describe",
    }
}

/// What a node offers, and what an operator has approved of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    /// The commands.
    pub commands: BTreeSet<NodeCommand>,
    /// The folders, by absolute path, below which `fs.list` and `fs.read` work.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roots: BTreeSet<String>,
    /// Whether it publishes the skills of its own folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skills: bool,
}

impl Offer {
    /// What both contain.
    pub fn intersection(&self, other: &Offer) -> Offer {
        Offer {
            commands: &self.commands & &other.commands,
            roots: &self.roots & &other.roots,
            skills: self.skills && other.skills,
        }
    }

    /// What this one contains and `other` does not.
    pub fn beyond(&self, other: &Offer) -> Offer {
        Offer {
            commands: &self.commands - &other.commands,
            roots: &self.roots - &other.roots,
            skills: self.skills && !other.skills,
        }
    }

    /// True if it contains nothing.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.roots.is_empty() && !self.skills
    }

    /// Refuses an offer that no honest node makes: too many or too long folders, or folders that are
    /// not absolute.
    pub fn check(&self) -> Result<(), String> {
        if self.roots.len() > ROOTS_LIMIT {
            return Err(format!("it offers more than {ROOTS_LIMIT} folders"));
        }
        let is_root = |root: &String| {
            let parts = root.split('/');
            root.starts_with('/')
                && root.len() <= TEXT_LIMIT
                && !root.chars().any(char::is_control)
                && !parts.into_iter().any(|part| part == "..")
        };
        match self.roots.iter().find(|root| !is_root(root)) {
            Some(root) => Err(format!("{root:.80?} is not the absolute path of a folder")),
            None => Ok(()),
        }
    }

    /// Its parts as a person reads them: `system.run`, `root /srv`, `skills`.
    pub fn parts(&self) -> Vec<String> {
        let commands = self.commands.iter().map(|command| command.to_string());
        let roots = self.roots.iter().map(|root| format!("root {root}"));
        let skills = self.skills.then(|| "skills".to_owned());
        commands.chain(roots).chain(skills).collect()
    }
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// `linux`, `macos`, …
    pub platform: String,
    /// `x86_64`, `aarch64`, …
    pub arch: String,
    /// The version of abide.
    pub version: String,
}

impl Machine {
    /// Refuses texts that are too long to be shown, or have control characters.
    pub fn check(&self) -> Result<(), String> {
        let texts = [&self.host, &self.platform, &self.arch, &self.version];
        let is_text =
            |text: &String| text.len() <= TEXT_LIMIT && !text.chars().any(char::is_control);
        match texts.into_iter().all(is_text) {
            true => Ok(()),
            false => Err("the description of the machine is not readable text".to_owned()),
        }
    }
}

text_enum! {
    /// Why a node is refused.
    RefusalReason {
        /// An operator has refused it.
        Refused = "refused",
        /// The request or the setup code has expired.
        Expired = "expired",
        /// The setup code is unknown or was used.
        InvalidCode = "invalid_code",
        /// The signature, the token or a frame is not valid.
        Invalid = "invalid",
        /// The gateway speaks another version of the link.
        Protocol = "protocol",
        /// An operator has removed it.
        Removed = "removed",
        /// Another connection of the same node has taken its place.
        Replaced = "replaced",
        /// Too many nodes wait for admission. It may try again later.
        Busy = "busy",
    }
}

/// A command for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "command")]
pub enum NodeCall {
    /// Finds programs; the result is [`Programs`].
    #[serde(rename = "system.which")]
    Which {
        /// The names of the programs.
        programs: BTreeSet<String>,
    },
    /// Runs a program; the result is [`RunEnd`].
    #[serde(rename = "system.run")]
    Run(RunCall),
    /// Lists a folder; the result is [`Entries`].
    #[serde(rename = "fs.list")]
    List {
        /// The absolute path.
        path: String,
    },
    /// Reads a part of a file; the result is [`FilePart`].
    #[serde(rename = "fs.read")]
    Read {
        /// The absolute path.
        path: String,
        /// Offset in bytes.
        #[serde(default)]
        offset: u64,
        /// Maximum number of bytes.
        limit: u64,
    },
    /// Describes the machine; the result is [`Description`].
    #[serde(rename = "node.describe")]
    Describe {},
}

impl NodeCall {
    /// The command.
    pub fn command(&self) -> NodeCommand {
        match self {
            NodeCall::Which { .. } => NodeCommand::Which,
            NodeCall::Run(_) => NodeCommand::Run,
            NodeCall::List { .. } => NodeCommand::List,
            NodeCall::Read { .. } => NodeCommand::Read,
            NodeCall::Describe {} => NodeCommand::Describe,
        }
    }
}

/// A program to run on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct RunCall {
    /// The program and its arguments; not a shell command line.
    pub argv: Vec<String>,
    /// The working folder, absolute; the node's own default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables beside the node's base environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The time limit, milliseconds; ten minutes if unset.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// The maximum number of bytes kept of each output stream; at most and by default 262144.
    #[serde(default = "default_keep")]
    pub keep: usize,
}

fn default_timeout() -> u64 {
    600_000
}

fn default_keep() -> usize {
    OUTPUT_LIMIT
}

/// What the operator is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunQuestion {
    /// The program's file, resolved.
    pub program: String,
    /// The program as called, and its arguments.
    pub argv: Vec<String>,
    /// The working folder.
    pub cwd: String,
    /// The names of the variables.
    pub env: Vec<String>,
    /// Digest of program, arguments, folder and variables with their values. An answer holds for
    /// exactly this.
    pub digest: String,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum CallEnd {
    /// It was carried out.
    Done {
        /// The result of the command.
        value: serde_json::Value,
    },
    /// It was not carried out, and had no effect.
    Failed {
        /// Why.
        reason: FailureReason,
        /// A message for people and models.
        message: String,
    },
    /// Its effect began, and it is unknown how it ended.
    Uncertain {
        /// A message for people and models.
        message: String,
    },
}

text_enum! {
    /// Why a node did not carry out a call.
    FailureReason {
        /// Its allow-list, or the person whom it asked, has denied the call.
        Denied = "denied",
        /// It came after its deadline.
        Late = "late",
        /// It was cancelled before it began.
        Cancelled = "cancelled",
        /// The program or file does not exist, or cannot be used.
        NotFound = "not_found",
        /// The arguments are not valid.
        Invalid = "invalid",
        /// The node has no room for another call.
        Busy = "busy",
        /// Another failure.
        Failed = "failed",
    }
}

text_enum! {
    /// An output stream of a program.
    OutputStream {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

/// The result of `system.which`: program to absolute path. What was not found is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// The found programs.
    pub programs: BTreeMap<String, String>,
}

/// The result of `system.run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnd {
    /// The exit status, unless it was ended by a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the node ended it: `timeout`, `output`, `cancelled`, or `stopping` if the node itself was
    /// stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Standard output; its middle is left out if it is long.
    pub stdout: String,
    /// Standard error; its middle is left out if it is long.
    pub stderr: String,
    /// How many bytes were written to standard output.
    pub stdout_bytes: u64,
    /// How many bytes were written to standard error.
    pub stderr_bytes: u64,
    /// How long it ran, milliseconds.
    pub ran_ms: u64,
}

/// The result of `fs.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entries {
    /// By name.
    pub entries: Vec<Entry>,
    /// Entries were left out.
    pub truncated: bool,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The name.
    pub name: String,
    /// `file`, `folder`, `link` or `other`.
    pub kind: String,
    /// The size in bytes.
    pub size: u64,
}

/// The result of `fs.read`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilePart {
    /// The text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The offset of the next part; unset at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The result of `node.describe`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// The machine.
    pub machine: Machine,
    /// What it offers.
    pub offer: Offer,
    /// The default working folder.
    pub cwd: String,
    /// The number of processors.
    pub processors: usize,
}

/// A skill that a node publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSkill {
    /// The name of its folder.
    pub folder: String,
    /// The text of its `SKILL.md`.
    pub text: String,
}
