//! The contract suite for storage engines. It uses a database only through [`Tx`] and commands;
//! another engine needs one more line at the end of this file.

mod announces;
mod called;
mod cancels;
mod clears;
mod damaged_files;
mod damaged_rows;
mod lifecycle;
mod memories;
mod nodes;
mod plans;
mod recovery;
mod reviews;
mod schema;
mod session_servers;
mod spawning;
mod starting;
mod stops;
mod sweeps;
mod threads;
mod transcripts;
mod turns;
mod usage;
mod wakes;
mod webhooks;

use uuid::Uuid;

use super::migrate;
use super::sqlite::{Sqlite, Use};
use super::tx::{Tx, number};
use crate::clock::Clock;
use crate::command::{
    Accepted, Begins, NewRun, NewSession, RecordOutcome, Recorded, RunAfter, RunTurn, Spawn,
    StartRun, Then, TurnEnd,
};
use crate::contract::catalog::{AgentMode, Pinned, Resolved};
use crate::contract::commit::{CommandSettings, CommitEffect};
use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionId, SessionKey, StepId};
use crate::kernel::policy::Policy;
use crate::kernel::policy::overlay::{AgentEnv, Overlay};
use crate::kernel::run::budget::Budget;
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::RecoveryPolicy;
use crate::kernel::run::step::{EffectClass as Class, Intent, ModelUsage, StepKind};
use crate::kernel::run::{AnnouncePolicy, OnUncertain, Run, Usage};
use crate::kernel::session::message::{Block, Message};
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::time::Timestamp;
use crate::store::tables::boots::Sequence;
use crate::store::tables::environment::NewEnvironment;
use crate::store::tables::runs;
use crate::store::write::{Command, Transaction};

/// A test database of some engine, with commands on it.
pub(super) struct Bench {
    pub db: Box<dyn Tx>,
    pub clock: Clock,
    pub settings: CommandSettings,
    sequence: Sequence,
    _folder: tempfile::TempDir,
}

/// An engine: creates an empty, migrated database in a folder.
type Engine = fn(&std::path::Path) -> Box<dyn Tx>;

impl Bench {
    pub fn new(engine: Engine) -> Self {
        Bench::with(engine)
    }

    /// A bench on the database that `open` makes in a new folder.
    pub fn with(open: impl FnOnce(&std::path::Path) -> Box<dyn Tx>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Bench {
            db: open(folder.path()),
            clock: Clock::test(Timestamp(1_000_000)),
            settings: CommandSettings {
                breaker: BreakerPolicy::OFF,
                tree_budget: Budget::default(),
                audit_rows: 1000,
                max_memories: 1000,
                thresholds: Default::default(),
                limits: SpawnLimits {
                    max_depth: 3,
                    max_children: 5,
                    max_run_children: 2,
                    max_total: 4,
                    max_unacked: 10,
                    max_undelivered: 10,
                    max_queued_turns: 3,
                },
                recovery: RecoveryPolicy::default(),
                policy: Policy::default(),
                max_ping_pong: 2,
            },
            sequence: Sequence::default(),
            _folder: folder,
        }
    }

    /// Executes one command in a transaction of its own.
    pub fn run<C: Command>(&mut self, command: C) -> Result<(C::Reply, Vec<CommitEffect>), Fault> {
        self.db.execute("BEGIN", &[]).unwrap();
        let done = command.execute(Transaction {
            tx: self.db.as_mut(),
            clock: &self.clock,
            settings: &self.settings,
            sequence: &mut self.sequence,
        });
        let done = done.map(|executed| (executed.reply, executed.effects));
        if done.is_ok() {
            self.db.execute("COMMIT", &[]).unwrap();
        } else {
            self.db.execute("ROLLBACK", &[]).unwrap();
            self.sequence.undone();
        }
        done
    }

    /// The path of the database file.
    pub fn path(&self) -> std::path::PathBuf {
        self._folder.path().join("abide.db")
    }

    pub fn count(&mut self, sql: &str) -> i64 {
        number(self.db.as_mut(), sql, &[]).unwrap()
    }

    /// Row counts of the main tables, to check that nothing changed.
    pub fn rows(&mut self) -> Vec<i64> {
        [
            "sessions",
            "messages",
            "runs",
            "steps",
            "outbox",
            "events",
            "idempotency",
        ]
        .map(|table| self.count(&format!("SELECT count(*) FROM {table}")))
        .to_vec()
    }

    pub fn row(&mut self, run: RunId) -> Run {
        runs::get(self.db.as_mut(), run).unwrap().unwrap()
    }

