//! The daemon's metrics for Prometheus. They are global to the process, like the log: code updates
//! them here, and `GET /metrics` reads them. No label has values that clients can choose.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use super::live::{LaneGauges, LiveGauges};

use super::live::LiveSeries;
use crate::kernel::run::recover::Loss;
use crate::kernel::run::{Outcome, Usage};
use crate::kernel::time::Timestamp;

/// The HTTP content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of this process.
pub fn metrics() -> &'static Metrics {
    static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &METRICS
}

/// How runs lose their executor: by a kill of the daemon, by a drain that did not wait for them, by
/// a fault in this process.
const CAUSES: [&str; 3] = ["killed", "drained", "executor"];

/// The metrics of this process, with their registry.
pub struct Metrics {
    registry: Registry,
    started: Gauge<f64, AtomicU64>,
    live: LiveSeries,
    recovered: Family<RecoveryLabels, Counter>,
    ended: Family<EndedLabels, Counter>,
    lived: Histogram,
    commits: Histogram,
    commands: Histogram,
    calls: Family<CallLabels, Counter>,
    took: Family<MethodLabels, Histogram>,
    connections: Gauge,
    waits: Gauge,
    chats: Family<ChatLabels, Histogram>,
    tokens: Family<TokenLabels, Histogram>,
    spent: Family<ProviderLabels, Counter<f64, AtomicU64>>,
    webhooks: Family<AttemptLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecoveryLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndedLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChatLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: String,
    /// Empty for a successful call.
    error_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: String,
    gen_ai_token_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    gen_ai_provider_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
}

/// How an attempt to deliver an event to a webhook ends; `dead` is counted besides `failed`, for the
/// last one.
const ATTEMPTS: [&str; 3] = ["delivered", "failed", "dead"];

/// OpenTelemetry's name for a model call.
const CHAT: &str = "chat";

