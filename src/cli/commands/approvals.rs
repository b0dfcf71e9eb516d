//! `abide approvals`: lists and resolves tool calls that need approval, and manages remembered
//! decisions.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::answer::find_open;
pub(crate) use crate::cli::asking::approval_text::in_short;
use crate::cli::asking::{approval_text, verbatim};
use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, age, short};
use crate::clock::Clock;
use crate::kernel::ids::{ApprovalId, SessionKey};
use crate::kernel::policy::approval::{ApprovalState, Choice, Remember};
use crate::wire::approvals::{
    Approval, Approvals as Page, ForgetApproval, Forgotten, ListApprovals, ListRemembered,
    RememberedPage, ResolveApproval,
};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::nodes::ListNodes;
use crate::wire::shapes::Word;

/// Allow or deny tool calls that need approval, or list the open ones
///
/// A call that needs approval is not started. Its run is paused until a user decides, or until the
/// approval expires, which denies the call.
#[derive(Debug, Args)]
#[command(after_help = "abide approvals
abide approvals show 4f2a91c3
abide approvals allow 4f2a91c3
abide approvals allow 4f2a91c3 --remember session
abide approvals remembered")]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    what: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// Show one open approval
    Show(ShowArgs),
    /// Allow the call
    Allow(ResolveArgs),
    /// Deny the call; the run is notified and goes on without it
    Deny(ResolveArgs),
    /// List the decisions that also apply to later calls
    Remembered,
    /// Delete a remembered decision; you are asked again next time
    Forget(Forget),
}

#[derive(Debug, Args)]
struct ResolveArgs {
    /// Approval or waiting run, by id or its last digits; optional when only one is open
    approval: Option<String>,

    /// Also apply the decision to later calls like it: in this session, or of this agent
    #[arg(long, value_name = "SCOPE", value_parser = PossibleValuesParser::new(["session", "agent"]))]
    remember: Option<String>,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Approval or waiting run, by id or its last digits
    approval: String,
}

#[derive(Debug, Args)]
struct Forget {
    /// Id or its last digits, as shown by `remembered`
    approval: String,
}

impl ApprovalsArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        match self.what {
            None => list(&link, common).await,
            Some(ApprovalsCommand::Show(show)) => show.run(&link, common).await,
            Some(ApprovalsCommand::Allow(resolve)) => {
                resolve.run(&link, common, Choice::Allow).await
            }
            Some(ApprovalsCommand::Deny(resolve)) => resolve.run(&link, common, Choice::Deny).await,
            Some(ApprovalsCommand::Remembered) => remembered(&link, common).await,
            Some(ApprovalsCommand::Forget(forget)) => forget.run(&link, common).await,
        }
    }
}

async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let (raw, open) = waiting(link, None, true).await?;
    if common.json {
        print::object(&raw)?;
    } else if open.is_empty() {
        print::note("no tool call waits for your approval");
    } else {
        let now = Clock::system().now();
        for approval in &open {
            print::answer(&approval_text::show(approval, now, print::screen_width()))?;
        }
        print::note("decide: abide approvals allow ID, or deny ID");
    }
    if !common.json
        && let Some(line) = nodes_in_short(link).await
    {
        print::note(&line);
    }
    Ok(0)
}

/// One line if nodes wait for the operator, too. A caller who may not see nodes gets none.
async fn nodes_in_short(link: &DaemonLink) -> Option<String> {
    let listed = link.ask(&ListNodes {}).await.ok()?;
    let more = listed.nodes.iter().filter(|node| !node.pending.is_empty());
    let counts = [
        (listed.waiting.len(), "to be admitted"),
        (more.count(), "for the approval of an offer"),
        (listed.questions.len(), "for an answer"),
    ];
    let waiting = counts.iter().filter(|(count, _)| *count > 0);
    let waiting: Vec<String> = waiting
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    let list = waiting.join(", ");
    (!list.is_empty()).then(|| format!("nodes wait: {list} (abide nodes)"))
}

