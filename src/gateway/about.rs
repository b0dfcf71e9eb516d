//! What `rpc.discover` states about each method in addition to its schemas: a summary, an example,
//! and whether it changes anything. The latter also decides which calls are audited.

/// Description of a method.
pub(super) struct About {
    /// Name of the method.
    pub(super) name: &'static str,
    /// Whether calls change anything.
    pub(super) effect: Effect,
    /// One-sentence summary.
    pub(super) summary: &'static str,
    /// Example parameters as JSON. The examples of all methods belong together: the session and run
    /// that some name are created by others.
    pub(super) example: &'static str,
}

/// Whether a method changes state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    /// It only reads.
    Reads,
    /// It creates, changes or removes something.
    Changes,
}

use Effect::{Changes, Reads};

/// Description of the method `name`; `None` if unknown.
pub(super) fn about(name: &str) -> Option<&'static About> {
    METHODS.iter().find(|about| about.name == name)
}

/// Whether a call of `name` changes anything; true for unknown methods.
pub(super) fn changes(name: &str) -> bool {
    about(name).is_none_or(|about| about.effect == Changes)
}

const fn row(
    name: &'static str,
    effect: Effect,
    summary: &'static str,
    example: &'static str,
) -> About {
    About {
        name,
        effect,
        summary,
        example,
    }
}

