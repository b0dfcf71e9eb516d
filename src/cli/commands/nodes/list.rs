//! `abide nodes list` and `show`.

use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print::{self, BUSY, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{TextTable, age, clean, short, span};
use crate::clock::Clock;
use crate::kernel::node::Offer;
use crate::kernel::time::Timestamp;
use crate::wire::nodes::{GetNode, ListNodes, Node, NodeList, NodeQuestion, NodeRequest};

/// Prints the nodes, those that wait, and their questions.
pub(super) async fn list(link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
    let raw: Value = link.raw(&ListNodes {}).await?;
    if common.json {
        print::object(&raw)?;
        return Ok(0);
    }
    let listed: NodeList = link::read(&raw)?;
    let now = Clock::system().now();
    if listed.nodes.is_empty() && listed.waiting.is_empty() {
        print::note("no nodes; pair a machine: abide nodes invite");
    }
    if !listed.nodes.is_empty() {
        table(&listed.nodes, now)?;
    }
    for node in listed.nodes.iter().filter(|node| !node.pending.is_empty()) {
        print::folded(&offers_more(node))?;
    }
    for waiting in &listed.waiting {
        print::folded(&request(waiting, now))?;
    }
    for asked in &listed.questions {
        print::folded(&question(asked))?;
    }
    Ok(0)
}

fn table(nodes: &[Node], now: Timestamp) -> Result<(), Failure> {
    let heads = &["NAME", "STATE", "SEEN", "MACHINE", "MAY"];
    let mut table = TextTable::new(heads).painted(1, |state| match state {
        "connected" => GOOD,
        _ => DIM,
    });
    for node in nodes {
        let seen = match (&*node.state, node.seen_at) {
            ("connected", _) => "now".to_owned(),
            (_, Some(at)) => age(at, now),
            (_, None) => "never".to_owned(),
        };
        table.row(vec![
            node.name.clone(),
            node.state.to_string(),
            seen,
            format!("{}/{}", node.machine.platform, node.machine.arch),
            parts(&node.approved.beyond(&node.denied)),
        ]);
    }
    print::answer(&table.lines().join("\n"))
}

/// What an offer has, for one line.
pub(super) fn parts(offer: &Offer) -> String {
    match offer.is_empty() {
        true => "nothing".to_owned(),
        false => clean(&offer.parts().join(", ")),
    }
}

fn added(offer: &Offer) -> String {
    let parts = offer.parts().into_iter();
    let parts: Vec<String> = parts.map(|part| format!("+ {}", clean(&part))).collect();
    parts.join(", ")
}

fn offers_more(node: &Node) -> String {
    format!(
        "{} {} offers {}: abide nodes approve {}, or refuse",
        styled(BUSY, "pending"),
        node.name,
        added(&node.pending),
        node.name
    )
}

fn request(waiting: &NodeRequest, now: Timestamp) -> String {
    format!(
        "{} {} {}, {} {}/{} at {}, offers {}; expires in {}: abide nodes approve {}, or refuse",
        styled(BUSY, "waiting"),
        styled(HEAD, &waiting.code),
        waiting.name,
        clean(&waiting.machine.host),
        clean(&waiting.machine.platform),
        clean(&waiting.machine.arch),
        waiting.address,
        parts(&waiting.offered),
        span(waiting.expires_at.since(now)),
        waiting.code
    )
}

fn question(asked: &NodeQuestion) -> String {
    let id = short(asked.id);
    let argv: Vec<String> = asked
        .question
        .argv
        .iter()
        .map(|arg| format!("{arg:?}"))
        .collect();
    let env = match asked.question.env.is_empty() {
        true => String::new(),
        false => format!(", with {}", asked.question.env.join(", ")),
    };
    format!(
        "{} {id} {} wants to run {} ({} in {}{env}): abide nodes answer {id} allow, or deny",
        styled(BUSY, "question"),
        asked.node,
        clean(&argv.join(" ")),
        clean(&asked.question.program),
        clean(&asked.question.cwd),
    )
}

/// Prints everything about one node.
pub(super) async fn show(link: &DaemonLink, node: String, common: &Common) -> Result<u8, Failure> {
    let Some(node) = link.ask_or_print(&GetNode { node }, common).await? else {
        return Ok(0);
    };
    let now = Clock::system().now();
    let machine = &node.machine;
    let mut lines = vec![
        format!("{} {}", styled(HEAD, &node.name), node.state),
        format!("id: {}", node.id),
        format!("key: {}", node.fingerprint),
        format!(
            "machine: {} {}/{}, abide {}",
            clean(&machine.host),
            clean(&machine.platform),
            clean(&machine.arch),
            clean(&machine.version)
        ),
        format!(
            "paired: {} ago, by {}",
            age(node.paired_at, now),
            clean(&node.approved_by)
        ),
    ];
    if let Some(seen) = node.seen_at.filter(|_| node.state != "connected") {
        lines.push(format!("last seen: {} ago", age(seen, now)));
    }
    for (what, offer) in [
        ("offers", &node.offered),
        ("approved", &node.approved),
        ("denied", &node.denied),
        ("may be called now", &node.callable),
    ] {
        if !offer.is_empty() {
            lines.push(format!("{what}: {}", parts(offer)));
        }
    }
    if !node.pending.is_empty() {
        lines.push(offers_more(&node));
    }
    for (program, path) in &node.programs {
        lines.push(format!("program {}: {}", clean(program), clean(path)));
    }
    for line in lines {
        print::folded(&line)?;
    }
    Ok(0)
}
