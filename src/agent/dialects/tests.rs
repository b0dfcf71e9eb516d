//! Fields of other programs with their translation, and files in the shapes of real collections.

use crate::agent::fields::AgentDraft;
use crate::agent::folder::{Dialect, parse};
use crate::agent::raw::{DefinitionFormat, LoadError};
use crate::kernel::policy::gate::{Bundle, CallTarget, Decision, Subject};
use crate::kernel::policy::shell::CommandLine;

use super::*;

const TOOLS: &[&str] = &[
    "read",
    "list",
    "glob",
    "grep",
    "write",
    "edit",
    "shell",
    "fetch",
    "todo",
    "skill",
    "task",
    "sessions_spawn",
    "ask",
];

fn of(dialect: Dialect, header: &str) -> Result<AgentDraft, LoadError> {
    let text = format!("---\nname: some-agent\ndescription: Looks.\n{header}\n---\nLook.\n");
    parse(dialect, DefinitionFormat::Markdown, "stem", text.as_bytes())
}

/// Reads the header in both dialects and asserts equal rights.
fn taken(header: &str) -> AgentDraft {
    let own = of(Dialect::Own, header).unwrap_or_else(|broken| panic!("{header}\n{broken}"));
    let foreign = of(Dialect::Claude, header).unwrap_or_else(|broken| panic!("{header}\n{broken}"));
    assert_eq!(may(&own), may(&foreign), "{header}");
    foreign
}

fn refused(header: &str, says: &str) {
    for dialect in [Dialect::Own, Dialect::Claude] {
        let broken = of(dialect, header).expect_err(header);
        assert!(broken.reason.contains(says), "{header}\n{broken}");
        assert!(broken.line.is_some(), "{header}\n{broken}");
    }
}

fn has(draft: &AgentDraft) -> Vec<String> {
    let all: Vec<String> = TOOLS.iter().map(ToString::to_string).collect();
    let mut chosen = draft.tools.pick(&all).0;
    chosen.retain(|tool| !draft.definition.closes(tool));
    chosen
}

/// The decision on a call, without the tool's default.
fn judge(draft: &AgentDraft, tool: &str, what: &str) -> Decision {
    let subject = Subject {
        things: match tool {
            "shell" => CommandLine::read(what)
                .commands
                .into_iter()
                .map(CallTarget::Command)
                .collect(),
            _ => vec![CallTarget::Named(vec![what.to_owned()])],
        },
        ..Subject::default()
    };
    let rights = draft.definition.rights(Bundle::default());
    rights.judge(tool, Decision::Allow, &subject).decision
}

fn may(draft: &AgentDraft) -> Vec<(String, Decision)> {
    let tools = has(draft).into_iter();
    tools
        .map(|tool| (tool.clone(), judge(draft, &tool, "x")))
        .collect()
}

#[test]
fn a_list_gives_only_what_it_names() {
    for (header, tools) in [
        ("tools: Read, Grep, Glob", &["read", "grep", "glob"][..]),
        (
            "tools: [Read, MultiEdit, NotebookEdit, LS]",
            &["read", "edit", "list"],
        ),
        ("tools:\n  - Read\n  - Bash", &["read", "shell"]),
        ("tools: Read Write", &["read", "write"]),
        ("allowedTools: [Read]", &["read"]),
        ("allowed-tools: Read, Grep", &["read", "grep"]),
        ("allowed_tools: Read", &["read"]),
        ("tools: Read, Write\nallowedTools: Read", &["read"]),
        (
            "tools: [read_file, run_shell_command, replace]",
            &["read", "shell", "edit"],
        ),
        ("tools: [WebSearch, Read]", &["read"]),
        ("tools: []", &[]),
        ("tools: [Read, -Bash]", &["read"]),
        ("tools: [Read, Bash, '!Bash']", &["read"]),
        ("tools: none", &[]),
        (
            "groups: [read]",
            &["read", "list", "glob", "grep", "ask", "todo"],
        ),
        (
            "groups: [read, command]",
            &["read", "list", "glob", "grep", "shell", "ask", "todo"],
        ),
        ("groups: []", &["ask", "todo"]),
        ("tools: Task, Read", &["task", "read"]),
        ("tools: Agent(worker, other one), Read", &["task", "read"]),
        ("tools: Bash(git log:*), Read", &["read", "shell"]),
        ("tools: Edit(src/*.rs), Read", &["read"]),
        (
            "tools: {write: false, edit: false, bash: false}",
            &[
                "read",
                "list",
                "glob",
                "grep",
                "fetch",
                "todo",
                "skill",
                "task",
                "sessions_spawn",
                "ask",
            ],
        ),
    ] {
        let mut expected = tools.to_vec();
        let mut found = has(&taken(header));
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{header}");
    }
    let some = taken("tools: Agent(worker, other one), Read");
    assert_eq!(
        some.definition.allow_agents.unwrap(),
        ["worker", "other-one"]
    );
}

