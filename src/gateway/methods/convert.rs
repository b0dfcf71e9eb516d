//! Conversion of registry results to wire types.

use std::borrow::Cow;

use crate::contract::allow::AllowList;
use crate::contract::catalog::AgentSummary;
use crate::kernel::delegation::Delegated;
use crate::kernel::delegation::announce::RESULT_LIMIT;
use crate::kernel::ids::{AgentId, RunId};
use crate::kernel::policy::approval::Approval;
use crate::kernel::policy::overlay::EnvName;
use crate::kernel::question::Question;
use crate::kernel::run::budget::{Budget, Spent};
use crate::kernel::run::step::{Step, StepKind};
use crate::kernel::run::{PauseReason, RunState};
use crate::kernel::text;
use crate::registry::{AwaitedRun, RunDetail, SessionView};
use crate::wire::{agents, runs, shapes};

/// Maximum number of bytes of a result in a list.
pub(crate) const RESULT_PREVIEW: usize = 1024;
/// Maximum number of bytes of all results in one `agent.wait`; each run gets at least its preview.
const WAIT_TEXT: usize = 4 * 1024 * 1024;

/// A run with its result truncated to `most` bytes.
pub(crate) fn run(detail: RunDetail, most: usize) -> shapes::Run {
    let RunDetail {
        run,
        step,
        announce,
        queue_blocked: held_up,
        questions,
        approvals,
        todo,
        reviews,
        missing_env: lacks,
        undelivered_reason: held,
        elapsed_ms,
        deadline_at,
        provider_wait,
    } = detail;
    let mut result = run.result;
    let mut result_truncated = false;
    if let Some(text) = &mut result
        && text.len() > most
    {
        text.truncate(text::prefix(text, most).len());
        result_truncated = true;
    }
    let pause = run.state.pause();
    shapes::Run {
        run_id: run.id,
        session_key: run.session_key,
        parent_run_id: run.parent_run,
        parent: run.requester.map(|requester| requester.key),
        root_run_id: run.root_run,
        agent: run.agent,
        model: run.model,
        thinking: run.thinking.map(|level| level.as_str().into()),
        depth: run.depth,
        label: run.label,
        title: run.title,
        state: run.state.as_str().into(),
        pause_reason: pause.map(|reason| reason.as_str().into()),
        provider_wait: provider_wait.and_then(waits_for_provider),
        step: step.map(|(seq, what)| shapes::CurrentStep { seq, what }),
        tool_calls: run.tool_calls,
        loops: run.loops,
        last_activity_at: run.last_activity_at,
        created_at: run.created_at,
        started_at: run.started_at,
        ended_at: run.ended_at,
        elapsed_ms,
        deadline_at,
        result,
        result_truncated,
        error: run.error,
        delegated: run.delegated.map(delegated_call),
        cancel: run.cancel,
        retry_of: run.retry_of,
        usage: run.usage,
        budget: run.budget.map(|budget| budget_use(budget, run.spent)),
        warnings: run.warnings,
        meta: run.meta,
        pins: run.pins,
        env: environment(run.env, &lacks),
        needs_review: pause == Some(PauseReason::Review),
        held_up,
        questions: questions.into_iter().map(open_question).collect(),
        approvals: approvals.into_iter().map(open_approval).collect(),
        todo: todo.map(todo_items).unwrap_or_default(),
        reviews: reviews.into_iter().map(open_review).collect(),
        trace_id: run.trace_id,
        announce: shapes::AnnounceProgress {
            policy: run.announce.as_str().into(),
            state: announce.as_str().into(),
            held,
        },
    }
}

fn waits_for_provider(step: Step) -> Option<shapes::ProviderWait> {
    Some(shapes::ProviderWait {
        since: step.started_at,
        until: step.waits?.until?,
        reason: step.error.unwrap_or_default(),
    })
}

fn delegated_call(of: Delegated) -> shapes::DelegatedCall {
    shapes::DelegatedCall {
        mode: of.mode.as_str().into(),
        step: of.step,
        tool_call_id: of.call,
        agent_name: of.agent_name,
    }
}

/// Names of a run's environment, with the reasons for those that have no value.
fn environment(names: Vec<EnvName>, lacks: &[(String, String)]) -> Vec<shapes::EnvName> {
    let missing = |name: &str| lacks.iter().find(|(lacking, _)| lacking == name);
    let names = names.into_iter();
    names
        .map(|one| shapes::EnvName {
            missing: missing(&one.name).map(|(_, why)| why.clone()),
            name: one.name,
            from: one.from.into(),
        })
        .collect()
}

fn open_question(question: Question) -> shapes::OpenQuestion {
    shapes::OpenQuestion {
        id: question.id,
        text: question.text,
        choices: question.choices,
        asked_at: question.asked_at,
        expires_at: question.expires_at,
    }
}

/// Entries of the list that the `todo` tool stored; empty if its format is unknown.
fn todo_items(mut list: serde_json::Value) -> Vec<shapes::TodoItem> {
    serde_json::from_value(list["items"].take()).unwrap_or_default()
}

fn open_approval(approval: Approval) -> shapes::OpenApproval {
    shapes::OpenApproval {
        id: approval.id,
        tool: approval.tool,
        arguments: approval.arguments,
        why: approval.consent.why,
        asked_at: approval.asked_at,
        expires_at: approval.expires_at,
    }
}

