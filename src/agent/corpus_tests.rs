//! A corpus of unusual definition files, each with its expected result.

use std::fs;
use std::path::Path;

use super::fields::AgentDraft;
use super::folder::{AgentFile, Dialect, parse, read};
use super::merge::TrustLevel;
use super::raw::{DefinitionFormat, LoadError};
use super::set::{DefinitionSource, Layers};
use crate::agent::Strategy;
use crate::contract::catalog::AgentMode;
use crate::contract::linked::OnFailure;
use crate::kernel::delegation::Stream;
use crate::kernel::policy::gate::{Bundle, CallTarget, Decision, Subject, WriteScope};
use crate::kernel::run::thinking::Thinking;

fn markdown(text: &str) -> Result<AgentDraft, LoadError> {
    parse(
        Dialect::Own,
        DefinitionFormat::Markdown,
        "odd",
        text.as_bytes(),
    )
}

fn taken(format: DefinitionFormat, text: &str) -> AgentDraft {
    parse(Dialect::Own, format, "odd", text.as_bytes()).unwrap_or_else(|broken| {
        panic!("{text}\nnot taken: {broken}");
    })
}

/// Asserts that it is refused at this line with this reason.
fn refused(bytes: &[u8], format: DefinitionFormat, line: Option<usize>, says: &str) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let broken = parse(Dialect::Own, format, "odd", bytes).expect_err(&shown);
    assert!(broken.reason.contains(says), "{shown}\n{broken}");
    assert_eq!(broken.line, line, "{shown}\n{broken}");
}

#[test]
fn odd_files_that_are_taken() {
    let plain = "---\ndescription: Looks.\n---\nLook around.\n";
    for (what, text) in [
        ("plain", plain.to_owned()),
        ("byte order mark", format!("\u{feff}{plain}")),
        ("line ends of Windows", plain.replace('\n', "\r\n")),
        ("line ends of an old Mac", plain.replace('\n', "\r")),
        ("spaces behind the marks", plain.replace("---\n", "---  \n")),
        ("no line end at the end", plain.trim_end().to_owned()),
        ("a rule in the body", format!("{plain}\n---\nmore")),
        ("a comment", plain.replace("desc", "# about it\ndesc")),
        ("an empty field", plain.replace("desc", "model:\ndesc")),
        ("quotes", plain.replace("Looks.", "\"Looks.\"")),
        ("a folded text", plain.replace("Looks.", ">\n  Looks.")),
    ] {
        let draft = markdown(&text).unwrap_or_else(|broken| panic!("{what}: {broken}"));
        assert_eq!(draft.definition.name, "odd", "{what}");
        assert_eq!(draft.definition.description, "Looks.", "{what}");
        let prompt = &draft.definition.system_prompt;
        assert!(prompt.starts_with("Look around."), "{what}: {prompt:?}");
        assert!(!prompt.contains('\r'), "{what}");
        assert_eq!(draft.definition.mode, AgentMode::All, "{what}");
    }
}

#[test]
fn what_is_put_right_is_said_with_its_line() {
    let draft = markdown("---\nname: a\ndescription: Use it when: code is odd\n---\nx").unwrap();
    assert_eq!(draft.definition.description, "Use it when: code is odd");
    assert!(
        draft.warnings[0].starts_with("line 3"),
        "{:?}",
        draft.warnings
    );
    let draft = markdown("\n\n---\ndescription: d\n---\nx").unwrap();
    assert!(
        draft.warnings[0].contains("2 empty lines"),
        "{:?}",
        draft.warnings
    );
    let both = "---\ndescription: d\nsystem_prompt: above\n---\nbelow";
    let draft = markdown(both).unwrap();
    assert_eq!(draft.definition.system_prompt, "below");
    assert!(
        draft.warnings[0].contains("system_prompt"),
        "{:?}",
        draft.warnings
    );
    // Without any prompt, the default prompt names the agent.
    let draft = markdown("---\ndescription: Looks.\n---\n").unwrap();
    assert_eq!(draft.definition.system_prompt, "You are agent odd. Looks.");
}

#[test]
fn an_unknown_field_is_named_with_its_line_and_the_nearest() {
    let draft = markdown("---\ndescription: d\nmodell: a/b\nzebra: 1\n---\nx").unwrap();
    assert_eq!(
        draft.warnings,
        [
            "line 3: unknown field \"modell\"; did you mean \"model\"?",
            "line 4: unknown field \"zebra\""
        ]
    );
    // A misspelled limit would have no effect.
    let text = "description = \"d\"\n[execution]\nmax_loop = 3\n";
    refused(
        text.as_bytes(),
        DefinitionFormat::Toml,
        Some(2),
        "did you mean \"max_loops\"",
    );
}