#[test]
fn what_is_denied_is_gone() {
    for (header, gone) in [
        ("disallowedTools: Write, Edit", &["write", "edit"][..]),
        ("disallowedTools: [Bash, WebFetch]", &["shell", "fetch"]),
        ("disallowed-tools: Bash", &["shell"]),
        ("deniedTools: [Write]", &["write"]),
        ("disallowedTools: Task", &["task", "sessions_spawn"]),
        (
            "disallowedTools: Agent(worker)",
            &["task", "sessions_spawn"],
        ),
        ("disallowedTools: Skill(x)", &["skill"]),
        ("tools: {deny: [Write]}", &["write"]),
        ("permission: {edit: deny}", &["write", "edit"]),
        (
            "permission: {edit: deny, bash: deny, webfetch: deny}",
            &["write", "edit", "shell", "fetch"],
        ),
        ("permission: {task: deny}", &["task", "sessions_spawn"]),
        ("permission: {skill: {'*': deny, 'a?': allow}}", &["skill"]),
        ("permissions: {deny: [Write, Bash]}", &["write", "shell"]),
        ("permissionMode: plan", &["write", "edit", "shell"]),
        (
            "permissionMode: dontAsk",
            &["write", "edit", "shell", "fetch"],
        ),
        ("readonly: true", &["write", "edit", "shell"]),
        ("read_only: yes", &["write", "edit", "shell"]),
        ("sandbox: read-only", &["write", "edit", "shell"]),
        ("sandbox_mode: read-only", &["write", "edit", "shell"]),
        ("network: false", &["fetch", "shell"]),
        ("gate: {Bash: deny}", &["shell"]),
        ("bash: deny", &["shell"]),
        ("edit: false", &["write", "edit"]),
        ("Write: 'off'", &["write"]),
        ("WebFetch: never", &["fetch"]),
        ("task: deny", &["task", "sessions_spawn"]),
        ("can_write: false", &["write", "edit", "shell"]),
        ("canExecute: 'no'", &["shell"]),
        ("allow_network: false", &["fetch", "shell"]),
        ("internet: false", &["fetch", "shell"]),
    ] {
        let list = match header.starts_with("tools") {
            true => String::new(),
            false => format!("tools: [{}]\n", TOOLS.join(", ")),
        };
        let found = has(&taken(&(list + header)));
        for tool in gone {
            assert!(!found.contains(&(*tool).to_owned()), "{header}: {found:?}");
        }
        assert!(found.contains(&"read".to_owned()), "{header}: {found:?}");
    }
    // A list that only removes tools keeps the others.
    for header in [
        "tools: [-Bash]",
        "tools: ['!Bash', '*']",
        "tools: ['*', '-Bash']",
        "tools: '!Bash'",
    ] {
        let found = has(&taken(header));
        assert!(!found.contains(&"shell".to_owned()), "{header}: {found:?}");
        assert!(found.contains(&"write".to_owned()), "{header}: {found:?}");
    }
    let found = has(&taken("tools: ['*', '!Write', '-edit']"));
    assert!(
        !found.iter().any(|tool| tool == "write" || tool == "edit"),
        "{found:?}"
    );
    assert!(has(&taken("permission: deny")).is_empty());
    assert!(taken("disable: true").definition.inactive);
    assert!(taken("enabled: false").definition.inactive);
    assert_eq!(
        taken("disallowedTools: Task").definition.allow_agents,
        Some(Vec::new())
    );
}

