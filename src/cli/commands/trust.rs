//! `abide trust`: manages projects whose commands, servers and environment may take effect.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::{TextTable, age, clean};
use crate::clock::Clock;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::trust::{ListProjects, Projects, RevokeTrust, Revoked, TrustProject};

/// Trust a project, list trusted ones, or revoke the trust
///
/// A project's agents may define commands, an environment and MCP servers. They take effect only
/// once you trust the project, and no longer after those files have changed.
#[derive(Debug, Args)]
#[command(after_help = "abide trust .
abide trust . --revoke
abide trust")]
pub(crate) struct TrustArgs {
    /// The project's folder: the one that contains .abide or .git [default: list trusted projects]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,

    /// List the trusted projects
    #[arg(long, conflicts_with_all = ["revoke", "folder"])]
    list: bool,

    /// Revoke the trust
    #[arg(long)]
    revoke: bool,
}

impl TrustArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let Some(folder) = self.folder else {
            if self.revoke {
                return Err(
                    Failure::usage("name the project whose trust is to be revoked")
                        .hint("abide trust lists them: abide trust DIR --revoke"),
                );
            }
            let request = ListProjects {
                limit: PageSize(PAGE_LIMIT),
                cursor: None,
            };
            let raw = link.raw(&request).await?;
            return listed(&raw, common);
        };
        let folder = std::path::absolute(&folder)
            .map_err(|error| Failure::local(folder.display(), error))?
            .into_os_string()
            .into_string()
            .map_err(|_| Failure::usage("a folder whose name is not UTF-8 cannot be trusted"))?;
        match self.revoke {
            true => revoke(&link, folder, common).await,
            false => add(&link, folder, common).await,
        }
    }
}

async fn add(link: &DaemonLink, folder: String, common: &Common) -> Result<u8, Failure> {
    let Some(project) = link.ask_or_print(&TrustProject { folder }, common).await? else {
        return Ok(0);
    };
    print::answer(&format!("{} is trusted", clean(&project.folder)))?;
    for covered in &project.covers {
        let needs = covered.needs.join(", ");
        print::answer(&format!("  {}: {needs}", clean(&covered.file)))?;
    }
    let note = "its agents now apply as their files define them, and may replace yours; a change of what they \
                may do, or a new agent, ends the trust";
    print::note(&styled(DIM, note));
    Ok(0)
}

async fn revoke(link: &DaemonLink, folder: String, common: &Common) -> Result<u8, Failure> {
    let request = RevokeTrust { folder };
    let raw = link.raw(&request).await?;
    let answer: Revoked = link::read(&raw)?;
    let shown = clean(&request.folder);
    if !answer.revoked {
        let message = format!("{shown} was not trusted");
        return Err(Failure::new(exit::NOT_FOUND, "not_found", message)
            .hint("list trusted projects: abide trust --list"));
    }
    if common.json {
        print::object(&raw)?;
    } else {
        print::answer(&format!("{shown} is no longer trusted"))?;
    }
    Ok(0)
}

fn listed(raw: &Value, common: &Common) -> Result<u8, Failure> {
    if common.json {
        print::object(raw)?;
        return Ok(0);
    }
    let Projects { projects, .. } = link::read(raw)?;
    if projects.is_empty() {
        print::note("no project is trusted; trust one: abide trust DIR");
        return Ok(0);
    }
    let now = Clock::system().now();
    let mut table = TextTable::new(&["STATE", "AGE", "FILES", "PROJECT"]);
    for project in projects {
        table.row(vec![
            project.state,
            age(project.trusted_at, now),
            project.covers.len().to_string(),
            project.folder,
        ]);
    }
    print::answer(&table.lines().join("\n"))?;
    Ok(0)
}