#[test]
fn odd_files_that_are_refused() {
    let md = DefinitionFormat::Markdown;
    for (text, line, says) in [
        ("", Some(1), "no front matter"),
        ("# An agent\n", Some(1), "no front matter"),
        (
            "```\n---\ndescription: d\n---\n```\n",
            Some(1),
            "no front matter",
        ),
        ("---\ndescription: d\n", Some(1), "no closing line"),
        ("---\n---\nx", None, "description is missing"),
        ("---\ndescription: \"  \"\n---\nx", Some(2), "it is empty"),
        (
            "---\ndescription: d\n\tmode: all\n---\nx",
            Some(2),
            "not YAML",
        ),
        (
            "---\ndescription: d\ndescription: e\n---\nx",
            Some(3),
            "not YAML",
        ),
        ("---\ndescription: [a\n---\nx", Some(2), "not YAML"),
        ("---\n- a\n- b\n---\nx", Some(2), "not YAML"),
        (
            "---\ndescription: d\n<<<<<<< ours\nmode: all\n---\nx",
            Some(3),
            "merge conflict",
        ),
        (
            "---\ndescription: d\nname: 7\n---\nx",
            Some(3),
            "text is expected",
        ),
        (
            "---\ndescription: d\nname: a b\n---\nx",
            Some(3),
            "is invalid: use letters",
        ),
        (
            "---\ndescription: d\nname: ../x\n---\nx",
            Some(3),
            "is invalid: use letters",
        ),
        (
            "---\ndescription: d\nname: \"*\"\n---\nx",
            Some(3),
            "is invalid: use letters",
        ),
        (
            "---\ndescription: d\nmode: main\n---\nx",
            Some(3),
            "primary, subagent, all",
        ),
        (
            "---\ndescription: d\nthinking: deep\n---\nx",
            Some(3),
            "off, minimal, low",
        ),
        (
            "---\ndescription: d\nhidden: perhaps\n---\nx",
            Some(3),
            "true or false",
        ),
        (
            "---\ndescription: d\nmodel: gpt\n---\nx",
            Some(3),
            "provider/name",
        ),
        (
            "---\ndescription: d\nmax_spawn_depth: 6\n---\nx",
            Some(3),
            "from 0 to 5",
        ),
        (
            "---\ndescription: d\nallow_agents: [a b]\n---\nx",
            Some(3),
            "is not a valid agent name",
        ),
        (
            "---\ndescription: d\ngate: {read: maybe}\n---\nx",
            Some(3),
            "allow, deny, ask",
        ),
        (
            "---\ndescription: d\ntools: 7\n---\nx",
            Some(3),
            "a list of names",
        ),
        (
            "---\ndescription: d\nrunner: shell\n---\nx",
            Some(3),
            "model, command",
        ),
        (
            "---\ndescription: d\nexecution: 3\n---\nx",
            Some(3),
            "fields such as",
        ),
        (
            "---\ndescription: d\nexecution:\n  max_loops: 0\n---\nx",
            Some(3),
            "from 1 to",
        ),
        (
            "---\ndescription: d\nexecution:\n  timeout: soon\n---\nx",
            Some(3),
            "a duration",
        ),
        (
            "---\ndescription: d\nlinked_agents: x\n---\nx",
            Some(3),
            "a list of agents",
        ),
        (
            "---\ndescription: d\nlinked_agents: [{agent: a.b, session: own}, {agent: a_b, session: own}]\n---\nx",
            Some(3),
            "a.b and a_b would both be the tool subagent_a_b",
        ),
    ] {
        refused(text.as_bytes(), md, line, says);
    }
    let long = format!("---\ndescription: d\nname: {}\n---\nx", "n".repeat(49));
    refused(long.as_bytes(), md, Some(3), "too long");
    refused(b"\xff\xfe-\0-\0", md, None, "UTF-16");
    refused(
        b"---\ndescription: \xe4\n---\nx",
        md,
        Some(2),
        "not UTF-8 at byte 17",
    );
    refused(b"---\ndescription: a\0b\n---\nx", md, Some(2), "NUL");
    refused(&vec![b'x'; 300_000], md, None, "is 262144");
    refused(
        b"description = ",
        DefinitionFormat::Toml,
        Some(1),
        "not TOML",
    );
    refused(
        b"a = 1\na = 2\n",
        DefinitionFormat::Toml,
        Some(2),
        "not TOML",
    );
    refused(
        b"{\"description\": \"d\",\n",
        DefinitionFormat::Json,
        Some(2),
        "not JSON",
    );
    refused(b"[]", DefinitionFormat::Json, Some(1), "an object");
    refused(
        b"{\"description\": \"d\", \"description\": \"e\"}",
        DefinitionFormat::Json,
        Some(1),
        "occurs twice",
    );
}