/// Increments a gauge until it is dropped.
pub struct GaugeGuard(&'static Gauge);

impl GaugeGuard {
    fn new(gauge: &'static Gauge) -> Self {
        gauge.inc();
        GaugeGuard(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    fn new() -> Self {
        // From 100 µs to 1.6 s; for runs, from 10 ms to 3 h.
        let quick = || Histogram::new(exponential_buckets(0.0001, 2.0, 15));
        let long = Histogram::new(exponential_buckets(0.01, 4.0, 11));
        let metrics = Metrics {
            registry: Registry::default(),
            started: Gauge::default(),
            live: LiveSeries::default(),
            recovered: Family::default(),
            ended: Family::default(),
            lived: long,
            commits: quick(),
            commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            calls: Family::default(),
            took: Family::new_with_constructor(quick),
            connections: Gauge::default(),
            waits: Gauge::default(),
            // The boundaries that OpenTelemetry's conventions specify.
            chats: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.01, 2.0, 14))
            }),
            tokens: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1.0, 4.0, 14))
            }),
            spent: Family::default(),
            webhooks: Family::default(),
        };
        // Every series exists from the start: one that appears with its first count hides that
        // count from a rate.
        for outcome in Outcome::ALL {
            let _ = metrics.ended.get_or_create(&EndedLabels {
                outcome: outcome.as_str(),
            });
        }
        for cause in CAUSES {
            let _ = metrics.recovered.get_or_create(&RecoveryLabels { cause });
        }
        for result in ATTEMPTS {
            let _ = metrics.webhooks.get_or_create(&AttemptLabels { result });
        }
        metrics.listed()
    }

    fn listed(mut self) -> Self {
        let list = &mut self.registry;
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        list.register("abide_build", "The running version", build);
        list.register(
            "process_start_time_seconds",
            "Start time of the daemon, seconds since 1970",
            self.started.clone(),
        );
        self.live.list(list);
        list.register(
            "abide_recoveries",
            "Runs that were recovered, by how they had lost their executor",
            self.recovered.clone(),
        );
        // Counters get the suffix `_total`, so this does not collide with the gauge of open runs.
        list.register("abide_runs", "Runs that have ended", self.ended.clone());
        list.register(
            "abide_run_duration_seconds",
            "Duration of a run from acceptance to end",
            self.lived.clone(),
        );
        list.register(
            "abide_store_commit_seconds",
            "Duration of a commit, including its commands",
            self.commits.clone(),
        );
        list.register(
            "abide_store_batch_commands",
            "Number of commands in a commit",
            self.commands.clone(),
        );
        list.register(
            "abide_rpc_requests",
            "Calls by method and result: ok, or the kind of the error",
            self.calls.clone(),
        );
        list.register(
            "abide_rpc_duration_seconds",
            "Duration of a call from reading it to its answer",
            self.took.clone(),
        );
        list.register(
            "abide_connections",
            "Open connections",
            self.connections.clone(),
        );
        list.register(
            "abide_waits_open",
            "Open calls of agent.wait",
            self.waits.clone(),
        );
        list.register(
            "gen_ai_client_operation_duration_seconds",
            "Duration of a model call until its answer or failure, retries included",
            self.chats.clone(),
        );
        list.register(
            "gen_ai_client_token_usage",
            "Tokens of a model call, by type: input or output",
            self.tokens.clone(),
        );
        list.register(
            "abide_model_cost",
            "Cost of model calls, in the currency of the prices",
            self.spent.clone(),
        );
        list.register(
            "abide_webhook_attempts",
            "Attempts to deliver events to webhooks, by result; dead: the last one failed",
            self.webhooks.clone(),
        );
        self
    }

    /// Records that `model` has answered, or failed with an error of this kind.
    pub fn model_asked(&self, model: &str, used: Usage, error: Option<&str>, took: Duration) {
        let (provider, _) = model.split_once('/').unwrap_or((model, ""));
        let chat = ChatLabels {
            gen_ai_operation_name: CHAT,
            gen_ai_provider_name: provider.to_owned(),
            error_type: error.unwrap_or_default().to_owned(),
        };
        self.chats.get_or_create(&chat).observe(took.as_secs_f64());
        for (gen_ai_token_type, count) in
            [("input", used.input_tokens), ("output", used.output_tokens)]
        {
            // Not every provider counts tokens.
            if count > 0 {
                let tokens = TokenLabels {
                    gen_ai_operation_name: CHAT,
                    gen_ai_provider_name: provider.to_owned(),
                    gen_ai_token_type,
                };
                self.tokens.get_or_create(&tokens).observe(count as f64);
            }
        }
        if used.cost_micros > 0 {
            let provider = ProviderLabels {
                gen_ai_provider_name: provider.to_owned(),
            };
            let spent = self.spent.get_or_create(&provider);
            spent.inc_by(used.cost_micros as f64 / 1e6);
        }
    }

    /// Records the start time of the daemon.
    pub fn started(&self, at: Timestamp) {
        self.started.set(at.0 as f64 / 1000.0);
    }

    /// Records the end of a run, `lived` after it was accepted.
    pub fn run_ended(&self, outcome: Outcome, lived: Duration) {
        let outcome = outcome.as_str();
        self.ended.get_or_create(&EndedLabels { outcome }).inc();
        self.lived.observe(lived.as_secs_f64());
    }

    /// Records that a run was recovered after this loss.
    pub fn recovered(&self, loss: Loss) {
        let [killed, drained, executor] = CAUSES;
        let cause = match loss {
            Loss::Killed => killed,
            Loss::Drained | Loss::CutOff => drained,
            Loss::Executor => executor,
        };
        self.recovered
            .get_or_create(&RecoveryLabels { cause })
            .inc();
    }

    /// Records an attempt to deliver an event to a webhook, and whether the event was given up with
    /// it.
    pub fn webhook_attempt(&self, is_delivered: bool, is_given_up: bool) {
        let [delivered, failed, dead] = ATTEMPTS;
        let result = if is_delivered { delivered } else { failed };
        self.webhooks.get_or_create(&AttemptLabels { result }).inc();
        if is_given_up {
            let labels = AttemptLabels { result: dead };
            self.webhooks.get_or_create(&labels).inc();
        }
    }

    /// Records a commit of `commands` commands.
    pub fn committed(&self, commands: usize, took: Duration) {
        self.commits.observe(took.as_secs_f64());
        self.commands.observe(commands as f64);
    }

    /// Records an answered call; `kind` is `ok` or that of its error.
    pub fn answered(&self, method: &'static str, kind: &'static str, took: Duration) {
        self.refused(method, kind);
        let took_by = self.took.get_or_create(&MethodLabels { method });
        took_by.observe(took.as_secs_f64());
    }

    /// Records a call that was refused before its method was executed.
    pub fn refused(&self, method: &'static str, kind: &'static str) {
        self.calls.get_or_create(&CallLabels { method, kind }).inc();
    }

    /// Counts an open connection until the result is dropped.
    pub fn connection(&'static self) -> GaugeGuard {
        GaugeGuard::new(&self.connections)
    }

    /// Counts an open wait until the result is dropped.
    pub fn wait(&'static self) -> GaugeGuard {
        GaugeGuard::new(&self.waits)
    }

    /// All metrics in the Prometheus text format.
    pub fn text(&self, live: &LiveGauges) -> Result<String, fmt::Error> {
        self.live.set(live);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
