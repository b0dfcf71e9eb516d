//! The table of all methods: one row a method, with the types of its parameters and result. Every
//! method has its handler in `gateway/methods`.
//!
//! A row states its summary, its effect, who may call it, and example parameters. Columns that are
//! left out have the defaults of [`MethodRow`].

use super::method::{Access, Concerns, Dispatch, Effect, Method, MethodRow, Requires, methods};
use super::{
    agents, approvals, audit, config, environment, events, gateway, lifecycle, maintenance, memory,
    nodes, questions, runs, servers, session_servers, sessions, shapes, skills, tokens, trust,
    usage, webhooks,
};
use crate::kernel::scope::Scope;

methods! {
    "rpc.discover": gateway::Discover => gateway::OpenRpc {
        "Returns this document.",
        Reads by Program, example {},
        scope: None,
    }
    "gateway.hello": gateway::Hello => gateway::Welcome {
        "Returns the daemon's version, protocol, methods and limits.",
        Reads by Program, example {"client": {"name": "desk", "version": "1.0"}, "protocol": {"min": 1, "max": 1}},
        scope: None,
        requires: Requires::Nothing,
    }
    "gateway.ping": gateway::Ping => gateway::Empty {
        "Checks that the daemon answers.",
        Reads by Program, example {},
        scope: None,
        requires: Requires::Nothing,
    }
    "gateway.status": gateway::GetStatus => gateway::Status {
        "Returns the daemon's state and counts of live objects.",
        Reads by Socket, example {},
        requires: Requires::Nothing, command: Some("abide status"),
    }
    "gateway.drain": gateway::Drain => gateway::Draining {
        "Drains the daemon: no new work starts, and runs stop at their next step.",
        Changes by Socket, example {"then": "stop"},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        requires: Requires::Start, command: Some("abide stop"),
    }
    "gateway.cancel_runs": lifecycle::CancelAllRuns => lifecycle::CancelledRuns {
        "Cancels the open runs of all orgs, the oldest 500 of them.",
        Changes by Socket, example {"reason": "maintenance"},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide service stop --with-runs"),
    }
    "gateway.audit": audit::ListAudit => audit::Audit {
        "Lists audited calls, newest first.",
        Reads by Socket, example {"method": "sessions.spawn"},
        scope: Some(Scope::Admin),
        command: Some("abide audit"),
    }
    "gateway.config": config::GetConfig => config::Config {
        "Returns the settings in force and the origin of each.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide config show"),
    }
    "gateway.reload": config::ReloadConfig => config::Reloaded {
        "Reads the configuration again and applies what needs no restart.",
        Changes by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        requires: Requires::Start, command: Some("abide config reload"),
    }
    "gateway.backup": maintenance::Backup => maintenance::BackupMade {
        "Writes a consistent backup of the store to a new file and checks it.",
        Changes by Token, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide backup"),
    }
    "gateway.doctor": maintenance::Examine => maintenance::Examined {
        "Checks the store, its files and the daemon's environment.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide doctor"),
    }
    "sessions.create": sessions::Create => sessions::Created {
        "Creates a session, or returns the existing one.",
        Changes by Socket, example {"agent": "build", "key": "agent:build:desk", "label": "desk"},
        requires: Requires::Intake, object: &["key"],
    }
    "sessions.spawn": sessions::Spawn => sessions::Spawned {
        "Starts a run in its own session. The run is stored before the call returns.",
        Changes by Socket, example {"task": "Where does it start?", "runId": "01936f0e-0000-7000-8000-000000000001", "agent": "explore"},
        requires: Requires::Intake, object: &["parent"], unsupported: &["attachments"],
        command: Some("abide spawn"),
    }
    "sessions.get": sessions::GetSession => shapes::Session {
        "Returns one session.",
        Reads by Program, example {"sessionKey": "agent:build:desk"},
        object: &["sessionKey"], command: Some("abide sessions"),
    }
    "sessions.list": sessions::ListSessions => sessions::Sessions {
        "Lists sessions, newest first.",
        Reads by Socket, example {"kind": "all"},
        command: Some("abide sessions"),
    }
    "sessions.history": sessions::GetHistory => sessions::History {
        "Returns a part of a session's transcript, oldest first.",
        Reads by Program, example {"sessionKey": "agent:build:desk"},
        object: &["sessionKey"], command: Some("abide history"),
    }
    "sessions.inbox": sessions::GetInbox => sessions::Inbox {
        "Lists the results of the runs that this session requested.",
        Reads by Socket, example {"sessionKey": "agent:build:desk"},
        command: Some("abide inbox"),
    }
    "sessions.ack": sessions::Ack => sessions::Acked {
        "Acknowledges announces; acknowledged ones are subject to retention.",
        Changes by Socket, example {"sessionKey": "agent:build:desk", "announceIds": []},
        object: &["sessionKey"], command: Some("abide inbox --ack"),
    }
    "sessions.cancel": lifecycle::CancelSession => lifecycle::Cancelled {
        "Cancels the work of a session and its descendants, or of its whole conversation.",
        Changes by Socket, example {"sessionKey": "agent:build:desk", "all": true},
        object: &["sessionKey"], command: Some("abide cancel"),
    }
    "sessions.patch": lifecycle::PatchSession => shapes::Session {
        "Changes a session's label, title, agent, model, thinking level or folder.",
        Changes by Socket, example {"sessionKey": "agent:build:desk", "title": "At the desk"},
        object: &["sessionKey"], command: Some("abide sessions patch"),
    }
    "sessions.set_servers": session_servers::SetServers => session_servers::ServersSet {
        "Sets the MCP servers that belong to a session, and lists their tools.",
        Changes by Token, example {"sessionKey": "agent:build:desk", "servers": []},
        dispatch: Dispatch::Waits, object: &["sessionKey"],
    }
    "sessions.reset": lifecycle::ResetSession => shapes::Session {
        "Starts a new generation of a session; models no longer see earlier messages.",
        Changes by Socket, example {"sessionKey": "agent:build:desk"},
        object: &["sessionKey"], command: Some("abide sessions reset"),
    }
    "sessions.send": sessions::Send => sessions::Sent {
        "Sends a message to a session and waits for its agent's reply.",
        Changes by Socket, example {"message": "What is new?", "sessionKey": "agent:build:desk"},
        requires: Requires::Intake, dispatch: Dispatch::Waits, command: Some("abide send"),
    }
    "sessions.delete": lifecycle::DeleteSession => lifecycle::Deleted {
        "Deletes a session with its transcript.",
        Changes by Socket, example {"sessionKey": "agent:build:desk"},
        object: &["sessionKey"], command: Some("abide sessions delete"),
    }
    "sessions.compact": lifecycle::CompactSession => lifecycle::Compacting {
        "Queues the compaction of a session's context, behind its waiting turns.",
        Changes by Socket, example {"sessionKey": "agent:build:desk"},
        object: &["sessionKey"], command: Some("abide sessions compact"),
    }
    "agent.run": runs::Turn => runs::TurnAccepted {
        "Queues a turn in a session, which is created if it does not exist.",
        Changes by Socket, example {"sessionKey": "agent:build:desk", "message": "What is in here?"},
        requires: Requires::Intake, object: &["sessionKey"], unsupported: &["attachments"],
        command: Some("abide chat"),
    }
    "agent.wait": runs::Wait => runs::Waited {
        "Waits until runs have ended, or returns their state when the timeout passes.",
        Reads by Program, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        dispatch: Dispatch::Waits, object: &["runId", "runIds"], command: Some("abide wait"),
    }
    "runs.get": runs::GetRun => shapes::Run {
        "Returns one run with its complete result.",
        Reads by Program, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        object: &["runId"], command: Some("abide wait"),
    }
    "runs.list": runs::ListRuns => runs::Runs {
        "Lists runs, newest first.",
        Reads by Socket, example {"sessionKey": "agent:build:desk"},
        command: Some("abide ps"),
    }
    "runs.output": runs::GetOutput => runs::Output {
        "Returns a part of a tool's output, even if the output is truncated in the transcript.",
        Reads by Socket, example {"runId": "01936f0e-0000-7000-8000-000000000001", "toolCallId": "call-1", "offset": 0},
    }
    "runs.steps": runs::ListSteps => runs::Steps {
        "Lists the journal of a run, oldest first.",
        Reads by Program, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        object: &["runId"], command: Some("abide logs"),
    }
    "runs.cancel": lifecycle::CancelRun => lifecycle::Cancelled {
        "Cancels a run and its descendants.",
        Changes by Program, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        object: &["runId"], command: Some("abide cancel"),
    }
    "runs.steer": lifecycle::Steer => lifecycle::Steered {
        "Adds a message to a run in the middle of its turn.",
        Changes by Socket, example {"runId": "01936f0e-0000-7000-8000-000000000001", "message": "Look at the tests first."},
        object: &["runId"], command: Some("abide steer"),
    }
    "runs.resolve": lifecycle::ResolveRun => shapes::Run {
        "Settles whether a call interrupted by a crash happened, or ends its run.",
        Changes by Token, example {"runId": "01936f0e-0000-7000-8000-000000000001", "stepId": "01936f0e-0000-7000-8000-000000000002", "decision": "done"},
        object: &["runId"], command: Some("abide review"),
    }
    "runs.provide_env": environment::ProvideEnv => shapes::Run {
        "Provides values for a run's environment; a run paused for them continues.",
        Changes by Token, example {"runId": "01936f0e-0000-7000-8000-000000000001", "env": {"GH_TOKEN": {"from": "env:GH_TOKEN"}}},
        object: &["runId"], command: Some("abide env"),
    }
    "runs.retry": lifecycle::RetryRun => lifecycle::Retried {
        "Repeats the work of an ended run as a new run.",
        Changes by Socket, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        requires: Requires::Intake, object: &["runId"], command: Some("abide retry"),
    }
    "runs.retry_announce": lifecycle::RetryAnnounce => lifecycle::AnnounceDecided {
        "Announces a run's result again in a wake run.",
        Changes by Socket, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        requires: Requires::Intake, object: &["runId"], command: Some("abide inbox --retry"),
    }
    "runs.dismiss_announce": lifecycle::DismissAnnounce => lifecycle::AnnounceDecided {
        "Dismisses the announce of a run's result.",
        Changes by Socket, example {"runId": "01936f0e-0000-7000-8000-000000000001"},
        object: &["runId"], command: Some("abide inbox --dismiss"),
    }
    "agents.list": agents::ListAgents => agents::Agents {
        "Lists the agents, sorted by name.",
        Reads by Program, example {"for": "people"},
        command: Some("abide agents"),
    }
    "agents.get": agents::GetAgent => agents::Agent {
        "Returns one agent.",
        Reads by Program, example {"agent": "explore"},
        command: Some("abide agents show"),
    }
    "agents.create": agents::CreateAgent => agents::Agent {
        "Stores an agent's definition.",
        Changes by Token, example {"name": "scout", "definition": {"description": "Looks ahead.", "mode": "subagent"}},
        scope: Some(Scope::Admin),
        object: &["name"], command: Some("abide agents create"),
    }
    "agents.update": agents::UpdateAgent => agents::Agent {
        "Replaces the stored definition of an agent.",
        Changes by Token, example {"agent": "scout", "definition": {"description": "Looks far ahead.", "mode": "subagent"}},
        scope: Some(Scope::Admin),
        object: &["agent"],
    }
    "agents.delete": agents::DeleteAgent => agents::Deleted {
        "Removes a stored agent.",
        Changes by Token, example {"agent": "scout"},
        scope: Some(Scope::Admin),
        object: &["agent"], command: Some("abide agents delete"),
    }
    "agents.reload": agents::ReloadAgents => agents::Agents {
        "Reads the agents' files again.",
        Changes by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide agents reload"),
    }
    "tools.list": servers::ListTools => servers::Tools {
        "Returns the exact tools of an agent, with their schemas.",
        Reads by Socket, example {"agent": "explore"},
    }
    "mcp.list": servers::ListServers => servers::Servers {
        "Lists the MCP servers with their state and tools.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide mcp"),
    }
    "skills.list": skills::ListSkills => skills::Skills {
        "Lists the skills of a workspace by name, and the files that could not be loaded.",
        Reads by Socket, example {},
        command: Some("abide skills"),
    }
    "skills.snapshot": skills::TakeSnapshot => skills::Snapshot {
        "Returns the skills that a run starting now would pin.",
        Reads by Socket, example {"agent": "build"},
    }
    "skills.refresh": skills::RefreshSkills => skills::Refreshed {
        "Reloads the skills of one workspace or of all.",
        Changes by Socket, example {},
        object: &["sessionKey", "workspace"], command: Some("abide skills refresh"),
    }
    "tokens.create": tokens::CreateToken => tokens::CreatedToken {
        "Creates an access token for a user of an org. Its text is returned once.",
        Changes by Token, example {"user": "ann", "scopes": ["read", "run"], "expires": "30d", "label": "laptop"},
        scope: Some(Scope::Admin), command: Some("abide tokens create"),
    }
    "tokens.list": tokens::ListTokens => tokens::Tokens {
        "Lists access tokens, newest first, without their texts.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), command: Some("abide tokens"),
    }
    "tokens.revoke": tokens::RevokeToken => tokens::Token {
        "Revokes an access token: it is refused at once, and its connections are closed.",
        Changes by Token, example {"id": "01936f0e-0000-7000-8000-000000000004"},
        scope: Some(Scope::Admin), object: &["id"], command: Some("abide tokens revoke"),
    }
    "trust.add": trust::TrustProject => trust::Project {
        "Trusts the present content of a project's files.",
        Changes by Token, example {"folder": "/srv/project"},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        object: &["folder"], command: Some("abide trust"),
    }
    "trust.list": trust::ListProjects => trust::Projects {
        "Lists the projects that are trusted, by folder.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide trust"),
    }
    "trust.revoke": trust::RevokeTrust => trust::Revoked {
        "Revokes the trust in a project.",
        Changes by Token, example {"folder": "/srv/project"},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        object: &["folder"], command: Some("abide trust --revoke"),
    }
    "memory.list": memory::ListMemories => memory::Memories {
        "Lists the long-term memories of agents, newest first.",
        Reads by Socket, example {"namespace": "build"},
        command: Some("abide memory"),
    }
    "memory.search": memory::SearchMemories => memory::FoundMemories {
        "Searches memories by words, best match first.",
        Reads by Socket, example {"query": "deploy day"},
        command: Some("abide memory search"),
    }
    "memory.delete": memory::DeleteMemories => memory::DeletedMemories {
        "Deletes memories permanently.",
        Changes by Socket, example {"ids": ["01936f0e-0000-7000-8000-000000000009"]},
        object: &["ids"], command: Some("abide memory delete"),
    }
    "nodes.list": nodes::ListNodes => nodes::NodeList {
        "Lists the paired nodes, those that wait to be admitted, and their questions.",
        Reads by Socket, example {},
        scope: Some(Scope::Node), command: Some("abide nodes"),
    }
    "nodes.get": nodes::GetNode => nodes::Node {
        "Returns one paired node.",
        Reads by Socket, example {"node": "mac"},
        scope: Some(Scope::Node), command: Some("abide nodes show"),
    }
    "nodes.approve": nodes::ApproveNode => nodes::Node {
        "Admits a waiting node, or approves what a paired node offers.",
        Changes by Token, example {"code": "ABCD-2345"},
        scope: Some(Scope::Node), object: &["node", "code"], command: Some("abide nodes approve"),
    }
    "nodes.refuse": nodes::RefuseNode => nodes::RefusedNode {
        "Refuses a waiting node, or denies what is pending of a paired node's offer.",
        Changes by Token, example {"code": "ABCD-2345"},
        scope: Some(Scope::Node), object: &["node", "code"], command: Some("abide nodes refuse"),
    }
    "nodes.invite": nodes::InviteNode => nodes::NodeInvitation {
        "Makes a setup code, which pairs one node within ten minutes.",
        Changes by Token, example {"name": "mac"},
        scope: Some(Scope::Node), object: &["name"], command: Some("abide nodes invite"),
    }
    "nodes.rename": nodes::RenameNode => nodes::Node {
        "Renames a node.",
        Changes by Token, example {"node": "mac", "name": "studio"},
        scope: Some(Scope::Node), object: &["node"], command: Some("abide nodes rename"),
    }
    "nodes.remove": nodes::RemoveNode => nodes::RemovedNode {
        "Removes a node: it is cut off at once, and must be paired again.",
        Changes by Token, example {"node": "mac"},
        scope: Some(Scope::Node), object: &["node"], command: Some("abide nodes remove"),
    }
    "nodes.answer": nodes::AnswerNode => gateway::Empty {
        "Answers a question of a node's allow-list.",
        Changes by Token, example {"id": "01936f0e-0000-7000-8000-000000000001", "digest": "9f86d081", "decision": "allow"},
        scope: Some(Scope::Node), object: &["id"], command: Some("abide nodes answer"),
    }
    "nodes.call": nodes::CallNode => nodes::NodeCallEnded {
        "Carries out a command on a node and returns how it ended.",
        Changes by Token, example {"node": "mac", "call": {"command": "system.which", "programs": ["git"]}},
        scope: Some(Scope::Node), object: &["node"], dispatch: Dispatch::Waits,
        command: Some("abide nodes run"),
    }
    "webhooks.list": webhooks::ListWebhooks => webhooks::Webhooks {
        "Lists the receivers of events with their state and what they have not got yet.",
        Reads by Socket, example {},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide webhooks"),
    }
    "webhooks.dead": webhooks::ListDeadLetters => webhooks::DeadLetters {
        "Lists the events that a webhook has given up, newest first.",
        Reads by Socket, example {"webhook": "audit"},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        command: Some("abide webhooks dead"),
    }
    "webhooks.replay": webhooks::ReplayDeadLetters => webhooks::ReplayedDeadLetters {
        "Delivers dead letters of a webhook again.",
        Changes by Token, example {"webhook": "audit", "ids": [7]},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        object: &["webhook"], command: Some("abide webhooks replay"),
    }
    "webhooks.drop": webhooks::DropDeadLetters => webhooks::DroppedDeadLetters {
        "Deletes dead letters of a webhook.",
        Changes by Token, example {"webhook": "audit", "ids": [7]},
        scope: Some(Scope::Admin), concerns: Concerns::Daemon,
        object: &["webhook"], command: Some("abide webhooks drop"),
    }
    "usage.summary": usage::Summarize => usage::Summary {
        "Aggregates runs with their outcomes, durations, tokens and cost.",
        Reads by Socket, example {"by": "agent"},
        command: Some("abide usage"),
    }
    "questions.answer": questions::AnswerQuestion => questions::Question {
        "Answers a question of a run; the answer is passed to that run.",
        Changes by Token, example {"id": "01936f0e-0000-7000-8000-000000000003", "text": "the second one"},
        command: Some("abide answer"),
    }
    "questions.list": questions::ListQuestions => questions::Questions {
        "Lists the questions of runs to the user.",
        Reads by Socket, example {"sessionKey": "agent:build:desk", "tree": true},
        command: Some("abide answer"),
    }
    "approvals.list": approvals::ListApprovals => approvals::Approvals {
        "Lists tool calls that need a user's approval.",
        Reads by Socket, example {"sessionKey": "agent:build:desk", "tree": true},
        command: Some("abide approvals"),
    }
    "approvals.resolve": approvals::ResolveApproval => approvals::Approval {
        "Approves or denies a tool call.",
        Changes by Token, example {"id": "01936f0e-0000-7000-8000-000000000003", "decision": "allow"},
        object: &["id"], command: Some("abide approvals allow"),
    }
    "approvals.remembered": approvals::ListRemembered => approvals::RememberedPage {
        "Lists the remembered decisions that apply to later calls.",
        Reads by Socket, example {},
        command: Some("abide approvals remembered"),
    }
    "approvals.forget": approvals::ForgetApproval => approvals::Forgotten {
        "Forgets a remembered decision.",
        Changes by Token, example {"id": "01936f0e-0000-7000-8000-000000000003"},
        object: &["id"], command: Some("abide approvals forget"),
    }
    "events.subscribe": events::SubscribeEvents => String {
        "Subscribes to events from now on or from a cursor; WebSocket only.",
        Reads by Socket, example {"since": 0},
        dispatch: Dispatch::Connection, command: Some("abide events"),
    }
    "events.unsubscribe": events::UnsubscribeEvents => gateway::Empty {
        "Ends a subscription of this connection.",
        Reads by Socket, example {"subscription": "01936f0e-0000-7000-8000-000000000003"},
        dispatch: Dispatch::Connection, positional: Some("subscription"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::SchemaGenerator;
    use serde_json::{Map, Value};

    #[test]
    fn rows_agree_with_the_types_of_their_methods() {
        for row in METHODS {
            let schema = (row.params)(&mut SchemaGenerator::default());
            let example: Map<String, Value> = serde_json::from_str(row.example).unwrap();
            let object = row.object.iter().map(|name| (*name).to_owned());
            let named = object.chain(example.keys().cloned());
            for name in named.chain(row.positional.map(str::to_owned)) {
                let known = schema.get("properties").and_then(|all| all.get(&name));
                assert!(known.is_some(), "{} has no parameter {name}", row.name);
            }
        }
    }

    #[test]
    fn what_only_reads_needs_no_token_and_what_creates_work_changes_something() {
        for row in METHODS {
            let reads = row.effect == Effect::Reads;
            assert!(!reads || row.access > Access::Token, "{}", row.name);
            assert!(!reads || row.requires <= Requires::Start, "{}", row.name);
        }
    }
}