#[test]
fn an_alias_bomb_is_refused_and_costs_nothing() {
    let mut text = "---\na: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, before) in ["b", "c", "d", "e", "f", "g"]
        .iter()
        .zip(["a", "b", "c", "d", "e", "f"])
    {
        let ten = vec![format!("*{before}"); 9].join(", ");
        text.push_str(&format!("{name}: &{name} [{ten}]\n"));
    }
    text.push_str("description: d\n---\nx");
    assert!(markdown(&text).unwrap_err().reason.contains("not YAML"));
    let deep = format!("---\ndescription: {}\n---\nx", "[".repeat(20_000));
    assert!(markdown(&deep).unwrap_err().reason.contains("not YAML"));
    let deep = format!("{{\"a\": {}", "[".repeat(20_000));
    refused(deep.as_bytes(), DefinitionFormat::Json, Some(1), "not JSON");
}

#[test]
fn e1_the_seeds_names_are_taken_in_json_alone() {
    let text = r#"{
        "name": "researcher", "mode": "subagent", "description": "Searches",
        "systemPrompt": "You search.",
        "tools": {"write_file": false, "glob": false},
        "model": {"provider": "openai", "model": "gpt-5"},
        "execution": {"maxLoops": 20, "enableCompression": false},
        "hidden": true
    }"#;
    let draft = taken(DefinitionFormat::Json, text);
    let found = &draft.definition;
    assert_eq!(found.name, "researcher");
    assert_eq!(found.mode, AgentMode::Subagent);
    assert_eq!(found.system_prompt, "You search.");
    assert_eq!(found.model.as_deref(), Some("openai/gpt-5"));
    assert_eq!((found.max_loops, found.hidden), (20, true));
    assert_eq!(found.compression, Some(false));
    assert!(draft.not_in_effect.is_empty());
    assert_eq!(draft.warnings, [""; 0]);
    let draft = taken(
        DefinitionFormat::Toml,
        "description = \"d\"\nsystemPrompt = \"x\"\n",
    );
    assert!(
        draft.warnings[0].contains("did you mean \"system_prompt\""),
        "{:?}",
        draft.warnings
    );
}

#[test]
fn what_a_model_is_asked_with_is_checked() {
    let draft = markdown(
        "---\ndescription: d\ntemperature: 1\nmax_tokens: 9\n\
         fallback_models: [a/b, c/d]\n---\nx",
    )
    .unwrap();
    let definition = draft.definition;
    let asked = (definition.temperature, definition.max_tokens);
    assert_eq!(asked, (Some(1.0), Some(9)));
    assert_eq!(definition.fallback_models.unwrap(), ["a/b", "c/d"]);
    for wrong in [
        "temperature: 3",
        "temperature: warm",
        "max_tokens: 0",
        "fallback_models: [x]",
    ] {
        let broken = markdown(&format!("---\ndescription: d\n{wrong}\n---\nx")).unwrap_err();
        assert_eq!(broken.line, Some(3), "{wrong}: {broken}");
    }
}

#[test]
fn g11_9_options_of_the_provider_are_taken_and_what_nobody_knows_is_said() {
    let draft =
        markdown("---\ndescription: d\nprovider: {top_p: 0.5, seed: 7, topp: 1}\n---\nx").unwrap();
    let options = serde_json::to_value(&draft.definition.provider).unwrap();
    assert_eq!(
        options,
        serde_json::json!({ "top_p": 0.5, "seed": 7, "topp": 1 })
    );
    assert_eq!(draft.warnings.len(), 1, "{:?}", draft.warnings);
    assert!(
        draft.warnings[0].contains("did you mean \"top_p\""),
        "{:?}",
        draft.warnings
    );
    let broken = markdown("---\ndescription: d\nprovider: {model: x}\n---\nx").unwrap_err();
    assert!(broken.reason.contains("sets this itself"), "{broken}");
}