    pub fn transcript(&mut self, key: &SessionKey) -> Vec<Message> {
        let db = self.db.as_mut();
        let session = crate::store::tables::sessions::by_key(db, "default", key)
            .unwrap()
            .unwrap();
        crate::store::tables::messages::last(db, session.id, 1000).unwrap()
    }

    pub fn client_session(&mut self, key: &str) -> SessionKey {
        let key = SessionKey::parse(key).unwrap();
        let new = NewSession {
            id: SessionId(id()),
            org: "default".to_owned(),
            key: Some(key.clone()),
            owner: Owner::Client,
            agent: AgentId::parse("build").unwrap(),
            label: None,
            title: None,
            thinking: None,
            cwd: None,
            get_existing: true,
        };
        self.run(new).unwrap();
        key
    }

    pub fn spawned(&mut self, parent: Option<&SessionKey>) -> Accepted {
        reply(self.run(spawn(parent)))
    }

    /// Starts a queued run with one model call.
    pub fn started(&mut self, run: RunId) -> RunAfter {
        reply(self.run(StartRun {
            run,
            intents: vec![model()],
            seen: 0,
        }))
    }

    /// Answers the run's open model call with a text that ends the turn.
    pub fn ended(&mut self, run: RunId, text: &str) -> RunAfter {
        let step = self.row(run).steps;
        reply(self.run(answer(run, step, text)))
    }
}

/// A new id, larger than earlier ones.
pub(super) fn id() -> Uuid {
    Clock::system().new_id()
}

pub(super) fn agent(name: &str) -> Resolved {
    let pinned = |body: &str| Pinned {
        hash: blake3::hash(body.as_bytes()).to_hex().to_string(),
        body: body.into(),
    };
    Resolved {
        id: AgentId::parse(name).unwrap(),
        title: None,
        mode: AgentMode::All,
        model: "script/x".to_owned(),
        thinking: None,
        run_timeout_ms: None,
        on_uncertain: OnUncertain::Report,
        definition: pinned(name),
        tools: pinned("[]"),
        skill_names: None,
        skills: None,
        env: AgentEnv::default(),
        overlay: Overlay::default(),
        warnings: Vec::new(),
    }
}

pub(super) fn new_run(name: &str) -> NewRun {
    let environment = NewEnvironment::default();
    NewRun {
        user: "admin".to_owned(),
        limit_ms: Some(60_000),
        trace_id: "trace".to_owned(),
        ..NewRun::of(RunId(id()), agent(name), environment, "look".to_owned())
    }
}

pub(super) fn spawn(parent: Option<&SessionKey>) -> Spawn {
    Spawn {
        org: "default".to_owned(),
        run: new_run("explore"),
        session: SessionId(id()),
        message: MessageId(id()),
        task: "look".to_owned(),
        parent: parent.cloned(),
        announce: None,
        cwd: None,
        by: None,
        thinking: None,
        mode: SessionMode::Run,
        cleanup: Cleanup::Keep,
        begins: Begins::Isolated,
        bundle: None,
    }
}

pub(super) fn turn(session: &str, message: &str) -> RunTurn {
    RunTurn {
        org: "default".to_owned(),
        run: new_run("build"),
        session: SessionKey::parse(session).unwrap(),
        new_session: SessionId(id()),
        asks: crate::command::Asks::Message(message.to_owned()),
        model_named: false,
        thinking_named: false,
    }
}

pub(super) fn model() -> Intent {
    Intent {
        id: StepId(id()),
        kind: StepKind::Model,
        tool: None,
        tool_call: None,
        asked_by: None,
        effect: Class::Read,
        input: serde_json::Value::Null,
        context: None,
        params_summary: None,
    }
}

pub(super) fn tool(call: &str, effect: Class) -> Intent {
    Intent {
        kind: StepKind::Tool,
        tool: Some("grep".to_owned()),
        tool_call: Some(call.to_owned()),
        effect,
        ..model()
    }
}

pub(super) fn text(text: &str) -> Vec<Block> {
    vec![Block::Text {
        text: text.to_owned(),
    }]
}

/// The usage of one model call.
pub(super) fn used() -> Option<ModelUsage> {
    Some(ModelUsage {
        model: "script/x".to_owned(),
        usage: Usage {
            model_calls: 1,
            ..Usage::default()
        },
    })
}

pub(super) fn answer(run: RunId, step: u32, said: &str) -> RecordOutcome {
    RecordOutcome {
        run,
        step,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text(said),
            used: used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::EndTurn(TurnEnd {
            text: Some(said.to_owned()),
            // The steps that the runner proposes in case a new message has arrived.
            more: vec![model()],
        }),
    }
}

