//! `abide memory`: lists, searches and deletes the long-term memories of agents.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::answer::find_open;
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, clean, line, short, wrap};
use crate::clock::Clock;
use crate::kernel::ids::MemoryId;
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::memory::{
    DeleteMemories, DeletedMemories, ListMemories, Memories, Memory as Kept, SearchMemories,
};

/// Maximum number of lines of a memory in a list; `--json` has all.
const LINES: usize = 4;

/// List, search and delete what agents remember across conversations
///
/// An agent's memories are in the namespace of its own name, a subagent's in that of the agent that
/// it works for (build/explore). Memories that match a task are given to the model with it.
#[derive(Debug, Args)]
#[command(after_help = "abide memory
abide memory search deploy friday
abide memory delete 4f2a91c3")]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    what: Option<MemoryCommand>,
}

#[derive(Debug, Subcommand)]
enum MemoryCommand {
    /// List memories, newest first
    List(MemoryListArgs),
    /// Search memories by words, best match first
    Search(SearchArgs),
    /// Delete memories permanently
    Delete {
        /// Ids, or their last digits, as the list shows them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct MemoryListArgs {
    /// Only this namespace, such as build or build/explore
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Maximum number of memories
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE_LIMIT)))]
    limit: u32,
}

#[derive(Debug, Args)]
struct SearchArgs {
    /// Words to search for; a memory with any of them matches
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,

    /// Only in this namespace, such as build or build/explore
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl MemoryArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let all = MemoryListArgs {
            namespace: None,
            limit: 50,
        };
        match self.what.unwrap_or(MemoryCommand::List(all)) {
            MemoryCommand::List(list) => list.run(&link, common).await,
            MemoryCommand::Search(search) => search.run(&link, common).await,
            MemoryCommand::Delete { ids } => delete(&link, common, &ids).await,
        }
    }
}

impl MemoryListArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let (raw, page) = page(link, self.namespace.as_deref(), self.limit, None).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        if page.memories.is_empty() {
            let what = match &self.namespace {
                Some(name) => format!("no memories in {}", clean(name)),
                None => "no memories yet".to_owned(),
            };
            print::note(&line(&what, print::note_room(0)));
            return Ok(0);
        }
        show(&page.memories)?;
        if page.next_cursor.is_some() {
            print::note("older memories exist: show more with --limit, or use abide memory search");
        }
        Ok(0)
    }
}

impl SearchArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = SearchMemories {
            query: self.words.join(" "),
            namespace: self.namespace,
            limit: PageSize::default(),
        };
        let Some(found) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        if found.memories.is_empty() {
            print::note("no memory has any of these words");
            return Ok(0);
        }
        show(&found.memories)?;
        Ok(0)
    }
}

async fn delete(link: &DaemonLink, common: &Common, wanted: &[String]) -> Result<u8, Failure> {
    let known = if wanted.iter().all(|id| id.parse::<MemoryId>().is_ok()) {
        Vec::new()
    } else {
        every(link).await?
    };
    let mut ids = Vec::with_capacity(wanted.len());
    for one in wanted {
        ids.push(find_open(&known, one, "memory", "abide memory")?);
    }
    let raw = link.raw(&DeleteMemories { ids: ids.clone() }).await?;
    let answer: DeletedMemories = link::read(&raw)?;
    if common.json {
        print::object(&raw)?;
    } else {
        for id in &answer.deleted {
            print::note(&format!("deleted: {}", short(id)));
        }
    }
    let missing: Vec<String> = ids
        .iter()
        .filter(|id| !answer.deleted.contains(id))
        .map(ToString::to_string)
        .collect();
    match missing.is_empty() {
        true => Ok(0),
        false => {
            let message = format!("no memory {}", missing.join(", "));
            Err(Failure::new(exit::NOT_FOUND, "not_found", message)
                .hint("list memories: abide memory"))
        }
    }
}

async fn every(link: &DaemonLink) -> Result<Vec<MemoryId>, Failure> {
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let (_, page) = page(link, None, PAGE_LIMIT, cursor).await?;
        ids.extend(page.memories.iter().map(|memory| memory.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(ids);
        }
    }
}

async fn page(
    link: &DaemonLink,
    namespace: Option<&str>,
    limit: u32,
    cursor: Option<String>,
) -> Result<(Value, Memories), Failure> {
    let request = ListMemories {
        namespace: namespace.map(str::to_owned),
        limit: PageSize(limit),
        cursor,
    };
    let raw = link.raw(&request).await?;
    let page = link::read(&raw)?;
    Ok((raw, page))
}

fn show(memories: &[Kept]) -> Result<(), Failure> {
    let now = Clock::system().now();
    let shown: Vec<String> = memories.iter().map(|one| lines(one, now)).collect();
    print::answer(shown.concat().trim_end())
}

/// Formats a memory under its id, namespace and age.
fn lines(memory: &Kept, now: Timestamp) -> String {
    let from = match &*memory.source {
        "compaction" => ", from a compacted conversation",
        _ => "",
    };
    let head = format!(
        "{}  {}  {} old{from}",
        short(memory.id),
        memory.namespace,
        age(memory.at, now)
    );
    let mut out = print::styled(print::HEAD, line(&head, print::room(0)));
    out.push('\n');
    let text = clean(&memory.text);
    let all: Vec<String> = text
        .lines()
        .flat_map(|said| wrap(said, print::columns() - 2))
        .collect();
    for said in all.iter().take(LINES) {
        out.push_str(&format!("  {said}\n"));
    }
    if all.len() > LINES {
        let more = all.len() - LINES;
        out.push_str(&format!("  … {more} more lines: --json shows all\n"));
    }
    out
}
