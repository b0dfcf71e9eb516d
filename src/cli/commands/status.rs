//! `abide status`: shows the daemon and its state.

use std::path::Path;

use clap::Args;

use crate::cli::commands::service;
use crate::cli::common::failure::Failure;
use crate::cli::common::{Common, skew};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{age, clean, short, size, span, wrap};
use crate::clock::Clock;
use crate::wire::gateway::{GetStatus, ModelProvider, Status as Answer};

/// Show the daemon and its state
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {}

impl StatusArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let Some(status) = link.ask_or_print(&GetStatus {}, common).await? else {
            return Ok(0);
        };
        print::folded(&show(&status, &common.place.state_dir()?))?;
        if let Some((message, todo)) = skew::between(&status, "") {
            print::note(&format!("{message}; {todo}"));
        }
        for finding in service::findings(common) {
            if let Some(fix) = finding.fix {
                print::note(&format!("{}; {fix}", finding.message));
            }
        }
        Ok(0)
    }
}

fn show(status: &Answer, state: &Path) -> String {
    let mut lines = vec![
        format!(
            "abide {} is {}: process {}, up {}",
            status.version,
            status.phase,
            status.pid,
            span(status.uptime_ms)
        ),
        format!("  address  {}", status.url),
    ];
    lines.extend(
        status
            .socket
            .iter()
            .map(|path| format!("  socket   {path}")),
    );
    lines.push(format!("  state    {}", state.display()));
    lines.push(format!(
        "  agent    {} with {}",
        status.default_agent, status.model
    ));
    lines.extend(provider_lines(status));
    lines.extend(work_lines(status));
    lines.extend(program_line(status));
    if let Some(backup) = &status.backup {
        let age = age(backup.made_at, Clock::system().now());
        lines.push(format!(
            "  backup   {age} old, {}: {}",
            size(backup.bytes),
            backup.path
        ));
    }
    if let Some(salvaged) = &status.salvaged {
        let least = if salvaged.more { "at least " } else { "" };
        lines.push(format!(
            "  damage   found at {}: {} rows kept, {least}{} lost; see: abide doctor",
            salvaged.at, salvaged.kept, salvaged.lost
        ));
        lines.push(format!("           the old file is {}", salvaged.set_aside));
    }
    for notice in &status.notices {
        let notice = wrap(notice, print::columns() - 11).join("\n           ");
        lines.push(format!("  notice   {notice}"));
    }
    clean(&lines.join("\n"))
}

/// Providers that cannot be used, and what was learned about the others.
fn provider_lines(status: &Answer) -> Vec<String> {
    let mut lines = Vec::new();
    for provider in &status.providers {
        if let Some(problem) = &provider.problem {
            lines.push(format!(
                "  provider {} is not usable: {problem}",
                provider.name
            ));
        }
    }
    let now = Clock::system().now();
    for provider in &status.providers {
        let Some(health) = &provider.health else {
            continue;
        };
        let why = health.reason.as_deref().unwrap_or("reason unknown");
        let state = match (&*health.state, health.until) {
            ("ok", _) => continue,
            ("paused", Some(until)) => {
                format!("takes no requests, retried in {}", span(until.since(now)))
            }
            (state, _) => state.to_owned(),
        };
        let text = format!("provider {} {state}: {why}", provider.name);
        lines.push(format!(
            "  {}",
            wrap(&text, print::columns() - 11).join("\n           ")
        ));
    }
    let learned = |provider: &ModelProvider| {
        let name = provider.name.clone();
        let lines = provider.learned.clone().into_iter();
        lines.map(move |line| format!("  learned  {name}/{line}"))
    };
    lines.extend(status.providers.iter().flat_map(learned));
    lines
}

/// The programs that a stop of the daemon does not end.
fn program_line(status: &Answer) -> Option<String> {
    let mut runs: Vec<String> = status
        .kept_programs
        .iter()
        .map(|one| short(one.run_id))
        .collect();
    let count = runs.len();
    runs.dedup();
    let what = match count {
        0 => return None,
        1 => "1 goes on if the daemon stops, until its limits".to_owned(),
        _ => format!("{count} go on if the daemon stops, until their limits"),
    };
    let text = format!("{what}; of runs {}", runs.join(", "));
    let text = wrap(&text, print::columns() - 11).join("\n           ");
    Some(format!("  programs {text}"))
}

/// Open runs, and what waits for the user.
fn work_lines(status: &Answer) -> Vec<String> {
    let counts = status.counts;
    let runs: Vec<String> = [
        (counts.running, "running"),
        (counts.queued, "queued"),
        (counts.paused, "paused"),
        (counts.settling, "settling"),
    ]
    .iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, state)| format!("{count} {state}"))
    .collect();
    let runs = match runs.is_empty() {
        true => "none open".to_owned(),
        false => runs.join(", "),
    };
    let mut lines = vec![format!("  runs     {runs}")];
    if counts.pending_announces > 0 {
        let waiting = counts.pending_announces;
        lines.push(format!(
            "  results  {waiting} not delivered yet; see: abide inbox --undelivered"
        ));
    }
    let waits = |count: u64, one: &str, more: &str, see: &str| {
        let what = if count == 1 { one } else { more };
        (count > 0).then(|| format!("  waiting  {count} {what}: {see}"))
    };
    lines.extend(waits(
        counts.approvals,
        "tool call needs your approval",
        "tool calls need your approval",
        "abide approvals",
    ));
    lines.extend(waits(
        counts.questions,
        "question needs your answer",
        "questions need your answer",
        "abide answer",
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_there_is_to_know_stands_in_one_column() {
        let status = |running: u64, told: u64| {
            let status = json!({
                "version": "1.2.3", "protocol": 1, "pid": 7, "phase": "ready", "storeId": "s",
                "bootId": "01936f0e-0000-7000-8000-000000000001", "uptimeMs": 61_000,
                "startedAt": "2026-11-30T00:53:20.123Z", "url": "http://127.0.0.1:7777",
                "socket": "/s/abide.sock", "defaultAgent": "build", "model": "offline/search",
                "counts": {
                    "queued": 2 * running, "running": running, "paused": 0, "settling": 0,
                    "pendingAnnounces": told,
                },
            });
            show(&serde_json::from_value(status).unwrap(), Path::new("/s"))
        };
        insta::assert_snapshot!(status(0, 0), @"
        abide 1.2.3 is ready: process 7, up 61s
          address  http://127.0.0.1:7777
          socket   /s/abide.sock
          state    /s
          agent    build with offline/search
          runs     none open
        ");
        insta::assert_snapshot!(status(1, 3), @"
        abide 1.2.3 is ready: process 7, up 61s
          address  http://127.0.0.1:7777
          socket   /s/abide.sock
          state    /s
          agent    build with offline/search
          runs     1 running, 2 queued
          results  3 not delivered yet; see: abide inbox --undelivered
        ");
    }
}