impl ShowArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let (raw, open) = waiting(link, None, true).await?;
        let ids: Vec<ApprovalId> = open.iter().map(|approval| approval.id).collect();
        let id = find(&open, &self.approval)?;
        let Some(at) = ids.iter().position(|known| *known == id) else {
            let message = format!("approval {id} is not open: it was decided or has expired");
            return Err(Failure::new(exit::NOT_FOUND, "not_found", message)
                .hint("list open approvals: abide approvals"));
        };
        if common.json {
            print::object(&raw["approvals"][at])?;
            return Ok(0);
        }
        let shown = approval_text::show(&open[at], Clock::system().now(), print::screen_width());
        print::answer(&shown)?;
        print::note("decide: abide approvals allow ID, or deny ID");
        Ok(0)
    }
}

impl ResolveArgs {
    async fn run(
        self,
        link: &DaemonLink,
        common: &Common,
        decision: Choice,
    ) -> Result<u8, Failure> {
        let (_, open) = waiting(link, None, true).await?;
        let ids: Vec<ApprovalId> = open.iter().map(|approval| approval.id).collect();
        let id = match (&self.approval, &ids[..]) {
            (Some(wanted), _) => find(&open, wanted)?,
            (None, [only]) => *only,
            (None, []) => {
                return Err(Failure::new(
                    exit::NOT_FOUND,
                    "not_found",
                    "no tool call waits for your approval",
                ));
            }
            (None, _) => {
                return Err(Failure::usage("name the approval: several are open")
                    .hint("abide approvals lists them"));
            }
        };
        let remember = self.remember.as_deref().and_then(Remember::parse);
        let digest = open.iter().find(|one| one.id == id).and_then(digest);
        let raw = match resolve(link, id, decision, remember, digest).await {
            Err(refused) if refused.kind == "conflict" => {
                // Show what the call would do now, for the next decision.
                let (_, open) = waiting(link, None, true).await?;
                if let Some(now) = open.iter().find(|one| one.id == id) {
                    let width = print::notes_width();
                    print::note(&approval_text::show(now, Clock::system().now(), width));
                }
                return Err(refused);
            }
            resolved => resolved?,
        };
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let resolved: Approval = link::read(&raw)?;
        print::note(&format!(
            "{}; run {} continues: abide wait {1}",
            resolved.state,
            short(resolved.run_id)
        ));
        if let Some(scope) = &resolved.remember {
            let what = match &resolved.covers {
                Some(covers) => format!("{} {covers}", resolved.tool),
                None => format!("every call of {}", resolved.tool),
            };
            let whose = match &**scope {
                "agent" => format!("for agent {}", resolved.agent),
                _ => format!("in session {}", resolved.session_key),
            };
            let text = format!("also applies from now on {whose}: {what}");
            for said in verbatim::lines(&text, print::notes_width()) {
                print::note(&said);
            }
            print::note(&format!("undo it: abide approvals forget {}", short(id)));
        }
        Ok(0)
    }
}

/// Finds an approval by its own id or by the id of the run that waits for it.
fn find(open: &[Approval], wanted: &str) -> Result<ApprovalId, Failure> {
    let digits = wanted.to_ascii_lowercase();
    let of_run = |one: &&Approval| digits.len() >= 4 && one.run_id.to_string().ends_with(&digits);
    let mut of_run = open.iter().filter(of_run);
    if let (Some(only), None) = (of_run.next(), of_run.next()) {
        return Ok(only.id);
    }
    let ids: Vec<ApprovalId> = open.iter().map(|one| one.id).collect();
    find_open(&ids, wanted, "approval", "abide approvals")
}