#[test]
fn calls_are_narrowed_as_they_are_described() {
    use Decision::{Allow, Ask, Deny};
    for (header, tool, what, expected) in [
        ("tools: Bash(git log:*)", "shell", "git log -5", Allow),
        ("tools: Bash(git log:*)", "shell", "git log", Allow),
        ("tools: Bash(git log:*)", "shell", "git logs", Deny),
        ("tools: Bash(git log:*)", "shell", "git push", Deny),
        ("tools: Bash(git log:*)", "shell", "git log; rm x", Deny),
        ("tools: Bash(npm test)", "shell", "npm test", Allow),
        ("tools: Bash(npm test)", "shell", "npm test x", Deny),
        ("tools: Bash, Bash(git log:*)", "shell", "rm x", Allow),
        (
            "tools: WebFetch(domain:example.org)",
            "fetch",
            "example.org",
            Allow,
        ),
        (
            "tools: WebFetch(domain:example.org)",
            "fetch",
            "example.com",
            Deny,
        ),
        ("tools: Edit(/src/**)", "edit", "src/deep/a.rs", Allow),
        ("tools: Edit(/src/**)", "edit", "docs/a.md", Deny),
        ("disallowedTools: Bash(rm:*)", "shell", "rm -rf x", Deny),
        ("disallowedTools: Bash(rm:*)", "shell", "ls", Allow),
        ("disallowedTools: Read(.env)", "read", "sub/.env", Deny),
        (
            "disallowedTools: Read(secrets/**)",
            "grep",
            "secrets/a/b",
            Deny,
        ),
        ("disallowedTools: Edit(src/**)", "write", "src/a", Deny),
        ("disallowedTools: Edit(src/**)", "write", "docs/a", Allow),
        (
            "permission: {bash: {'*': ask, 'git push *': deny, 'ls *': allow}}",
            "shell",
            "git push",
            Deny,
        ),
        (
            "permission: {bash: {'*': ask, 'git push *': deny, 'ls *': allow}}",
            "shell",
            "ls -l",
            Allow,
        ),
        (
            "permission: {bash: {'*': ask, 'git push *': deny, 'ls *': allow}}",
            "shell",
            "cat x",
            Ask,
        ),
        (
            "permission: {edit: {'*': deny, 'docs/**': allow}}",
            "write",
            "docs/a.md",
            Allow,
        ),
        (
            "permission: {edit: {'*': deny, 'docs/**': allow}}",
            "edit",
            "src/a.rs",
            Deny,
        ),
        ("permission: {edit: ask}", "write", "a", Ask),
        ("permission: {'*': deny, read: allow}", "read", "a", Allow),
        ("permission: {'*': deny, read: allow}", "grep", "a", Deny),
        ("permission: {read: allow, '*': deny}", "read", "a", Deny),
        ("permission: {external_directory: deny}", "shell", "ls", Ask),
        (
            "permission: {my_server_tool: deny}",
            "my_server__tool",
            "{}",
            Deny,
        ),
        (
            "permissions: {ask: [\"Bash(git push:*)\"], allow: [Bash]}",
            "shell",
            "git push",
            Ask,
        ),
        ("permissionMode: default", "write", "a", Ask),
        ("permissionMode: acceptEdits", "write", "a", Allow),
        ("permissionMode: bypassPermissions", "write", "a", Allow),
        (
            "permissionMode: plan\ntools: 'Read, Bash(git:*)'",
            "shell",
            "git log",
            Deny,
        ),
        (
            "tools: 'Read, Bash(git:*)'\npermissionMode: plan",
            "shell",
            "git log",
            Deny,
        ),
        ("isolation: worktree", "write", "a", Ask),
        ("sandbox: workspace-write", "shell", "ls", Ask),
        ("readonly: true", "files__write", "{}", Ask),
        (
            "hooks: {PreToolUse: [{matcher: 'Bash|Edit', hooks: []}]}",
            "shell",
            "ls",
            Ask,
        ),
        (
            "hooks: {PreToolUse: [{matcher: 'Bash|Edit', hooks: []}]}",
            "write",
            "a",
            Allow,
        ),
        ("hooks: {PreToolUse: [{hooks: []}]}", "write", "a", Ask),
        ("hooks: {PostToolUse: [{hooks: []}]}", "write", "a", Allow),
    ] {
        assert_eq!(
            judge(&taken(header), tool, what),
            expected,
            "{header}: {tool} {what}"
        );
    }
}

