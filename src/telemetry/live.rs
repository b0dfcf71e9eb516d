//! Metrics whose values are read when they are requested: live work, the store, the process.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::process;

/// The values of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveGauges {
    /// Open runs by state.
    pub states: Vec<(&'static str, u64)>,
    /// Paused runs by what they wait for.
    pub paused: Vec<(&'static str, u64)>,
    /// The lanes.
    pub lanes: Vec<LaneGauges>,
    /// Announces that wait to be delivered.
    pub pending_announces: u64,
    /// Milliseconds since the oldest of them was created; 0 if there is none.
    pub oldest_announce_ms: u64,
    /// Announces that could not be delivered.
    pub undelivered_announces: u64,
    /// Milliseconds since the oldest event that a webhook has read and not finished; 0 if there is
    /// none.
    pub webhook_lag_ms: u64,
    /// Dead letters of webhooks.
    pub dead_letters: u64,
    /// Size of the store's database file in bytes.
    pub store_bytes: u64,
    /// Size of the store's write-ahead log in bytes.
    pub log_bytes: u64,
    /// When the newest backup was made, in milliseconds since 1970; 0 if there is none.
    pub newest_backup_ms: u64,
    /// Free bytes on the disk of the state folder, if known.
    pub free_bytes: Option<u64>,
    /// Watchers that check their folders at intervals, because file events are unavailable.
    pub polling_watchers: u64,
    /// Programs of runs that go on while no daemon runs.
    pub keepers: u64,
}

/// The use of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneGauges {
    /// Its name.
    pub name: &'static str,
    /// Runs that hold a slot.
    pub running: u64,
    /// Runs that wait for one.
    pub queued: u64,
    /// Its slots.
    pub limit: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: &'static str,
}

/// Seconds, and other numbers that are not whole.
type Decimal = Gauge<f64, AtomicU64>;

/// The registered series of [`LiveGauges`].
#[derive(Default)]
pub(super) struct LiveSeries {
    states: Family<StateLabels, Gauge>,
    paused: Family<ReasonLabels, Gauge>,
    lane_running: Family<LaneLabels, Gauge>,
    lane_queued: Family<LaneLabels, Gauge>,
    lane_limit: Family<LaneLabels, Gauge>,
    pending_announces: Gauge,
    oldest_announce: Decimal,
    undelivered_announces: Gauge,
    webhook_lag: Decimal,
    dead_letters: Gauge,
    store_bytes: Gauge,
    log_bytes: Gauge,
    newest_backup: Decimal,
    free_bytes: Gauge,
    polling_watchers: Gauge,
    keepers: Gauge,
    resident: Gauge,
    processor: Counter<f64, AtomicU64>,
    open_files: Gauge,
    file_limit: Gauge,
}

impl LiveSeries {
    /// Adds the series to the registry.
    pub(super) fn list(&self, list: &mut Registry) {
        list.register("abide_runs", "Open runs by state", self.states.clone());
        list.register(
            "abide_runs_paused",
            "Paused runs by what they wait for",
            self.paused.clone(),
        );
        list.register(
            "abide_lane_running",
            "Runs that hold a slot of the lane",
            self.lane_running.clone(),
        );
        list.register(
            "abide_queue_depth",
            "Queued runs by lane",
            self.lane_queued.clone(),
        );
        list.register(
            "abide_lane_limit",
            "Slots of the lane",
            self.lane_limit.clone(),
        );
        list.register(
            "abide_announces_pending",
            "Announces that wait to be delivered",
            self.pending_announces.clone(),
        );
        list.register(
            "abide_announce_oldest_seconds",
            "Age of the oldest announce that waits to be delivered; 0 if none waits",
            self.oldest_announce.clone(),
        );
        list.register(
            "abide_announces_undelivered",
            "Announces that could not be delivered",
            self.undelivered_announces.clone(),
        );
        list.register(
            "abide_webhook_lag_seconds",
            "Age of the oldest event that a webhook has read and not delivered; 0 if there is none",
            self.webhook_lag.clone(),
        );
        list.register(
            "abide_webhook_dead_letters",
            "Events that webhooks have given up, until they are replayed or dropped",
            self.dead_letters.clone(),
        );
        list.register(
            "abide_store_bytes",
            "Size of the database file",
            self.store_bytes.clone(),
        );
        list.register(
            "abide_store_wal_bytes",
            "Size of the write-ahead file",
            self.log_bytes.clone(),
        );
        list.register(
            "abide_backup_timestamp_seconds",
            "When the newest backup was made, seconds since 1970; 0 if there is none",
            self.newest_backup.clone(),
        );
        list.register(
            "abide_disk_free_bytes",
            "Free space on the disk of the state folder; -1 if it is unknown",
            self.free_bytes.clone(),
        );
        list.register(
            "abide_watchers_polling",
            "Watchers that check folders at intervals, because file events are unavailable",
            self.polling_watchers.clone(),
        );
        list.register(
            "abide_keepers",
            "Programs of runs that go on while no daemon runs",
            self.keepers.clone(),
        );
        self.list_process(list);
    }

    /// The names that Prometheus' own client libraries use for a process.
    fn list_process(&self, list: &mut Registry) {
        list.register(
            "process_resident_memory_bytes",
            "Resident memory of the daemon; 0 where it is unknown",
            self.resident.clone(),
        );
        list.register(
            "process_cpu_seconds",
            "Processor time of the daemon",
            self.processor.clone(),
        );
        list.register(
            "process_open_fds",
            "Open files of the daemon; 0 where it is unknown",
            self.open_files.clone(),
        );
        list.register(
            "process_max_fds",
            "The daemon's limit on open files; 0 if there is none",
            self.file_limit.clone(),
        );
    }

    /// Sets all series.
    pub(super) fn set(&self, live: &LiveGauges) {
        for (state, count) in &live.states {
            let labels = StateLabels { state };
            self.states.get_or_create(&labels).set(whole(*count));
        }
        for (reason, count) in &live.paused {
            let labels = ReasonLabels { reason };
            self.paused.get_or_create(&labels).set(whole(*count));
        }
        for lane in &live.lanes {
            let labels = LaneLabels { lane: lane.name };
            for (series, count) in [
                (&self.lane_running, lane.running),
                (&self.lane_queued, lane.queued),
                (&self.lane_limit, lane.limit),
            ] {
                series.get_or_create(&labels).set(whole(count));
            }
        }
        self.pending_announces.set(whole(live.pending_announces));
        self.oldest_announce.set(seconds(live.oldest_announce_ms));
        let undelivered = whole(live.undelivered_announces);
        self.undelivered_announces.set(undelivered);
        self.webhook_lag.set(seconds(live.webhook_lag_ms));
        self.dead_letters.set(whole(live.dead_letters));
        self.store_bytes.set(whole(live.store_bytes));
        self.log_bytes.set(whole(live.log_bytes));
        self.newest_backup.set(seconds(live.newest_backup_ms));
        self.free_bytes.set(live.free_bytes.map_or(-1, whole));
        self.polling_watchers.set(whole(live.polling_watchers));
        self.keepers.set(whole(live.keepers));
        let process = process::usage();
        self.resident.set(whole(process.resident_bytes));
        self.open_files.set(whole(process.open_files));
        self.file_limit.set(whole(process.file_limit));
        // A counter only grows: two requests at once may read in another order than they write.
        let more = process.processor.as_secs_f64() - self.processor.get();
        if more > 0.0 {
            self.processor.inc_by(more);
        }
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
