//! What `rpc.discover` states about each method in addition to its schemas: a summary, an example,
//! and whether it changes anything. The latter also decides which calls are audited.

/// Description of a method.
pub(crate) struct MethodInfo {
    /// Name of the method.
    pub(crate) name: &'static str,
    /// Whether calls change anything.
    pub(crate) effect: Effect,
    /// One-sentence summary.
    pub(crate) summary: &'static str,
    /// Example parameters as JSON. The examples of all methods belong together: the session and run
    /// that some name are created by others.
    pub(crate) example: &'static str,
}

/// Whether a method changes state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    /// It only reads.
    Reads,
    /// It creates, changes or removes something.
    Changes,
}

use Effect::{Changes, Reads};

/// Description of the method `name`; `None` if unknown.
pub(crate) fn about(name: &str) -> Option<&'static MethodInfo> {
    METHODS.iter().find(|about| about.name == name)
}

/// Whether a call of `name` changes anything; true for unknown methods.
pub(crate) fn changes(name: &str) -> bool {
    about(name).is_none_or(|about| about.effect == Changes)
}

const fn row(
    name: &'static str,
    effect: Effect,
    summary: &'static str,
    example: &'static str,
) -> MethodInfo {
    MethodInfo {
        name,
        effect,
        summary,
        example,
    }
}