#[test]
fn tools_of_servers_are_named_as_other_programs_do() {
    for (header, yes, no) in [
        (
            "tools: mcp__files__read_text",
            "files__read_text",
            "files__write",
        ),
        ("tools: mcp__files", "files__write", "web__get"),
        ("tools: mcp__files__*", "files__write", "web__get"),
        (
            "tools: [files/read_text, Read]",
            "files__read_text",
            "files__write",
        ),
        ("tools: ['@files', Read]", "files__write", "web__get"),
        ("tools: [Read, 'mcp_*']", "files__write", "read_not"),
        (
            "disallowedTools: mcp__files__write",
            "files__read_text",
            "files__write",
        ),
        ("disallowedTools: mcp__files", "web__get", "files__write"),
        ("tools: {'files_*': false}", "web__get", "files__write"),
    ] {
        let tools = taken(header).tools;
        assert!(tools.takes_served(yes, false), "{header}: {yes}");
        assert!(!tools.takes_served(no, false), "{header}: {no}");
    }
}

#[test]
fn what_looks_like_a_restriction_and_is_none_here_is_refused() {
    for (header, says) in [
        ("toools: [Read]", "did you mean \"tools\""),
        ("allowdTools: [Read]", "looks like a restriction"),
        ("dissalowedTools: [Bash]", "looks like a restriction"),
        ("permisions: {edit: deny}", "looks like a restriction"),
        (
            "toolsSettings: {write: {paths: [a]}}",
            "looks like a restriction",
        ),
        ("write_scop: own", "did you mean \"write_scope\""),
        ("approval_settings: strict", "looks like a restriction"),
        ("execution: {max_lops: 3}", "did you mean \"max_loops\""),
        (
            "linked_agents: [{agent: b, timeuot: 5}]",
            "looks like a restriction",
        ),
        ("permission: {edt: deny}", "tool \"edt\" is unknown"),
        ("tools: all except Bash", "is not a tool"),
        ("tools: everything but Bash", "is not a tool"),
        ("tools: 'Read, no Bash'", "is not a tool"),
        ("tools: ['-Wirte']", "did you mean \"write\""),
        ("groups: [read, [edit, {fileRegex: '\\.md$'}]]", "fileRegex"),
        ("groups: [engineering]", "read, edit, browser"),
        ("can_fly: false", "looks like a restriction"),
        ("zebra: deny", "looks like a restriction"),
        ("zebra: false", "looks like a restriction"),
        ("paths: [src]", "looks like a restriction"),
        ("fileRegex: '\\.md$'", "looks like a restriction"),
        ("settings: {bash: deny}", "looks like a restriction"),
        ("settings: {network: false}", "looks like a restriction"),
        ("execution: {zebra: false}", "looks like a restriction"),
        ("can_write: perhaps", "true or false"),
        ("permission: {edit: never}", "allow, ask, deny"),
        ("permission: {edit: {'*': 7}}", "allow, ask or deny"),
        ("permissionMode: strict", "not one of"),
        ("sandbox: true", "is expected"),
        ("sandbox: some", "not one of"),
        ("readonly: perhaps", "true or false"),
        ("disallowedTools: [Wirte]", "did you mean \"write\""),
        ("disallowedTools: Bassh", "tool \"Bassh\" is unknown"),
        ("tools: {wirte: false}", "did you mean \"write\""),
        ("gate: {shel: deny}", "did you mean \"shell\""),
        (
            "gate: {wirte: [{match: a, decision: ask}]}",
            "did you mean \"write\"",
        ),
    ] {
        refused(header, says);
    }
    // Fields that only describe are ignored.
    for header in [
        "tags: [a]",
        "version: 1",
        "capabilities: [looking]",
        "category: x",
        "color: red",
        "background: false",
        "user-invocable: false",
        "disable-model-invocation: true",
        "argument-hint: 'Name it, or say no'",
        "handoffs: [{label: Go, agent: b, send: false}]",
        "proactive: false",
        "search: how it looks for things",
        "slug: architect",
        "whenToUse: When a plan is due.",
        "metadata: {version: 1.0, stable: false}",
        "keywords: [deny, gate]",
    ] {
        taken(header);
    }
}

