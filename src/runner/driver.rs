//! Test driver: executes a run in memory as the registry does through the store, with real tools
//! and providers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use uuid::Uuid;

use super::{RunnerOptions, TurnRunner};
use crate::agent::{self, AgentCatalog};
use crate::clock::Clock;
use crate::contract::catalog::{Catalog, CatalogScope, Overrides};
use crate::contract::journal::RunView;
use crate::contract::pin::Pin;
use crate::contract::runner::{DiscardSink, Next, Runner, StepOutcome};
use crate::kernel::ids::{MessageId, RunId, SessionId, SessionKey};
use crate::kernel::run::step::{Intent, Step, StepState, TOO_LONG};
use crate::kernel::run::{AnnouncePolicy, Run, RunError, RunState};
use crate::kernel::sample::queued;
use crate::kernel::session::message::{Block, Message, MessageKind, Origin, Role};
use crate::kernel::session::raw_metadata::RawMetadata;
use crate::kernel::time::Timestamp;
use crate::provider::{self, Providers};
use crate::tool::{self, Catalogue};

/// How a turn ended.
#[derive(Debug, PartialEq)]
pub(super) enum TurnOutcome {
    Text(Option<String>),
    Error(RunError),
    Cut(RunError, String),
}

/// A run with its session, in memory.
pub(super) struct Driver {
    pub runner: TurnRunner,
    pub view: RunView,
}

pub(super) fn run_id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

impl Driver {
    /// A run of agent `explore` with `model` in `folder`.
    pub(super) fn new(
        folder: &Path,
        model: &str,
        script: Option<&Path>,
        options: RunnerOptions,
    ) -> Self {
        let providers = Providers::new(provider::ProviderOptions {
            script: script.map(Path::to_owned),
            tables: std::collections::BTreeMap::new(),
            clock: Clock::system(),
            on_change: Arc::new(|_, _| {}),
        })
        .unwrap();
        let tools = Catalogue::new(tool::ToolOptions::default());
        let agents = AgentCatalog::new(agent::AgentCatalogOptions {
            default_agent: "build".to_owned(),
            models: tokio::sync::watch::channel(agent::AvailableModels {
                default: "offline/search".to_owned(),
                offered: providers.offered(),
                thinking: providers.thinking(),
                programs: Arc::new(|_| Ok(())),
                providers: Arc::new(|_| None),
            })
            .1,
            tools: tools.schemas(),
            servers: tokio::sync::watch::channel(Arc::default()).1,
            nodes: Default::default(),
            skills: None,
            config: None,
            personal: None,
            workspace: None,
            orgs: vec!["default".to_owned()],
            rows: None,
            clock: Clock::system(),
        })
        .unwrap();
        let place = CatalogScope {
            org: "default",
            cwd: None,
        };
        let overrides = Overrides {
            model: Some(model),
            thinking: None,
            given: &[],
            served: &[],
        };
        let resolved = agents.resolve(place, "explore", overrides).unwrap();
        let runner = TurnRunner::new(
            tokio::sync::watch::channel(options).1,
            PathBuf::from("."),
            Arc::new(providers),
            Arc::new(tools),
            None,
            Clock::system(),
        );
        let view = RunView {
            run: run(folder, model),
            agent: Pin::from(&*resolved.definition.body),
            tools: Pin::from(&*resolved.tools.body),
            skills: None,
            bundle: None,
            environment: Arc::default(),
            messages: Vec::new(),
            steps: Vec::new(),
        };
        Driver { runner, view }
    }

    /// Appends an entry; returns its seq.
    pub(super) fn push(&mut self, kind: MessageKind, role: Role, content: Vec<Block>) -> i64 {
        let seq = self.view.last_seq() + 1;
        let tool_call = content.iter().find_map(|block| match block {
            Block::ToolResult { tool_call_id, .. } => Some(tool_call_id.clone()),
            _ => None,
        });
        self.view.messages.push(Arc::new(Message {
            id: MessageId(Uuid::from_u128(u128::try_from(seq).unwrap())),
            seq,
            generation: 1,
            at: Timestamp(0),
            role,
            kind,
            origin: Origin::User,
            run: Some(self.view.run.id),
            content: content.into(),
            tool_call,
            child_run: None,
            announce: None,
            silent: false,
            metadata: None,
        }));
        seq
    }

    pub(super) fn say(&mut self, text: &str) -> i64 {
        self.push(MessageKind::Text, Role::User, vec![text_block(text)])
    }

    pub(super) fn announce(&mut self, text: &str) -> i64 {
        self.push(MessageKind::Announce, Role::User, vec![text_block(text)])
    }

    pub(super) fn next(&self) -> Next {
        self.runner.next(&self.view)
    }

    /// Records intents, as a commit does; returns the indexes of their steps.
    pub(super) fn intend(&mut self, intents: Vec<Intent>) -> Vec<usize> {
        intents
            .into_iter()
            .map(|intent| {
                let seen = intent.kind.answers().then(|| self.view.last_seq());
                self.view
                    .steps
                    .push(Arc::new(step(&self.view, intent, seen)));
                self.view.steps.len() - 1
            })
            .collect()
    }