/// All methods. Every new method needs a row here.
pub(super) const METHODS: &[About] = &[
    row("rpc.discover", Reads, "Gives this document.", "{}"),
    row(
        "gateway.hello",
        Reads,
        "Says who answers, which protocol it speaks, and how much may be asked for.",
        r#"{"client": {"name": "desk", "version": "1.0"}, "protocol": {"min": 1, "max": 1}}"#,
    ),
    row("gateway.ping", Reads, "Answers at once.", "{}"),
    row(
        "gateway.status",
        Reads,
        "Says how the daemon is and what is live.",
        "{}",
    ),
    row(
        "gateway.drain",
        Changes,
        "Stops the daemon in order: nothing new starts, runs stop at their next step.",
        r#"{"then": "stop"}"#,
    ),
    row(
        "gateway.audit",
        Reads,
        "Lists who changed what, newest first.",
        r#"{"method": "sessions.spawn"}"#,
    ),
    row(
        "gateway.config",
        Reads,
        "Gives the settings in force, and where each comes from.",
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
        "Makes a session, or gives the one that is there.",
        r#"{"agent": "build", "key": "agent:build:desk", "label": "desk"}"#,
    ),
    row(
        "sessions.spawn",
        Changes,
        "Starts a run in a session of its own. Once it is accepted, it is in the store.",
        r#"{"task": "Where does it start?", "runId": "01936f0e-0000-7000-8000-000000000001", "agent": "explore"}"#,
    ),
    row(
        "sessions.get",
        Reads,
        "Gives one session.",
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
        "Gives a part of a session's transcript, oldest first.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.inbox",
        Reads,
        "Lists how the runs ended that this session asked for.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.ack",
        Changes,
        "Takes note of announces; acknowledged ones may be forgotten in time.",
        r#"{"sessionKey": "agent:build:desk", "announceIds": []}"#,
    ),
    row(
        "agent.run",
        Changes,
        "Queues a turn in a session, which is made if there is none.",
        r#"{"sessionKey": "agent:build:desk", "message": "What is in here?"}"#,
    ),
    row(
        "agent.wait",
        Reads,
        "Waits until runs have ended, or says how they are when the window is over.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.get",
        Reads,
        "Gives one run with its whole result.",
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
        "Gives a part of what a tool has answered, also where the transcript shows a cut.",
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
        "Lists the agents that there are, by name.",
        r#"{"for": "people"}"#,
    ),
    row(
        "agents.get",
        Reads,
        "Gives one agent.",
        r#"{"agent": "explore"}"#,
    ),
    row(
        "tools.list",
        Reads,
        "Gives the exact tools of an agent, with their schemas.",
        r#"{"agent": "explore"}"#,
    ),
    row(
        "mcp.list",
        Reads,
        "Lists the servers of tools, how each is, and what it offers.",
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
        "Stores another definition of an agent in place of the one that is stored.",
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
        "Lists the skills of a folder, by name, and the files that could not be taken.",
        "{}",
    ),
    row(
        "skills.snapshot",
        Reads,
        "Gives what a run that began now would have of skills.",
        r#"{"agent": "build"}"#,
    ),
    row(
        "skills.refresh",
        Changes,
        "Looks at skills again, of one folder or of all.",
        "{}",
    ),
    row(
        "trust.add",
        Changes,
        "Trusts what a project's files say as they are now.",
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
        "Trusts a project no more.",
        r#"{"folder": "/srv/project"}"#,
    ),
    row(
        "gateway.backup",
        Changes,
        "Copies the whole store, as of one moment, into a new file, and checks the copy.",
        "{}",
    ),
    row(
        "gateway.doctor",
        Reads,
        "Examines the store, its files and what surrounds them.",
        "{}",
    ),
    row(
        "memory.list",
        Reads,
        "Lists what agents keep in their long-term memory, newest first.",
        r#"{"namespace": "build"}"#,
    ),
    row(
        "memory.search",
        Reads,
        "Finds memories by their words, the best match first.",
        r#"{"query": "deploy day"}"#,
    ),
    row(
        "memory.delete",
        Changes,
        "Takes memories out for good.",
        r#"{"ids": ["01936f0e-0000-7000-8000-000000000009"]}"#,
    ),
    row(
        "usage.summary",
        Reads,
        "Sums up runs, how they ended, how long they took and what they cost.",
        r#"{"by": "agent"}"#,
    ),
    row(
        "questions.answer",
        Changes,
        "Answers what a run asks; the answer goes back to that run.",
        r#"{"id": "01936f0e-0000-7000-8000-000000000003", "text": "the second one"}"#,
    ),
    row(
        "questions.list",
        Reads,
        "Lists what runs ask people.",
        r#"{"sessionKey": "agent:build:desk", "tree": true}"#,
    ),
    row(
        "approvals.list",
        Reads,
        "Lists calls of tools that need a person's leave.",
        r#"{"sessionKey": "agent:build:desk", "tree": true}"#,
    ),
    row(
        "approvals.resolve",
        Changes,
        "Allows or denies a call of a tool.",
        r#"{"id": "01936f0e-0000-7000-8000-000000000003", "decision": "allow"}"#,
    ),
    row(
        "approvals.remembered",
        Reads,
        "Lists the decisions that count for later calls.",
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
        "Ends a run and everything below it.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.steer",
        Changes,
        "Says something to a run in the middle of its turn.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "message": "Look at the tests first."}"#,
    ),
    row(
        "runs.resolve",
        Changes,
        "Says whether a call has happened that was cut off by a kill, or ends its run.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "stepId": "01936f0e-0000-7000-8000-000000000002", "decision": "done"}"#,
    ),
    row(
        "runs.provide_env",
        Changes,
        "Gives values to a run's environment; a run that holds still for them goes on.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001", "env": {"GH_TOKEN": {"from": "env:GH_TOKEN"}}}"#,
    ),
    row(
        "runs.retry",
        Changes,
        "Does the work of a run that has ended again, as a new run.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.retry_announce",
        Changes,
        "Tells a run's end once more: a wake run shows it.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "runs.dismiss_announce",
        Changes,
        "Decides that a run's end need not be told.",
        r#"{"runId": "01936f0e-0000-7000-8000-000000000001"}"#,
    ),
    row(
        "sessions.cancel",
        Changes,
        "Ends what goes on in a session and below it, or everything of its conversation.",
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
        "Empties a session's transcript and keeps its address.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.send",
        Changes,
        "Says something in a session and waits for the reply of its agent.",
        r#"{"message": "What is new?", "sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.delete",
        Changes,
        "Removes a session with its transcript.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "sessions.compact",
        Changes,
        "Shortens what a model sees of a session, behind the turns that wait in it.",
        r#"{"sessionKey": "agent:build:desk"}"#,
    ),
    row(
        "events.subscribe",
        Reads,
        "Gives what happens from now on, or from a cursor on; on a WebSocket only.",
        r#"{"since": 0}"#,
    ),
    row(
        "events.unsubscribe",
        Reads,
        "Ends a subscription of this connection.",
        r#"{"subscription": "01936f0e-0000-7000-8000-000000000003"}"#,
    ),
];