#[test]
fn whom_an_agent_may_call_is_understood() {
    assert_eq!(
        taken("agents: ['SWE', 'QA one']").definition.allow_agents,
        Some(vec!["SWE".to_owned(), "qa-one".to_owned()])
    );
    let both = "tools: 'Read, Agent(a)'\nagents: [a, b]";
    assert_eq!(
        taken(both).definition.allow_agents,
        Some(vec!["a".to_owned()])
    );
    assert_eq!(taken("agents: ['*']").definition.allow_agents, None);
    assert_eq!(
        taken("agents: []").definition.allow_agents,
        Some(Vec::new())
    );
}

#[test]
fn limits_of_other_programs_hold() {
    assert_eq!(taken("maxTurns: 7").definition.max_loops, 7);
    assert_eq!(
        taken("steps: 7\nexecution: {max_loops: 20}")
            .definition
            .max_loops,
        7
    );
    assert_eq!(
        taken("max_turns: 70\nexecution: {max_loops: 20}")
            .definition
            .max_loops,
        20
    );
    assert_eq!(taken("maxTurns: 70").definition.max_loops, 70);
    assert_eq!(
        taken("timeout_mins: 2").definition.run_timeout_ms,
        Some(120_000)
    );
    assert_eq!(
        taken("timeout: 90s").definition.run_timeout_ms,
        Some(90_000)
    );
    assert_eq!(
        taken("allowAgents: [b]").definition.allow_agents.unwrap(),
        ["b"]
    );
    assert_eq!(
        taken("writeScope: none")
            .definition
            .write_scope
            .unwrap()
            .as_str(),
        "none"
    );
}

#[test]
fn every_tool_of_this_program_is_known_by_name() {
    use crate::tool::{Catalogue, ToolOptions};
    for schema in Catalogue::new(ToolOptions::default()).schemas() {
        let name = schema["name"].as_str().unwrap();
        let is_prefix = name.ends_with('_');
        assert!(is_prefix || OURS.contains(&name), "{name}");
    }
}

/// A file in the shape of a real one: its file name, content, agent name and title, tools, and
/// warnings.
type Fixture = (
    &'static str,
    &'static str,
    (&'static str, Option<&'static str>),
    &'static [&'static str],
    &'static [&'static str],
);

const ALL: &[&str] = &["*"];

