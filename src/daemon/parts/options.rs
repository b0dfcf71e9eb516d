//! Translates the settings into the options of each part, for the start and for a reload.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, HookTables, OpenAiOptions};
use crate::contract::commit::{self, Thresholds};
use crate::gateway;
use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::policy::{Policy, Visibility};
use crate::kernel::run::budget::{self, Budget};
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::RecoveryPolicy;
use crate::kernel::secret::{GivenValue, Reference};
use crate::registry::{self, LaneCaps, SkillEnvironment};
use crate::runner;
use crate::store::BackupPolicy;

/// Maximum number of announces that one client-owned session may leave unacknowledged.
const MAX_UNACKED: u32 = 1000;
/// Maximum number of undelivered announces of one agent-owned session.
const MAX_UNDELIVERED: u32 = 50;

/// The settings that store commands apply.
pub fn of_store(config: &Config) -> commit::CommandSettings {
    commit::CommandSettings {
        limits: SpawnLimits {
            max_depth: config.max_spawn_depth,
            max_children: config.max_client_children,
            max_run_children: config.max_children,
            max_total: config.max_total_children,
            max_unacked: MAX_UNACKED,
            max_undelivered: MAX_UNDELIVERED,
            max_queued_turns: config.max_queued_turns,
        },
        recovery: RecoveryPolicy {
            max_age_ms: millis(config.max_age),
            max_attempts: config.max_attempts,
        },
        policy: policy(config),
        max_ping_pong: config.max_ping_pong,
        breaker: BreakerPolicy {
            failures: config.breaker_failures,
            window_ms: millis(config.breaker_window),
            cool_off_ms: millis(config.breaker_cool_off),
        },
        tree_budget: Budget {
            tokens: config.budget_tree_tokens.map(u64::from),
            cost_micros: config.budget_tree_cost.map(budget::micros),
        },
        audit_rows: config.audit_rows,
        max_memories: config.max_memories,
        thresholds: Thresholds {
            cost_micros: micros(config.alert_cost),
            failed_percent: (config.alert_failures > 0).then_some(config.alert_failures),
        },
    }
}

/// The registry's settings.
pub fn of_registry(config: &Config, drain_timeout: Duration) -> registry::RegistryOptions {
    registry::RegistryOptions {
        lanes: LaneCaps {
            main: config.lane_main,
            subagent: config.lane_subagent,
            nested: config.lane_nested,
            global: config.lane_global,
        },
        policy: policy(config),
        run_timeout_ms: config.run_timeout.map(millis),
        delegation_timeout_ms: millis(config.delegation_timeout),
        memory_budget: u64::from(config.memory_budget),
        approval_ms: millis(config.approval_timeout),
        drain_timeout,
        compare_each: config.compare_each,
        touch_each: config.touch_each,
        max_age_ms: millis(config.max_age),
        retention: registry::Retention {
            archive_after_ms: config.archive_after.map(millis),
            runs_ms: config.retain_runs.map(millis),
            events_ms: config.retain_events.map(millis),
            keys_ms: millis(config.retain_keys),
            sweep_each: config.sweep_each,
        },
        backups: BackupPolicy {
            every: config.backup_every,
            folder: config.backup_dir.clone(),
            keep: config.backup_keep,
        },
        events_behind: i64::from(config.max_events_behind),
        skills: skill_environments(config),
    }
}

/// The runner's settings.
pub fn of_runner(config: &Config) -> runner::RunnerOptions {
    runner::RunnerOptions {
        pace: config.pace,
        model_timeout: config.model_timeout,
        tool_timeout: config.tool_timeout,
        max_spawn_depth: config.max_spawn_depth,
        fallback_models: config.fallback_models.clone(),
        prices: config.named.prices.clone(),
        window: u64::from(config.window),
        overflow: config.overflow,
    }
}

/// The host names and origins that clients may use.
pub fn names(config: &Config) -> gateway::Names {
    gateway::Names {
        hosts: config.allowed_hosts.clone(),
        origins: config.allowed_origins.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
    }
}

/// What clients of the OpenAI-compatible API see, and what their disconnecting does.
pub fn openai(config: &Config) -> OpenAiOptions {
    OpenAiOptions {
        tool_calls: config.openai_tool_calls,
        on_disconnect: config.openai_on_disconnect,
    }
}

/// The inbound webhooks, by name.
pub fn hooks(config: &Config) -> HookTables {
    Arc::new(config.named.hooks.clone())
}

/// The environment that the settings add to runs with a skill, by the skill's name or key.
pub fn skill_environments(config: &Config) -> BTreeMap<String, SkillEnvironment> {
    let entries = config.named.skills.iter();
    entries
        .map(|(name, entry)| {
            let key = entry.api_key_env.clone().map(Reference::Variable);
            let environment = SkillEnvironment {
                env: entry.env.clone(),
                api_key: entry.api_key.clone().or(key.map(GivenValue::From)),
            };
            (name.clone(), environment)
        })
        .filter(|(_, one)| *one != SkillEnvironment::default())
        .collect()
}

/// The access policy between sessions.
fn policy(config: &Config) -> Policy {
    let reach = |right: Option<Visibility>| right.unwrap_or(config.visibility);
    Policy {
        reach: [config.right_send, config.right_list, config.right_history].map(reach),
        agent_to_agent: config.agent_to_agent.clone(),
    }
}

/// An amount of money in millionths; 0 becomes `None`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the setting takes no negative amount, and a float that is too large saturates"
)]
fn micros(amount: f64) -> Option<u64> {
    (amount > 0.0).then_some((amount * 1e6).ceil() as u64)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