#[test]
fn what_nothing_obeys_yet_is_said() {
    let draft = markdown("---\ndescription: d\nskills: []\nworkspace: w\n---\nx").unwrap();
    assert_eq!(draft.not_in_effect, ["workspace"]);
    assert_eq!(draft.definition.skills, Some(Vec::new()));
    assert_eq!(draft.needs_trust, [""; 0]);
}

#[test]
fn a_link_says_where_its_agent_works_and_what_becomes_of_its_failure() {
    let draft = markdown(
        "---\ndescription: d\nstrategy: plan\non_child_failure: abort\nlinked_agents:\n  \
         - {agent: a, session: shared, stream: direct, on_failure: continue}\n  \
         - {agent: b, session: own, stream: none}\n---\nx",
    )
    .unwrap();
    let definition = &draft.definition;
    assert_eq!(definition.strategy, Strategy::Plan);
    assert_eq!(definition.on_child_failure, Some(OnFailure::Abort));
    let [shared, own] = &definition.linked_agents[..] else {
        panic!("{definition:?}");
    };
    assert_eq!(shared.tool().as_deref(), Some("call_a"));
    assert_eq!(shared.stream, Some(Stream::Direct));
    assert_eq!(shared.on_failure, Some(OnFailure::Continue));
    assert_eq!(own.stream, None);
    assert!(
        draft.warnings[0].contains("stream of b"),
        "{:?}",
        draft.warnings
    );
    for wrong in [
        "session: both",
        "session: shared, stream: loud",
        "session: shared, on_failure: x",
    ] {
        let text = format!("---\ndescription: d\nlinked_agents: [{{agent: a, {wrong}}}]\n---\nx");
        assert!(markdown(&text).is_err(), "{wrong}");
    }
}

#[test]
fn a_gate_is_rules_in_their_order() {
    let draft = markdown(
        "---\ndescription: d\nwrite_scope: own\ngate:\n  read: ask\n  shell:\n    \
         - decision: ask\n    - {match: \"git *\", decision: allow}\n  \"node_*\":\n    \
         - {node: mac, decision: deny}\n---\nx",
    )
    .unwrap();
    let rules: Vec<String> = draft
        .definition
        .gate
        .iter()
        .map(|rule| {
            let (pattern, node) = (&rule.pattern, &rule.node);
            format!("{} {pattern:?} {node:?} {}", rule.tool, rule.decision)
        })
        .collect();
    assert_eq!(
        rules,
        [
            "read None None ask",
            "shell None None ask",
            "shell Some(\"git *\") None allow",
            "node_* None Some(\"mac\") deny"
        ]
    );
    assert_eq!(draft.definition.write_scope, Some(WriteScope::Own));
    // A file of a project cannot grant an approval that the user would be asked for.
    assert_eq!(draft.needs_trust, ["gate: allow"]);
    for (field, says) in [
        ("gate: {shell: [git]}", "a rule needs decision"),
        ("gate: {shell: [{match: x}]}", "a rule needs decision"),
        (
            "gate: {shell: [{match: x, decision: maybe}]}",
            "is not one of",
        ),
        ("gate: {shell: [{when: x, decision: ask}]}", "not \"when\""),
        (
            "gate: {fetch: [{node: mac, decision: deny}]}",
            "fetch is never called on a node",
        ),
        ("write_scope: all", "workspace, own, none"),
    ] {
        let broken = markdown(&format!("---\ndescription: d\n{field}\n---\nx")).unwrap_err();
        assert!(broken.reason.contains(says), "{field}: {}", broken.reason);
    }
}