#[rustfmt::skip]
const FIXTURES: &[Fixture] = &[
    ("code-reviewer",
     "name: code-reviewer\ndescription: Use after edits. Looks for faults.\ntools: Read, Grep, Glob, Bash\nmodel: sonnet\ncolor: cyan",
     ("code-reviewer", None), &["read", "grep", "glob", "shell"], &["model sonnet"]),
    ("blanks",
     "name: Release Notes Writer\ndescription: Writes notes.\nmodel: inherit",
     ("release-notes-writer", Some("Release Notes Writer")), ALL, &["release-notes-writer"]),
    ("parens",
     "name: \"API Designer (v2.1)\"\ndescription: Designs.\n",
     ("api-designer-v2.1", Some("API Designer (v2.1)")), ALL, &[]),
    ("around", "name: \"boss \"\ndescription: Leads.\n", ("boss", None), ALL, &[]),
    ("upper", "name: QA_Lead\ndescription: Tests.\n", ("QA_Lead", None), ALL, &[]),
    ("umlaut", "name: Prüferin\ndescription: Prüft.\n", ("pr-ferin", Some("Prüferin")), ALL, &[]),
    ("signs", "name: 代码审查\ndescription: 看。\n", ("signs", Some("代码审查")), ALL, &["signs"]),
    ("Stem With Blanks", "description: Has no name.\n", ("stem-with-blanks", Some("Stem With Blanks")), ALL, &[]),
    ("one-line-example",
     "name: one-line-example\ndescription: Use this agent when code changed. Examples:\\n\\n<example>\\nContext: A change is done.\\nuser: \"Look at it\"\\nassistant: \"I call the agent\"\\n<commentary>\\nIt fits: code changed.\\n</commentary>\\n</example>\nmodel: opus\ncolor: blue",
     ("one-line-example", None), ALL, &["read as text"]),
    ("lines-example",
     "name: lines-example\ndescription: Use this agent when a plan is due. For example:\n\n<example>\nContext: Somebody wants a plan.\nuser: \"Plan the move to the new queue\"\nassistant: \"I'll have the planner do it: it knows queues.\"\n<commentary>\nA plan is wanted: use it.\n</commentary>\n</example>\n\n<example>\nuser: 'Two: three'\nname: not a field\n</example>\ntools: Read, Grep\nmodel: sonnet",
     ("lines-example", None), &["read", "grep"], &["one by one"]),
    ("example-with-tab",
     "name: example-with-tab\ndescription: Use it so: <example>\n\tuser: \"a\"\n\tassistant: \"b: c\"\n</example>\ntools:\n  - Read\n  - Edit\n",
     ("example-with-tab", None), &["read", "edit"], &["one by one"]),
    ("quoted-example",
     "name: quoted-example\ndescription: \"Use it. <example>user: \\\"a\\\"</example>\"\ntools: [Read]\n",
     ("quoted-example", None), &["read"], &[]),
    ("block-example",
     "name: block-example\ndescription: |\n  Use it when:\n  - a: b\n  <example>\n  user: x\n  </example>\ntools: Read\n",
     ("block-example", None), &["read"], &[]),
    ("star", "name: star\ndescription: All.\ntools: *\n", ("star", None), ALL, &["one by one"]),
    ("all-tools", "name: all-tools\ndescription: All.\ntools: All tools\n", ("all-tools", None), ALL, &[]),
    ("dash-list", "name: dash-list\ndescription: d\ntools:\n- Read\n- WebFetch\n- WebSearch\n",
     ("dash-list", None), &["read", "fetch"], &["WebSearch"]),
    ("json-list", "name: json-list\ndescription: d\ntools: [\"Read\", \"TodoWrite\", \"Task\"]\n",
     ("json-list", None), &["read", "todo", "task"], &[]),
    ("mcp", "name: mcp\ndescription: d\ntools: Read, mcp__docs__search, mcp__docs__*, Bash(git diff:*), Bash(git log:*)\n",
     ("mcp", None), &["read", "shell"], &[]),
    ("effort", "name: effort\ndescription: d\neffort: xhigh\nmaxTurns: 200\n", ("effort", None), ALL, &[]),
    ("full-model", "name: full-model\ndescription: d\nmodel: claude-opus-4-5-20251101\n", ("full-model", None), ALL, &[]),
    ("extras", "name: extras\ndescription: d\nversion: 1.2\nauthor: somebody\ntags: [a, b]\nmemory: user\nbackground: true\n",
     ("extras", None), ALL, &["memory"]),
    ("empty-fields", "name: empty-fields\ndescription: d\ntools:\nmodel:\ncolor:\n", ("empty-fields", None), ALL, &[]),
    ("skills", "name: skills\ndescription: d\nskills:\n  - testing\n  - writing\n", ("skills", None), ALL, &[]),
    ("opencode", "description: d\nmode: subagent\nmodel: anthropic/claude-sonnet-4-5\ntemperature: 0.1\ntools:\n  write: false\n  edit: false\n  bash: false\n",
     ("opencode", None), &["read", "list", "glob", "grep", "fetch", "todo", "skill", "task", "sessions_spawn", "ask"], &[]),
    ("gemini", "name: gemini\ndescription: d\nkind: local\ntools:\n  - read_file\n  - grep_search\n  - run_shell_command\nmodel: gemini-2.5-pro\ntemperature: 0.2\nmax_turns: 10\ntimeout_mins: 5\n",
     ("gemini", None), &["read", "grep", "shell"], &[]),
    ("cursor", "name: cursor\ndescription: d\nmodel: fast\nreadonly: true\n",
     ("cursor", None), &["read", "list", "glob", "grep", "fetch", "todo", "skill", "task", "sessions_spawn", "ask"], &[]),
    ("copilot", "name: copilot\ndescription: d\ntools: ['read', 'search', 'edit', 'docs/*']\nmodel: ['GPT-5 (copilot)', 'x']\ntarget: vscode\n",
     ("copilot", None), &["read", "grep", "edit"], &[]),
];