/// All methods. Every new method needs a row here.
pub(crate) const METHODS: &[MethodInfo] = &[
    row("rpc.discover", Reads, "Returns this document.", "{}"),
    row(
        "gateway.hello",
        Reads,
        "Returns the daemon's version, protocol, methods and limits.",
        r#"{"client": {"name": "desk", "version": "1.0"}, "protocol": {"min": 1, "max": 1}}"#,
    ),
    row(
        "gateway.ping",
        Reads,
        "Checks that the daemon answers.",
        "{}",
    ),
    row(
        "gateway.status",
        Reads,
        "Returns the daemon's state and counts of live objects.",
        "{}",
    ),
    row(
        "gateway.drain",
        Changes,
        "Drains the daemon: no new work starts, and runs stop at their next step.",
        r#"{"then": "stop"}"#,
    ),
    row(
        "gateway.audit",
        Reads,
        "Lists audited calls, newest first.",
        r#"{"method": "sessions.spawn"}"#,
    ),
    row(
        "gateway.config",
        Reads,
        "Returns the settings in force and the origin of each.",
        "{}",
    ),
    row(
        "gateway.reload",
        Changes,
        "Reads the configuration again and applies what needs no restart.",
        "{}",
    ),
    row(
        "sessions.create",
        Changes,
        "Creates a session, or returns the existing one.",
        r#"{"agent": "build", "key": "agent:build:desk", "label": "desk"}"#,
    ),
    row(
        "sessions.spawn",
        Changes,
        "Starts a run in its own session. The run is stored before the call returns.",
        r#"{"task": "Where does it start?", "runId": "01936f0e-0000-7000-8000-000000000001", "agent": "explore"}"#,
    ),
    row(
        "sessions.get",
        Reads,
        "Returns one session.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.list",
        Reads,
        "Lists sessions, newest first.",
        r#"{"kind": "all"}"#,
    ),
    row(
        "sessions.history",
        Reads,
        "Returns a part of a session's transcript, oldest first.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.inbox",
        Reads,
        "Lists the results of the runs that this session requested.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.ack",
        Changes,
        "Acknowledges announces; acknowledged ones are subject to retention.",
        r#"{"sessionKey": "agent:build:desk", "announceIds": []}"#,
    ),
    row(
        "agent.run",
        Changes,
        "Queues a turn in a session, which is created if it does not exist.",
        r#"{"sessionKey": "agent:build:desk", "message": "What is in here?"}"#,
    ),
    row(
        "agent.wait",
        Reads,
        "Waits until runs have ended, or returns their state when the timeout passes.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.get",
        Reads,
        "Returns one run with its complete result.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.list",
        Reads,
        "Lists runs, newest first.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "runs.output",
        Reads,
        "Returns a part of a tool's output, even if the output is truncated in the transcript.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "toolCallId": "call-1", "offset": 0}"#,
    ),
    row(
        "runs.steps",
        Reads,
        "Lists the journal of a run, oldest first.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "agents.list",
        Reads,
        "Lists the agents, sorted by name.",
        r#"{"for": "people"}"#,
    ),
    row(
        "agents.get",
        Reads,
        "Returns one agent.",
        r#"{"agent": "explore"}"#,
    ),
    row(
        "tools.list",
        Reads,
        "Returns the exact tools of an agent, with their schemas.",
        r#"{"agent": "explore"}"#,
    ),
    row(
        "mcp.list",
        Reads,
        "Lists the MCP servers with their state and tools.",
        "{}",
    ),
    row(
        "agents.create",
        Changes,
        "Stores an agent's definition.",
        r#"{"name": "scout", "definition": {"description": "Looks ahead.", "mode": "subagent"}}"#,
    ),
    row(
        "agents.update",
        Changes,
        "Replaces the stored definition of an agent.",
        r#"{"agent": "scout", "definition": {"description": "Looks far ahead.", "mode": "subagent"}}"#,
    ),
    row(
        "agents.delete",
        Changes,
        "Removes a stored agent.",
        r#"{"agent": "scout"}"#,
    ),
    row(
        "agents.reload",
        Changes,
        "Reads the agents' files again.",
        "{}",
    ),
    row(
        "skills.list",
        Reads,
        "Lists the skills of a workspace by name, and the files that could not be loaded.",
        "{}",
    ),
    row(
        "skills.snapshot",
        Reads,
        "Returns the skills that a run starting now would pin.",
        r#"{"agent": "build"}"#,
    ),
    row(
        "skills.refresh",
        Changes,
        "Reloads the skills of one workspace or of all.",
        "{}",
    ),
    row(
        "trust.add",
        Changes,
        "Trusts the present content of a project's files.",
        r#"{"folder": "/srv/project"}"#,
    ),
    row(
        "trust.list",
        Reads,
        "Lists the projects that are trusted, by folder.",
        "{}",
    ),
    row(
        "trust.revoke",
        Changes,
        "Revokes the trust in a project.",
        r#"{"folder": "/srv/project"}"#,
    ),
    row(
        "gateway.backup",
        Changes,
        "Writes a consistent backup of the store to a new file and checks it.",
        "{}",
    ),
    row(
        "gateway.doctor",
        Reads,
        "Checks the store, its files and the daemon's environment.",
        "{}",
    ),
    row(
        "memory.list",
        Reads,
        "Lists the long-term memories of agents, newest first.",
        r#"{"namespace": "build"}"#,
    ),
    row(
        "memory.search",
        Reads,
        "Searches memories by words, best match first.",
        r#"{"query": "deploy day"}"#,
    ),
    row(
        "memory.delete",
        Changes,
        "Deletes memories permanently.",
        r#"{"ids": ["01936f0e-0000-7000-8000-000000000009"]}"#,
    ),
    row(
        "usage.summary",
        Reads,
        "Aggregates runs with their outcomes, durations, tokens and cost.",
        r#"{"by": "agent"}"#,
    ),
    row(
        "questions.answer",
        Changes,
        "Answers a question of a run; the answer is passed to that run.",
        r#"{"id": "01936f0e-0000-7000-8000-000000000003", "text": "the second one"}"#,
    ),
    row(
        "questions.list",
        Reads,
        "Lists the questions of runs to the user.",
        r#"{"sessionKey": "agent:build:desk", "tree": true}"#,
    ),
    row(
        "approvals.list",
        Reads,
        "Lists tool calls that need a user's approval.",
        r#"{"sessionKey": "agent:build:desk", "tree": true}"#,
    ),
    row(
        "approvals.resolve",
        Changes,
        "Approves or denies a tool call.",
        r#"{"id": "01936f0e-0000-7000-8000-000000000003", "decision": "allow"}"#,
    ),
    row(
        "approvals.remembered",
        Reads,
        "Lists the remembered decisions that apply to later calls.",
        "{}",
    ),
    row(
        "approvals.forget",
        Changes,
        "Forgets a remembered decision.",
        r#"{"id": "01936f0e-0000-7000-8000-000000000003"}"#,
    ),
    row(
        "runs.cancel",
        Changes,
        "Cancels a run and its descendants.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.steer",
        Changes,
        "Adds a message to a run in the middle of its turn.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "message": "Look at the tests first."}"#,
    ),
    row(
        "runs.resolve",
        Changes,
        "Settles whether a call interrupted by a crash happened, or ends its run.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "stepId": "01936f0e-0000-7000-8000-000000000002", "decision": "done"}"#,
    ),
    row(
        "runs.provide_env",
        Changes,
        "Provides values for a run's environment; a run paused for them continues.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "env": {"GH_TOKEN": {"from": "env:GH_TOKEN"}}}"#,
    ),
    row(
        "runs.retry",
        Changes,
        "Repeats the work of an ended run as a new run.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.retry_announce",
        Changes,
        "Announces a run's result again in a wake run.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.dismiss_announce",
        Changes,
        "Dismisses the announce of a run's result.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "sessions.cancel",
        Changes,
        "Cancels the work of a session and its descendants, or of its whole conversation.",
        r#"{"sessionKey": "agent:build:desk", "all": true}"#,
    ),
    row(
        "sessions.patch",
        Changes,
        "Changes a session's label, title, model, thinking level or folder.",
        r#"{"sessionKey": "agent:build:desk", "title": "At the desk"}"#,
    ),
    row(
        "sessions.reset",
        Changes,
        "Starts a new generation of a session; models no longer see earlier messages.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.send",
        Changes,
        "Sends a message to a session and waits for its agent's reply.",
        r#"{"message": "What is new?", "sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.delete",
        Changes,
        "Deletes a session with its transcript.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.compact",
        Changes,
        "Queues the compaction of a session's context, behind its waiting turns.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "events.subscribe",
        Reads,
        "Subscribes to events from now on or from a cursor; WebSocket only.",
        r#"{"since": 0}"#,
    ),
    row(
        "events.unsubscribe",
        Reads,
        "Ends a subscription of this connection.",
        r#"{"subscription": "01936f0e-0000-7000-8000-000000000003"}"#,
    ),
];