/// The daemon has recorded the decision once this returns; the value is its raw reply.
pub(crate) async fn resolve(
    link: &DaemonLink,
    id: ApprovalId,
    decision: Choice,
    remember: Option<Remember>,
    digest: Option<String>,
) -> Result<Value, Failure> {
    let request = ResolveApproval {
        id,
        decision,
        remember,
        digest,
    };
    link.raw(&request).await
}

/// Digest of the previewed change; an `allow` fails with `conflict` if the change differs by then.
pub(crate) fn digest(approval: &Approval) -> Option<String> {
    approval.change.as_ref()?.digest.clone()
}

async fn remembered(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let (raw, page) = page_of_remembered(link).await?;
    if common.json {
        print::object(&raw)?;
        return Ok(0);
    }
    if page.remembered.is_empty() {
        print::note("no decisions are remembered; allow or deny with --remember to keep one");
        return Ok(0);
    }
    let now = Clock::system().now();
    let mut table = TextTable::new(&["ID", "DECISION", "SCOPE", "AGENT", "AGE"]);
    let mut covered = Vec::new();
    for one in page.remembered {
        table.row(vec![
            short(one.id),
            one.decision.to_string(),
            one.scope.to_string(),
            one.agent.to_string(),
            age(one.at, now),
        ]);
        covered.push(match one.covers {
            Some(covers) => format!("{} {covers}", one.tool),
            None => format!("every call of {}", one.tool),
        });
    }
    let mut rows = table.lines().into_iter();
    print::answer(&rows.next().unwrap_or_default())?;
    let within = print::screen_width().map(|columns| columns.saturating_sub(2));
    for (row, covers) in rows.zip(covered) {
        print::answer(&row)?;
        for said in verbatim::lines(&covers, within) {
            print::answer(&format!("  {said}"))?;
        }
    }
    Ok(0)
}

async fn page_of_remembered(link: &DaemonLink) -> Result<(Value, RememberedPage), Failure> {
    let request = ListRemembered {
        limit: PageSize(PAGE_LIMIT),
        cursor: None,
    };
    let raw = link.raw(&request).await?;
    let page = link::read(&raw)?;
    Ok((raw, page))
}

impl Forget {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let (_, page) = page_of_remembered(link).await?;
        let ids: Vec<ApprovalId> = page.remembered.iter().map(|one| one.id).collect();
        let list = "abide approvals remembered";
        let id = find_open(&ids, &self.approval, "remembered decision", list)?;
        let raw = link.raw(&ForgetApproval { id }).await?;
        let answer: Forgotten = link::read(&raw)?;
        if common.json {
            print::object(&raw)?;
        } else if answer.forgotten {
            print::note("forgotten; next time you are asked again");
        } else {
            print::note("it was already forgotten");
        }
        Ok(0)
    }
}

/// Open approvals in the session's tree, or of all sessions: the raw reply and the parsed list.
/// `previews` includes what each call would do.
pub(crate) async fn waiting(
    link: &DaemonLink,
    session: Option<&SessionKey>,
    previews: bool,
) -> Result<(Value, Vec<Approval>), Failure> {
    let request = ListApprovals {
        session_key: session.cloned(),
        state: Some(ApprovalState::Open),
        previews: (!previews).then_some(false),
        limit: PageSize(PAGE_LIMIT),
        ..ListApprovals::default()
    };
    let raw = link.raw(&request).await?;
    let page: Page = link::read(&raw)?;
    Ok((raw, page.approvals))
}

/// Current state of an approval that was open when `before` was read.
pub(crate) async fn state(link: &DaemonLink, before: &Approval) -> Result<Option<Word>, Failure> {
    let request = ListApprovals {
        session_key: Some(before.session_key.clone()),
        tree: Some(false),
        previews: Some(false),
        limit: PageSize(PAGE_LIMIT),
        ..ListApprovals::default()
    };
    let page: Page = link.ask(&request).await?;
    let now = page.approvals.into_iter().find(|one| one.id == before.id);
    Ok(now.map(|one| one.state))
}