#[test]
fn files_in_the_shape_of_real_ones_are_taken() {
    for (stem, header, (name, title), tools, said) in FIXTURES {
        let text = format!("---\n{header}\n---\n\nYou are an agent.\n");
        let draft = parse(
            Dialect::Claude,
            DefinitionFormat::Markdown,
            stem,
            text.as_bytes(),
        )
        .unwrap_or_else(|broken| panic!("{stem}: {broken}"));
        let definition = &draft.definition;
        assert_eq!(
            (definition.name.as_str(), definition.title.as_deref()),
            (*name, *title),
            "{stem}"
        );
        let mut expected: Vec<&str> = match *tools == ALL {
            true => TOOLS
                .iter()
                .copied()
                .filter(|tool| *tool != "shell")
                .collect(),
            false => tools.to_vec(),
        };
        let mut found = has(&draft);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{stem}");
        let notes = draft.warnings.join("\n");
        for part in *said {
            assert!(notes.contains(part), "{stem}: {part} in {notes}");
        }
        assert!(!definition.description.is_empty(), "{stem}");
        assert_eq!(definition.system_prompt, "You are an agent.", "{stem}");
    }
    let example = FIXTURES
        .iter()
        .find(|(stem, ..)| *stem == "lines-example")
        .unwrap();
    let text = format!("---\n{}\n---\nx", example.1);
    let draft = parse(
        Dialect::Claude,
        DefinitionFormat::Markdown,
        "x",
        text.as_bytes(),
    )
    .unwrap();
    for part in ["a plan is due", "it knows queues", "name: not a field"] {
        assert!(draft.definition.description.contains(part), "{part}");
    }
}

#[test]
fn a_file_that_cannot_be_read_field_by_field_gives_no_more_than_it_says() {
    let text = "---\nname: a\ndescription: so: <x>\n\tb: c\ntools: Read\ntools: Write\n---\nx";
    let broken = parse(
        Dialect::Claude,
        DefinitionFormat::Markdown,
        "a",
        text.as_bytes(),
    )
    .unwrap_err();
    assert!(broken.reason.contains("occurs twice"), "{broken}");
    assert_eq!(broken.line, Some(6));
    for field in [
        "groups:\n  - read",
        "bash: deny",
        "zebra: false",
        "paths:\n  - src",
        "edit: false",
    ] {
        let text = format!("---\nname: a\ndescription: so: <x>\n\tb: c\n{field}\n---\nx");
        match parse(
            Dialect::Claude,
            DefinitionFormat::Markdown,
            "a",
            text.as_bytes(),
        ) {
            Ok(draft) => {
                assert!(!draft.definition.description.contains("deny"), "{field}");
                let found = has(&draft);
                assert!(
                    !found.iter().any(|tool| tool == "write" || tool == "shell")
                        || field.starts_with("bash"),
                    "{field}: {found:?}"
                );
            }
            Err(broken) => assert!(broken.reason.contains("restriction"), "{field}: {broken}"),
        }
    }
    let long = format!(
        "---\nname: a\ndescription: {}\n---\nx",
        "long ".repeat(2000)
    );
    let draft = parse(
        Dialect::Claude,
        DefinitionFormat::Markdown,
        "a",
        long.as_bytes(),
    )
    .unwrap();
    assert!(
        draft.warnings[0].contains("4096 are kept"),
        "{:?}",
        draft.warnings
    );
}