/// The reply of a command that succeeded.
pub(super) fn reply<R>(done: Result<(R, Vec<CommitEffect>), Fault>) -> R {
    done.unwrap().0
}

/// The spawn with this announce policy.
pub(super) fn policy(spawn: Spawn, announce: AnnouncePolicy) -> Spawn {
    Spawn {
        announce: Some(announce),
        ..spawn
    }
}

fn sqlite(folder: &std::path::Path) -> Box<dyn Tx> {
    let path = folder.join("abide.db");
    let mut db = Sqlite::open(&path, Use::Write).unwrap();
    // No test of the suite ends its machine, and waiting for the disk takes most of the time.
    db.execute("PRAGMA synchronous = 0", &[]).unwrap();
    migrate::migrate(&mut db, None).unwrap();
    Box::new(db)
}

/// The whole suite for one engine.
macro_rules! contract {
    ($engine:ident: $($part:ident::$test:ident,)+) => {
        mod $engine {
            $(#[test]
            fn $test() {
                super::$part::$test(super::Bench::new(super::$engine));
            })+
        }
    };
}

contract! { sqlite:
    schema::terminal_stays_terminal,
    schema::one_announce_for_each_run,
    schema::one_turn_for_each_session,
    schema::a_step_has_one_outcome,
    schema::the_event_log_is_in_order,
    schema::an_event_says_where_it_belongs,
    schema::what_was_deleted_of_the_log_is_remembered,
    spawning::g5_9_a_spawn_is_whole_or_absent,
    spawning::a_refused_spawn_leaves_nothing,
    spawning::g9_13_a_key_gives_the_first_answer_for_ever,
    spawning::a_key_for_another_request_is_a_conflict,
    spawning::a_client_owned_parent_takes_no_wake,
    transcripts::what_is_kept_of_transcripts_is_what_the_rows_say,
    transcripts::of_more_transcripts_than_fit_some_are_kept_and_stay_kept,
    transcripts::a_transcript_is_read_once_and_again_when_it_is_forgotten,
    turns::each_thing_that_a_move_changes_stands_in_the_row,
    turns::inputs_enter_the_transcript_when_their_turn_begins,
    turns::outcomes_of_parallel_calls_are_kept_each,
    turns::a_second_start_changes_nothing,
    turns::a_second_outcome_changes_nothing,
    turns::too_many_waiting_turns_are_refused,
    turns::the_steps_of_a_run_that_ended_have_an_outcome,
    turns::g1_11_a_child_writes_on_after_its_parent_ended,
    announces::g2_1_a_repeated_delivery_changes_nothing,
    announces::g2_8_what_ends_during_a_turn_is_told_after_it,
    announces::one_wake_run_carries_all,
    announces::a_settling_run_sees_its_grandchild_before_it_ends,
    announces::what_is_told_before_a_turn_begins_is_seen_by_it,
    announces::a_settling_run_waits_for_nobodys_inbox,
    announces::many_announces_are_told_one_delivery_after_another,
    announces::a_failed_parent_takes_its_children_along,
    announces::acknowledging_is_all_or_nothing,
    announces::g2_14_a_gone_target_leaves_the_result_on_the_run,
    cancels::g4_12_a_cancel_reaches_everything_below,
    cancels::g4_12_a_marked_run_begins_nothing_more,
    cancels::a_cancel_goes_on_below_runs_that_have_ended,
    cancels::a_cancelled_turn_leaves_other_turns_of_its_session_alone,
    cancels::a_session_that_is_not_there_cannot_be_cancelled,
    cancels::a_steer_enters_with_the_next_model_call_only,
    cancels::a_turn_does_not_end_before_a_steer_was_seen,
    cancels::a_steer_that_no_model_call_can_see_is_dropped_and_said,
    cancels::an_announce_that_steers_enters_a_turn_that_goes_on,
    clears::a_reset_comes_with_the_end_of_the_last_run_and_once,
    clears::a_deletion_comes_with_the_end_of_the_last_run_below,
    clears::nothing_begins_where_a_reset_or_deletion_is_to_come,
    clears::a_deletion_goes_before_a_reset,
    clears::a_wish_whose_run_was_lost_is_carried_out_at_the_next_start,
    lifecycle::a_fork_begins_with_its_parents_transcript_and_costs_no_copy,
    lifecycle::a_reset_hides_what_was_said_and_wakes_nobody_for_old_news,
    lifecycle::a_patch_of_another_revision_changes_nothing,
    lifecycle::g2_14_what_was_for_a_deleted_session_is_kept_until_it_is_dismissed,
    lifecycle::a_large_session_goes_bit_by_bit,
    lifecycle::a_tree_too_large_for_one_command_goes_too,
    lifecycle::a_target_whose_agent_cannot_run_is_offered_its_news_when_it_is_used,
    lifecycle::a_result_that_a_tool_brought_is_not_announced,
    lifecycle::a_dismissed_announce_lets_a_settling_run_end,
    lifecycle::announces_of_one_wake_turn_share_100_kilobytes,
    lifecycle::cleanup_waits_for_the_acknowledgement_and_for_what_is_below,
    sweeps::g2_10_age_takes_what_was_told_and_its_blobs_and_keys,
    sweeps::a_session_whose_runs_went_before_it_was_put_aside_goes_too,
    sweeps::a_body_that_an_old_run_names_stays,
    sweeps::skills_go_with_the_last_run_that_names_them,
    sweeps::events_go_by_age_and_young_ones_stay,
    sweeps::an_archived_session_is_left_out_of_lists_and_comes_back_when_used,
    sweeps::lists_and_sweeps_walk_their_indexes,
    memories::a_repeated_step_keeps_once_in_the_path_of_its_agents,
    memories::what_a_summary_keeps_stands_with_it_and_a_full_memory_ends_no_turn,
    memories::a_summary_names_the_runs_that_are_open,
    memories::a_search_reads_its_name_spaces_and_the_index_can_be_made_anew,
    nodes::a_key_is_paired_once_and_names_are_unique_in_their_tenant,
    nodes::an_invitation_is_used_once_and_not_after_its_end,
    nodes::a_decision_covers_the_offer_that_it_was_made_for,
    session_servers::tools_are_kept_for_the_server_that_listed_them,
    session_servers::servers_go_with_their_session,
    webhooks::a_webhook_begins_at_the_end_of_the_log_and_keeps_its_place,
    webhooks::progress_that_is_stored_again_counts_nothing_twice,
    webhooks::dead_letters_are_bounded_and_delivered_again_once,
    webhooks::retention_counts_what_a_webhook_has_not_read,
    usage::what_ends_is_counted_once_with_all_that_it_used,
    usage::an_answer_that_was_of_no_use_is_counted_all_the_same,
    usage::a_passed_threshold_is_told_once_an_hour,
    usage::a_summary_reads_the_hours_and_runs_that_it_is_asked_for,
    plans::no_list_walks_what_it_does_not_show,
    called::what_others_did_takes_no_place_in_what_a_called_run_sees,
    plans::an_ended_run_is_shown_without_reading_its_journal,
    plans::the_steps_of_a_nodes_calls_are_found_without_reading_others,
    recovery::a_read_is_repeated_and_a_late_outcome_refused,
    recovery::a_once_effect_that_began_is_uncertain,
    recovery::time_away_does_not_count,
    recovery::time_counts_as_far_as_each_killed_process_lived,
    stops::what_ended_before_a_cancel_waits_in_the_inbox,
    stops::a_cancelled_turn_takes_the_wake_run_of_its_children_along,
    stops::other_turns_of_a_session_go_on_and_see_what_was_cancelled,
    stops::a_failed_run_is_not_woken_by_what_its_children_brought,
    stops::a_persons_cancel_binds_agents_until_a_person_begins_again,
    stops::a_whole_conversation_ends_with_what_it_asked_others,
    stops::an_answer_to_what_was_cancelled_begins_nothing,
    wakes::a_wake_run_ends_when_another_turn_has_seen_its_announces,
    wakes::a_wake_run_stays_for_what_no_model_call_has_seen,
    recovery::a_sleep_of_the_machine_does_not_count,
    recovery::g1_2_a_run_that_is_too_old_is_told_quietly,
    recovery::parked_steps_go_on_as_they_stand,
    reviews::a_call_in_review_holds_its_run_until_a_person_has_said,
    reviews::what_a_person_says_has_not_happened_is_carried_out_once_more,
    reviews::a_review_that_ends_its_run_leaves_the_call_uncertain,
    reviews::a_cancelled_review_is_uncertain_too,
    reviews::other_calls_of_the_answer_go_on_before_a_review,
    reviews::a_review_is_settled_also_while_other_calls_are_at_work,
    reviews::an_agent_may_want_an_uncertain_call_repeated,
    reviews::a_call_that_is_kept_elsewhere_continues_after_a_kill,
    reviews::a_call_that_ends_in_doubt_is_reviewed_or_repeated,
    reviews::a_call_that_ends_in_doubt_is_reported,
    reviews::runs_are_found_by_the_fields_of_their_meta,
}