    pub(super) async fn perform(&self, index: usize) -> StepOutcome {
        let view = Arc::new(self.view.clone());
        let step = Arc::clone(&self.view.steps[index]);
        self.runner.perform(view, step, Arc::new(DiscardSink)).await
    }

    /// Records an outcome; a failure ends the run.
    pub(super) fn finish(&mut self, index: usize, outcome: StepOutcome) -> Result<(), RunError> {
        let seq = match outcome {
            StepOutcome::Failed { error, .. } => return Err(error),
            StepOutcome::Waits
            | StepOutcome::AwaitsProvider { .. }
            | StepOutcome::Uncertain { .. } => {
                panic!("nothing here waits")
            }
            StepOutcome::TooLong(error) => {
                let step = Arc::make_mut(&mut self.view.steps[index]);
                step.state = StepState::Failed;
                step.error = Some(format!("{TOO_LONG}: {}", error.message));
                return Ok(());
            }
            StepOutcome::Shortened {
                summary,
                report: told,
                ..
            } => {
                Arc::make_mut(&mut self.view.steps[index]).result_summary = Some(told);
                let Some((text, compacted)) = summary else {
                    Arc::make_mut(&mut self.view.steps[index]).state = StepState::Done;
                    return Ok(());
                };
                let block = vec![text_block(&text)];
                let seq = self.push(MessageKind::Compaction, Role::User, block);
                let message = Arc::make_mut(self.view.messages.last_mut().unwrap());
                message.metadata = RawMetadata::of(&compacted);
                seq
            }
            StepOutcome::Answer { blocks, used, .. } => {
                Arc::make_mut(&mut self.view.steps[index]).used = used;
                let calls = blocks
                    .iter()
                    .any(|block| matches!(block, Block::ToolCall { .. }));
                let kind = if calls {
                    MessageKind::ToolCall
                } else {
                    MessageKind::Text
                };
                self.push(kind, Role::Assistant, blocks)
            }
            StepOutcome::ToolResult { text, is_error } => {
                let tool_call_id = self.view.steps[index].tool_call.clone().unwrap();
                let block = Block::ToolResult {
                    tool_call_id,
                    text,
                    is_error,
                };
                self.push(MessageKind::ToolResult, Role::Tool, vec![block])
            }
        };
        let step = Arc::make_mut(&mut self.view.steps[index]);
        step.state = StepState::Done;
        step.message_seq = Some(seq);
        Ok(())
    }

    /// Runs until the turn ends. Calls `next` twice each time: the runner must decide from the view
    /// alone.
    pub(super) async fn turn(&mut self) -> TurnOutcome {
        loop {
            let next = self.next();
            assert_same(&next, &self.next());
            match next {
                Next::EndTurn(text) => return TurnOutcome::Text(text),
                Next::Fail(error) => return TurnOutcome::Error(error),
                Next::Cut {
                    error,
                    findings: found,
                } => return TurnOutcome::Cut(error, found),
                Next::Steps(intents) => {
                    assert!(!intents.is_empty());
                    let open = self.intend(intents);
                    let outcomes = join_all(open.iter().map(|index| self.perform(*index))).await;
                    // Results are recorded in reverse: the order of commits is not defined.
                    for (index, outcome) in open.into_iter().zip(outcomes).rev() {
                        if let Err(error) = self.finish(index, outcome) {
                            return TurnOutcome::Error(error);
                        }
                    }
                }
            }
        }
    }
}

/// Asserts equality apart from fresh step ids.
fn assert_same(one: &Next, other: &Next) {
    let bare = |next: &Next| match next {
        Next::Steps(intents) => format!(
            "{:?}",
            intents
                .iter()
                .map(|one| (
                    one.kind,
                    &one.tool,
                    &one.tool_call,
                    &one.input,
                    one.asked_by
                ))
                .collect::<Vec<_>>()
        ),
        other => format!("{other:?}"),
    };
    assert_eq!(bare(one), bare(other));
}

fn text_block(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
    }
}

fn step(view: &RunView, intent: Intent, seen_up_to: Option<i64>) -> Step {
    let seq = u32::try_from(view.steps.len()).unwrap() + 1;
    intent.into_step(view.run.id, seq, seen_up_to, Timestamp(0))
}

fn run(folder: &Path, model: &str) -> Run {
    let session = SessionId(Uuid::from_u128(9));
    let new = queued(AnnouncePolicy::None);
    Run {
        user: "user".to_owned(),
        session,
        session_key: SessionKey::child(&new.agent, session),
        requester: None,
        root_session: session,
        model: model.to_owned(),
        cwd: Some(folder.to_str().unwrap().to_owned()),
        state: RunState::Running,
        limit_ms: None,
        ..new
    }
}