#[test]
fn all_that_is_obeyed_arrives() {
    let draft = taken(
        DefinitionFormat::Toml,
        "name = \"a\"\ntitle = \"A\"\ndescription = \"d\"\nmode = \"primary\"\nactive = false\n\
         hidden = true\nmodel = \"p/m\"\nthinking = \"high\"\ntools = [\"read\"]\n\
         system_prompt = \"s\"\nlinked_agents = [\"b\", {agent = \"c\"}]\n\
         allow_agents = [\"*\"]\nmax_spawn_depth = 3\norg = \"o\"\n\
         [execution]\nmax_loops = 7\ntimeout = \"2m\"\n",
    );
    let found = draft.definition;
    assert_eq!(found.title.as_deref(), Some("A"));
    assert_eq!(
        (found.mode, found.inactive, found.hidden),
        (AgentMode::Primary, true, true)
    );
    assert_eq!(found.thinking, Some(Thinking::High));
    let linked: Vec<&str> = found
        .linked_agents
        .iter()
        .map(|link| link.agent.as_str())
        .collect();
    assert_eq!(linked, ["b", "c"]);
    assert_eq!(found.allow(), crate::contract::allow::AllowList::Any);
    assert_eq!((found.max_spawn_depth, found.max_loops), (Some(3), 7));
    assert_eq!(found.run_timeout_ms, Some(120_000));
    assert_eq!(found.org.as_deref(), Some("o"));
    assert_eq!(draft.warnings.len() + draft.not_in_effect.len(), 0);
}

#[test]
fn files_of_claude_are_read_in_their_own_words() {
    let text = "---\nname: code-reviewer\ndescription: Use PROACTIVELY. Examples: after edits\n\
                tools: Read, Grep, Bash(git:*)\nmodel: sonnet\ncolor: red\neffort: high\n\
                maxTurns: 12\npermissionMode: plan\nhooks: {}\nfoo: 1\n---\nReview.\n";
    let draft = parse(
        Dialect::Claude,
        DefinitionFormat::Markdown,
        "x",
        text.as_bytes(),
    )
    .unwrap();
    let found = &draft.definition;
    assert_eq!(
        (found.name.as_str(), found.mode),
        ("code-reviewer", AgentMode::Subagent)
    );
    assert_eq!(
        (found.max_loops, found.thinking),
        (12, Some(Thinking::High))
    );
    assert_eq!(found.model, None);
    let tools = ["read", "list", "glob", "grep"].map(str::to_owned);
    let (chosen, unknown) = draft.tools.pick(&tools);
    assert_eq!(chosen, ["read", "grep"]);
    assert_eq!(unknown, ["shell"]);
    let rights = found.rights(Bundle::default());
    let judge = |tool: &str, line: &str| {
        let commands = crate::kernel::policy::shell::CommandLine::read(line).commands;
        let subject = Subject {
            things: commands.into_iter().map(CallTarget::Command).collect(),
            ..Subject::default()
        };
        rights.judge(tool, Decision::Ask, &subject).decision
    };
    assert_eq!(judge("shell", "git status"), Decision::Deny);
    assert_eq!(judge("write", ""), Decision::Deny);
    let said = draft.warnings.join("\n");
    for part in ["colon", "model sonnet", "never run", "\"foo\""] {
        let part = part.replace("colon", "read as text");
        assert!(said.contains(&part), "{part} in {said}");
    }
    assert!(!said.contains("color"), "{said}");
}

fn files(found: &[AgentFile]) -> Vec<(String, Result<String, String>)> {
    found
        .iter()
        .map(|one| {
            let name = one.file.file_name().unwrap().to_string_lossy().into_owned();
            let outcome = one.outcome.as_ref();
            let outcome = outcome.map(|draft| draft.definition.name.clone());
            (name, outcome.map_err(ToString::to_string))
        })
        .collect()
}