fn open_review(step: Step) -> shapes::OpenReview {
    shapes::OpenReview {
        step_id: step.id,
        seq: step.seq,
        tool: step.tool.unwrap_or_else(|| step.kind.as_str().to_owned()),
        arguments: step.input,
        summary: step.params_summary,
        started_at: step.started_at,
        attempts: step.attempts,
        reason: step.error,
    }
}

/// The runs of a wait; long results are truncated to keep the response within its limit.
pub(crate) fn waited(entries: Vec<AwaitedRun>) -> Vec<runs::WaitedRun> {
    let mut left = WAIT_TEXT;
    let entries = entries.into_iter();
    entries
        .map(|entry| match entry {
            AwaitedRun::NotFound(run_id) => runs::WaitedRun::Unknown {
                status: "not_found".into(),
                run_id,
            },
            AwaitedRun::Expired(run_id) => runs::WaitedRun::Unknown {
                status: "expired".into(),
                run_id,
            },
            AwaitedRun::Run(detail) => {
                let status = match detail.run.state {
                    RunState::Ended(outcome) => outcome.as_str(),
                    _ => "pending",
                };
                let run = run(*detail, left.clamp(RESULT_PREVIEW, RESULT_LIMIT));
                left = left.saturating_sub(run.result.as_ref().map_or(0, String::len));
                runs::WaitedRun::Known {
                    status: status.into(),
                    run: Box::new(run),
                }
            }
        })
        .collect()
}

fn budget_use(budget: Budget, spent: Spent) -> crate::wire::budget::BudgetUse {
    crate::wire::budget::BudgetUse {
        tokens: budget.tokens,
        cost_micros: budget.cost_micros,
        used_tokens: spent.tokens,
        used_cost_micros: spent.cost_micros,
    }
}

pub(crate) fn session(view: SessionView) -> shapes::Session {
    let SessionView {
        session,
        activity,
        stop,
    } = view;
    shapes::Session {
        key: session.key,
        id: session.id,
        label: session.label,
        title: session.title,
        agent: session.agent,
        is_sub_session: session.parent.is_some(),
        parent: session.parent_key,
        depth: session.depth,
        owner: session.owner.as_str().into(),
        model: session.model,
        thinking: session.thinking.map(|level| level.as_str().into()),
        cwd: session.cwd,
        mode: session.mode.as_str().into(),
        cleanup: session.cleanup.as_str().into(),
        generation: session.generation,
        archived_at: session.archived_at,
        fork_of: session.fork.map(|fork| fork.of),
        messages: session.messages,
        created_at: session.created_at,
        updated_at: session.updated_at,
        state: activity.as_str().into(),
        stopped: stop.map(|stop| shapes::Stopped {
            by: if stop.by_person { "person" } else { "agent" }.into(),
            at: stop.at,
        }),
        revision: session.ver,
        usage: session.usage,
    }
}

pub(crate) fn step((step, child): (Step, Option<RunId>)) -> shapes::Step {
    let is_of_model = matches!(step.kind, StepKind::Model | StepKind::Compaction);
    // What a repetition of an outside agent's call would do is not known, unless it is made here.
    let is_theirs = step.is_outside_call() && !step.effect.is_once();
    let effect = (!is_of_model && !is_theirs).then(|| Cow::Borrowed(step.effect.shown()));
    let call = step.shown_call();
    let (model, usage) = match step.used {
        Some(used) => (Some(used.model), Some(used.usage)),
        None => (None, None),
    };
    shapes::Step {
        step_id: step.id,
        seq: step.seq,
        kind: step.kind.as_str().into(),
        effect,
        tool_call_id: call,
        tool: step.tool,
        state: step.state.as_str().into(),
        params_summary: step.params_summary,
        result_summary: step.result_summary,
        started_at: step.started_at,
        ended_at: step.ended_at,
        child_run_id: child,
        waits_for: step.waits.map(|wait| wait.kind.as_str().into()),
        waits_until: step.waits.and_then(|wait| wait.until),
        attempts: step.attempts,
        error: step.error,
        model,
        usage,
    }
}

/// The agent without its system prompt.
pub(crate) fn agent(agent: AgentSummary) -> agents::Agent {
    let names = |ids: &[AgentId]| ids.iter().map(ToString::to_string).collect();
    agents::Agent {
        name: agent.id.into(),
        title: agent.title,
        description: agent.description,
        mode: agent.mode.as_str().to_owned(),
        active: agent.active,
        model: agent.model,
        program: agent.program,
        thinking: agent.thinking.map(|level| level.as_str().to_owned()),
        tools: agent.tools,
        skills: agent.skills,
        hidden: agent.hidden,
        source: agent.source,
        file: agent.file,
        revision: agent.revision,
        max_loops: agent.max_loops,
        run_timeout_ms: agent.run_timeout_ms,
        allow_agents: match &agent.allow {
            AllowList::Unset => None,
            AllowList::Any => Some(vec!["*".to_owned()]),
            AllowList::Only(allowed) => Some(names(allowed)),
        },
        linked_agents: names(&agent.linked),
        max_spawn_depth: agent.max_spawn_depth,
        system_prompt: None,
        warnings: agent.warnings,
        health: agents::Health {
            ok: agent.problems.is_empty() && agent.missing.is_empty(),
            problems: [agent.problems, agent.missing].concat(),
        },
        shadowed: agent.shadowed,
    }
}