#[test]
fn each_thing_in_a_folder_has_its_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let folder = root.join("project/.abide/agents");
    fs::create_dir_all(folder.join("nested")).unwrap();
    let good = "---\ndescription: d\n---\nx";
    for name in [
        "good.md",
        ".hidden.md",
        "#saved#.md",
        "good.md~",
        "notes.txt",
        "UPPER.MD",
    ] {
        fs::write(folder.join(name), good).unwrap();
    }
    fs::write(root.join("outside.md"), good).unwrap();
    fs::write(root.join("project/inside.md"), good).unwrap();
    let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    link(&root.join("outside.md"), "out.md");
    link(&root.join("project/inside.md"), "in.md");
    link(Path::new("/no/such/file.md"), "dangling.md");
    link(&folder.join("loop.md"), "loop.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe.md"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::write(folder.join("huge.md"), vec![b'x'; 300_000]).unwrap();

    let found = files(&read(&folder, Dialect::Own, Some(&root.join("project"))));
    let outcome = |name: &str| {
        found
            .iter()
            .find(|(file, _)| file == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(outcome("good.md"), Ok("good".to_owned()));
    assert_eq!(outcome("UPPER.MD"), Ok("UPPER".to_owned()));
    assert_eq!(outcome("in.md"), Ok("in".to_owned()));
    for (name, says) in [
        ("out.md", "out of the project"),
        ("dangling.md", "the link is broken"),
        ("loop.md", "cannot be read"),
        ("pipe.md", "not a regular file"),
        ("huge.md", "larger than 262144 bytes"),
        ("nested", "subfolders are not read"),
    ] {
        let broken = outcome(name).unwrap_err();
        assert!(broken.contains(says), "{name}: {broken}");
    }
    assert_eq!(found.len(), 9, "{found:?}");
    // The user's own folder may contain links to any place.
    let own = files(&read(&folder, Dialect::Own, None));
    assert!(own.contains(&("out.md".to_owned(), Ok("out".to_owned()))));
    assert_eq!(files(&read(&root.join("nowhere"), Dialect::Own, None)), []);
}

#[test]
fn a_folder_is_read_up_to_its_bound_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..502 {
        let name = format!("agent-{number:04}.md");
        fs::write(dir.path().join(name), "---\ndescription: d\n---\nx").unwrap();
    }
    let found = files(&read(dir.path(), Dialect::Own, None));
    assert_eq!(found.len(), 501);
    let (_, last) = found.last().unwrap();
    assert!(
        last.as_ref()
            .unwrap_err()
            .contains("2 more files than the limit of 500")
    );
}

fn layers(of: &[(DefinitionSource, &str, &str)]) -> Layers {
    let mut layers = Layers::default();
    let levels = [
        (DefinitionSource::Config, TrustLevel::User),
        (DefinitionSource::Project, TrustLevel::Untrusted),
    ];
    for (source, level) in levels {
        let found = of.iter().filter(|(layer, ..)| *layer == source);
        let found = found.map(|(_, file, name)| AgentFile {
            file: file.into(),
            outcome: markdown(&format!("---\nname: {name}\ndescription: d\n---\n{file}")),
            unread: false,
        });
        layers.add_files(source, level, found.collect());
    }
    layers
}

fn names(layers: &Layers) -> Vec<&str> {
    layers.agents.keys().map(|id| id.as_str()).collect()
}

#[test]
fn of_two_files_with_one_name_the_one_that_is_called_like_it_counts() {
    let layers = layers(&[
        (DefinitionSource::Config, "/c/a copy.md", "a"),
        (DefinitionSource::Config, "/c/a.md", "a"),
        (DefinitionSource::Config, "/c/y.md", "b"),
        (DefinitionSource::Config, "/c/z.md", "b"),
    ]);
    assert_eq!(names(&layers), ["a", "b"]);
    let files: Vec<String> = layers
        .agents
        .values()
        .map(|taken| taken.candidate.file.as_ref().unwrap().display().to_string())
        .collect();
    assert_eq!(files, ["/c/a.md", "/c/y.md"]);
    let reasons: Vec<&str> = layers
        .rejected
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert!(
        reasons[0].contains("defined twice; /c/a.md is used"),
        "{reasons:?}"
    );
    assert!(
        reasons[1].contains("defined twice; /c/y.md is used"),
        "{reasons:?}"
    );
}

#[test]
fn g4_13_names_that_a_model_could_not_tell_apart_are_refused_with_both() {
    let found = layers(&[
        (DefinitionSource::Config, "/c/one.md", "code-review"),
        (DefinitionSource::Config, "/c/two.md", "Code.Review"),
        (DefinitionSource::Config, "/c/three.md", "other"),
        (DefinitionSource::Project, "/p/four.md", "OTHER"),
    ]);
    assert_eq!(names(&found), ["other"]);
    assert_eq!(found.rejected.len(), 3, "{:?}", found.rejected);
    for rejected in &found.rejected[..2] {
        let reason = &rejected.reason;
        assert!(reason.contains("Code.Review and code-review"), "{reason}");
    }
    let reason = &found.rejected[2].reason;
    assert!(reason.contains("OTHER and other"), "{reason}");
}

#[test]
fn a_project_takes_a_place_with_a_note_and_a_user_without() {
    let found = layers(&[
        (DefinitionSource::Config, "/c/a.md", "a"),
        (DefinitionSource::Project, "/p/a.md", "a"),
    ]);
    let taken = found.agents.values().next().unwrap();
    assert_eq!(taken.notes, ["/p/a.md shadows /c/a.md"]);
    assert_eq!(taken.shadowed[0].file.as_deref(), Some("/c/a.md"));
}
