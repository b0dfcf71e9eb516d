//! Tests the catalog with real folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{AgentCatalog, AgentCatalogOptions, AgentDefinition, AvailableModels};
use crate::clock::Clock;
use crate::contract::allow::AGENT_FORMAT;
use crate::contract::catalog::{
    AgentMode, AgentSummary, Catalog, CatalogScope, Definition, Overrides, Resolved,
};
use crate::contract::rows::{AgentRows, StoredAgent, TrustedProject};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::time::Timestamp;

const HERE: CatalogScope<'static> = CatalogScope {
    org: "default",
    cwd: None,
};

/// Rows that a test fills.
#[derive(Default)]
struct Rows {
    stored: Mutex<Vec<StoredAgent>>,
    trusted: Mutex<Vec<TrustedProject>>,
}

impl AgentRows for Rows {
    fn stored_agents(&self) -> Result<Vec<StoredAgent>, Fault> {
        Ok(self.stored.lock().unwrap().clone())
    }

    fn trusted_projects(&self) -> Result<Vec<TrustedProject>, Fault> {
        Ok(self.trusted.lock().unwrap().clone())
    }
}

/// A home folder, a project in it, and a catalog that reads them.
struct Fixture {
    home: TempDir,
    rows: Arc<Rows>,
    clock: Clock,
    agents: AgentCatalog,
}

fn options(rows: Arc<Rows>, clock: &Clock, home: &Path) -> AgentCatalogOptions {
    let tools = ["grep", "glob", "list", "read"];
    let tools = tools.map(|name| json!({"name": name, "description": "", "parameters": {}}));
    let agent = json!({"type": "string", "format": AGENT_FORMAT, "description": "Who"});
    let spawn = json!({
        "name": "sessions_spawn",
        "description": "",
        "parameters": { "properties": { "task": { "type": "string" }, "agent": agent } },
    });
    AgentCatalogOptions {
        default_agent: "build".to_owned(),
        models: tokio::sync::watch::channel(AvailableModels {
            default: "offline/search".to_owned(),
            offered: vec!["offline/search".to_owned(), "script/*".to_owned()],
            thinking: vec!["script/deep".to_owned()],
            programs: Arc::new(|name| match name {
                name if super::presets::is_program(name) => Err("it is not installed".to_owned()),
                "gone" => Err("it was not found in PATH".to_owned()),
                _ => Ok(()),
            }),
            providers: Arc::new(|_| None),
        })
        .1,
        tools: tools.into_iter().chain([spawn]).collect(),
        servers: tokio::sync::watch::channel(Arc::default()).1,
        nodes: Default::default(),
        skills: None,
        config: Some(home.join("agents")),
        personal: Some(home.join(".claude/agents")),
        workspace: None,
        orgs: vec!["default".to_owned()],
        rows: Some(rows),
        clock: clock.clone(),
    }
}

impl Fixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (rows, clock) = (Arc::new(Rows::default()), Clock::test(Timestamp(0)));
        let root = home.path().canonicalize().unwrap();
        let agents = AgentCatalog::new(options(Arc::clone(&rows), &clock, &root)).unwrap();
        let fixture = Fixture {
            home,
            rows,
            clock,
            agents,
        };
        fs::create_dir_all(fixture.project().join(".git")).unwrap();
        fixture
    }

    fn root(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    fn project(&self) -> PathBuf {
        self.root().join("work/project")
    }

    /// Writes a definition file relative to the home folder.
    fn write(&self, file: &str, fields: &str) {
        let file = self.root().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = format!(
            "---\ndescription: {}\n{fields}---\nPrompt.\n",
            file.display()
        );
        fs::write(file, text).unwrap();
    }

    fn store(&self, name: &str) {
        self.rows.stored.lock().unwrap().push(StoredAgent {
            org: "default".to_owned(),
            name: name.to_owned(),
            format: "json".to_owned(),
            text: json!({"description": "stored"}).to_string(),
            revision: 1,
            created_at: Timestamp(1),
        });
    }

    fn get(&self, cwd: Option<&str>, name: &str) -> Result<AgentSummary, Fault> {
        self.agents.get(CatalogScope { cwd, ..HERE }, name)
    }

    fn resolve(&self, cwd: Option<&str>, name: &str) -> Result<Resolved, Fault> {
        let place = CatalogScope { cwd, ..HERE };
        self.agents.resolve(place, name, Overrides::default())
    }

    /// Advances the clock beyond the time for which a cached folder state is valid.
    fn later(&self) {
        self.clock.advance(Duration::from_secs(1));
    }
}

fn model_of(model: &str) -> Overrides<'_> {
    Overrides {
        model: Some(model),
        thinking: None,
        given: &[],
        served: &[],
    }
}

#[test]
fn a_run_pins_definition_and_tools_by_hash() {
    let fixture = Fixture::new();
    let resolved = fixture.resolve(None, "explore").unwrap();
    assert_eq!(resolved.model, "offline/search");
    assert_eq!(resolved.mode, AgentMode::Subagent);
    for pinned in [&resolved.definition, &resolved.tools] {
        let hash = blake3::hash(pinned.body.as_bytes()).to_hex().to_string();
        assert_eq!(pinned.hash, hash);
    }
    let read_back: AgentDefinition = serde_json::from_str(&resolved.definition.body).unwrap();
    assert_eq!(read_back.max_loops, 20);
    let tools: Vec<Value> = serde_json::from_str(&resolved.tools.body).unwrap();
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["read", "list", "glob", "grep"]);
    assert_eq!(fixture.resolve(None, "explore").unwrap(), resolved);
}

#[test]
fn a_tool_that_names_an_agent_offers_those_that_may_be_named() {
    let fixture = Fixture::new();
    let tools = "tools: [sessions_spawn]\n";
    for (name, list) in [
        ("free", "mode: primary\n"),
        ("bound", "allow_agents: [explore, free, nobody]\n"),
        ("any", "allow_agents: ['*']\n"),
        ("alone", "allow_agents: []\n"),
    ] {
        fixture.write(&format!("agents/{name}.md"), &format!("{tools}{list}"));
    }
    fixture.agents.reload().unwrap();
    let all = json!(["alone", "any", "bound", "build", "explore", "free"]);
    for (name, names) in [
        ("free", json!(["alone", "any", "bound", "explore", "free"])),
        ("bound", json!(["explore", "free"])),
        ("any", all),
        ("alone", Value::Null),
    ] {
        let resolved = fixture.resolve(None, name).unwrap();
        let tools: Value = serde_json::from_str(&resolved.tools.body).unwrap();
        let agent = &tools[0]["parameters"]["properties"]["agent"];
        assert_eq!(agent["enum"], names, "{name}");
        assert_eq!(agent["format"], Value::Null, "{name}");
        assert_eq!(agent["description"], "Who");
    }
}

#[test]
fn g4_7_an_unknown_agent_is_refused_with_the_known_names() {
    let fixture = Fixture::new();
    for name in ["exlpore", "Explore", "", "../x", "*"] {
        let fault = fixture.resolve(None, name).unwrap_err();
        assert_eq!(fault.kind, Kind::NotFound, "{name}");
        assert!(fault.message.contains("build, explore"), "{fault}");
        assert_eq!(fault.data["allowed"], json!(["build", "explore"]));
    }
    let fault = fixture.get(None, "exlpore").unwrap_err();
    assert_eq!(fault.hint.as_deref(), Some("did you mean explore?"));
}

#[test]
fn a_model_that_nobody_offers_is_refused_with_what_is_offered() {
    let fixture = Fixture::new();
    for model in ["gpt", "script/", "offline/other", "offline/search2", ""] {
        let resolved = fixture.agents.resolve(HERE, "build", model_of(model));
        let fault = resolved.unwrap_err();
        assert_eq!(fault.kind, Kind::InvalidParams, "{model}");
        assert_eq!(fault.data["path"], "model");
        assert!(fault.message.contains("offline/search"), "{fault}");
    }
    let resolved = fixture
        .agents
        .resolve(HERE, "build", model_of("script/any"));
    assert_eq!(resolved.unwrap().model, "script/any");
}

#[test]
fn a_model_without_thinking_levels_brings_a_warning() {
    let fixture = Fixture::new();
    for (model, level, warned) in [
        ("script/x", Thinking::High, true),
        ("script/x", Thinking::Off, false),
        ("script/deep", Thinking::High, false),
    ] {
        let overrides = Overrides {
            model: Some(model),
            thinking: Some(level),
            given: &[],
            served: &[],
        };
        let resolved = fixture.agents.resolve(HERE, "build", overrides).unwrap();
        assert_eq!(resolved.thinking, Some(level));
        assert_eq!(resolved.warnings.len(), usize::from(warned), "{model}");
    }
}

#[test]
fn defaults_that_are_not_there_are_refused_at_the_start() {
    let fixture = Fixture::new();
    let changed = |change: &dyn Fn(&mut AgentCatalogOptions)| {
        let mut options = options(fixture.rows.clone(), &fixture.clock, &fixture.root());
        change(&mut options);
        AgentCatalog::new(options).err().unwrap()
    };
    let fault = changed(&|options| options.default_agent = "x".to_owned());
    assert_eq!(fault.kind, Kind::NotFound);
    let fault = changed(&|options| {
        let models = AvailableModels {
            default: "x/y".to_owned(),
            ..options.models.borrow().clone()
        };
        options.models = tokio::sync::watch::channel(models).1;
    });
    assert_eq!(fault.data["path"], "defaults.model");
}

#[test]
fn the_list_is_by_name_and_says_what_was_not_taken() {
    let fixture = Fixture::new();
    fixture.write("agents/a.md", "");
    fs::write(fixture.root().join("agents/b.md"), "nonsense").unwrap();
    fixture.agents.reload().unwrap();
    let listing = fixture.agents.list(HERE);
    let names: Vec<&str> = listing.agents.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(names, ["a", "build", "explore"]);
    let [rejected] = &listing.rejected[..] else {
        panic!("{:?}", listing.rejected);
    };
    assert!(rejected.file.as_deref().unwrap().ends_with("agents/b.md"));
    assert_eq!(
        (rejected.source.as_str(), rejected.line),
        ("config", Some(1))
    );
    // A request for the agent names the place of the error.
    let fault = fixture.resolve(None, "b").unwrap_err();
    assert!(fault.hint.unwrap().contains("b.md:1: no front matter"));
}

#[test]
fn each_layer_shadows_those_below_it() {
    let fixture = Fixture::new();
    let cwd = fixture.project().join("src");
    fs::create_dir_all(&cwd).unwrap();
    let cwd = cwd.to_str();
    let source = |cwd| fixture.get(cwd, "explore").unwrap().source;
    assert_eq!(source(cwd), "preset");
    fixture.store("explore");
    fixture.agents.reload().unwrap();
    assert_eq!(source(cwd), "stored");
    fixture.write(".claude/agents/explore.md", "");
    fixture.write("agents/explore.md", "");
    fixture.agents.reload().unwrap();
    fixture.write("work/project/.claude/agents/explore.md", "");
    fixture.write("work/project/.abide/agents/explore.md", "");
    fixture.later();
    let found = fixture.get(cwd, "explore").unwrap();
    assert_eq!(found.source, "project");
    assert!(found.file.unwrap().ends_with(".abide/agents/explore.md"));
    let shadowed: Vec<(&str, &str)> = found
        .shadowed
        .iter()
        .map(|aside| {
            let file = aside.file.as_deref().unwrap_or("");
            let file = file
                .rsplit_once("/agents/")
                .map_or("", |(folder, _)| folder.rsplit('/').next().unwrap());
            (aside.source.as_str(), file)
        })
        .collect();
    let home = fixture.root();
    let home = home.file_name().unwrap().to_str().unwrap();
    assert_eq!(
        shadowed,
        [
            ("project", ".claude"),
            ("config", home),
            ("config", ".claude"),
            ("stored", ""),
            ("preset", "")
        ]
    );
    // Outside of the project its definition does not apply.
    assert_eq!(source(None), "config");
    let elsewhere = fixture.root();
    assert_eq!(source(elsewhere.to_str()), "config");
    // A project definition always reports what it shadows.
    let warnings = fixture.resolve(cwd, "explore").unwrap().warnings;
    assert!(
        warnings.iter().any(|one| one.contains("shadows")),
        "{warnings:?}"
    );
    assert_eq!(fixture.resolve(None, "explore").unwrap().warnings, [""; 0]);
}

#[test]
fn a_project_is_looked_at_again_after_a_moment() {
    let fixture = Fixture::new();
    let project = fixture.project();
    let cwd = project.to_str();
    let place = CatalogScope { cwd, ..HERE };
    assert!(!fixture.agents.is_ready(place));
    assert_eq!(fixture.get(cwd, "local").unwrap_err().kind, Kind::NotFound);
    assert!(fixture.agents.is_ready(place));
    fixture.write("work/project/.abide/agents/local.md", "");
    fixture.later();
    assert!(!fixture.agents.is_ready(place));
    assert_eq!(fixture.get(cwd, "local").unwrap().source, "project");
    let before = fixture.resolve(cwd, "local").unwrap().definition.hash;
    fixture.write("work/project/.abide/agents/local.md", "title: New\n");
    fixture.later();
    assert_ne!(
        fixture.resolve(cwd, "local").unwrap().definition.hash,
        before
    );
    fs::remove_file(project.join(".abide/agents/local.md")).unwrap();
    fixture.later();
    assert_eq!(fixture.get(cwd, "local").unwrap_err().kind, Kind::NotFound);
}

#[test]
fn what_needs_trust_waits_for_it_and_a_change_ends_it() {
    let fixture = Fixture::new();
    let project = fixture.project();
    let (cwd, folder) = (project.to_str(), project.to_str().unwrap());
    fixture.write("work/project/.abide/agents/deploy.md", "env: {A: b}\n");
    fixture.write(
        "work/project/.abide/agents/explore.md",
        "mcp_servers: [x]\n",
    );
    fixture.write("work/project/.abide/agents/plain.md", "");
    let fault = fixture.resolve(cwd, "deploy").unwrap_err();
    assert_eq!(fault.kind, Kind::Forbidden);
    assert!(fault.message.contains("it uses env"), "{fault}");
    assert!(fault.message.contains("abide trust"), "{fault}");
    assert!(!fixture.get(cwd, "deploy").unwrap().problems.is_empty());
    // Without trust it does not replace the other agent, and a warning names it.
    let explore = fixture.resolve(cwd, "explore").unwrap();
    assert!(
        explore.warnings[0].contains("is not used"),
        "{:?}",
        explore.warnings
    );
    assert_eq!(fixture.get(cwd, "explore").unwrap().source, "preset");
    assert!(fixture.resolve(cwd, "plain").is_ok());

    let covers = fixture.agents.covers(folder).unwrap();
    let files: Vec<&str> = covers.files.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(
        files,
        [".abide/agents/deploy.md", ".abide/agents/explore.md"]
    );
    fixture.rows.trusted.lock().unwrap().push(TrustedProject {
        org: "default".to_owned(),
        folder: covers.folder,
        hash: covers.hash,
        user: "admin".to_owned(),
        at: Timestamp(0),
    });
    fixture.agents.reload().unwrap();
    assert!(fixture.resolve(cwd, "deploy").is_ok());
    assert_eq!(fixture.get(cwd, "explore").unwrap().source, "project");
    // Trust given by another tenant does not count.
    let other = CatalogScope { org: "other", cwd };
    let refused = fixture
        .agents
        .resolve(other, "deploy", Overrides::default());
    assert_eq!(refused.unwrap_err().kind, Kind::Forbidden);

    // A harmless change keeps the trust; a changed value revokes it.
    fixture.write("work/project/.abide/agents/plain.md", "title: New\n");
    fixture.later();
    assert!(fixture.resolve(cwd, "deploy").is_ok());
    fixture.write("work/project/.abide/agents/deploy.md", "env: {A: other}\n");
    fixture.later();
    let fault = fixture.resolve(cwd, "deploy").unwrap_err();
    assert!(fault.message.contains("has changed since"), "{fault}");
}

#[test]
fn an_agent_that_cannot_run_here_says_why() {
    let fixture = Fixture::new();
    fixture.write("agents/away.md", "active: false\n");
    fixture.write(
        "agents/other.md",
        "model: paid/big\ngate: {read: deny}\ntools: [read, web]\n",
    );
    fixture.agents.reload().unwrap();
    let fault = fixture.resolve(None, "away").unwrap_err();
    assert_eq!(fault.kind, Kind::Forbidden);
    assert!(fault.message.contains("not active"), "{fault}");
    assert!(!fixture.get(None, "away").unwrap().problems.is_empty());
    let fault = fixture.resolve(None, "other").unwrap_err();
    assert_eq!(fault.data["path"], "model");
    let other = fixture.get(None, "other").unwrap();
    let said = other.warnings.join("\n");
    for part in ["no tool web", "paid/big is not offered"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(other.tools, [""; 0]);
    // Another model does not bypass the other checks.
    assert!(
        fixture
            .agents
            .resolve(HERE, "other", model_of("script/x"))
            .is_ok()
    );
    assert!(
        fixture
            .agents
            .resolve(HERE, "away", model_of("script/x"))
            .is_err()
    );
}

#[test]
fn a6_an_agent_of_another_tenant_is_not_there() {
    let fixture = Fixture::new();
    fixture.write("agents/ours.md", "org: default\n");
    fixture.write("agents/theirs.md", "org: other\n");
    fixture.write("agents/all.md", "");
    fixture.store("stored");
    fixture.agents.reload().unwrap();
    let names = |org| {
        let listing = fixture.agents.list(CatalogScope { org, cwd: None });
        let names = listing.agents.into_iter().map(|one| one.id.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        names("default"),
        ["all", "build", "explore", "ours", "stored"]
    );
    assert_eq!(names("other"), ["all", "build", "explore", "theirs"]);
    assert_eq!(names("third"), ["all", "build", "explore"]);
    let sets = fixture.agents.sets();
    let orgs: Vec<&str> = sets.keys().map(String::as_str).collect();
    assert_eq!(orgs, ["default", "other"]);
}

#[test]
fn a_set_changes_with_what_counts_and_with_nothing_else() {
    let fixture = Fixture::new();
    let set = || -> BTreeMap<String, String> {
        fixture.agents.reload().unwrap();
        fixture.agents.sets()["default"].clone()
    };
    assert_eq!(set(), fixture.agents.built_in());
    fixture.store("a");
    let stored = set();
    assert_ne!(stored, fixture.agents.built_in());
    fixture.write("agents/b.md", "");
    let both = set();
    assert_eq!(both.len(), 4);
    fixture.write("agents/b.md", "# a comment\n");
    assert_eq!(set(), both);
    fixture.write("agents/b.md", "title: B\n");
    assert_ne!(set()["b"], both["b"]);
}

#[test]
fn a_definition_for_the_store_is_checked_as_a_file_is() {
    let fixture = Fixture::new();
    fixture.write("agents/mine.md", "");
    fixture.store("kept");
    fixture.agents.reload().unwrap();
    let check = |name: Option<&str>, text: &Value| {
        let definition = Definition {
            name: name.map(str::to_owned),
            format: "json".to_owned(),
            text: text.to_string(),
        };
        fixture.agents.check("default", &definition)
    };
    let good = json!({"name": "new", "description": "d"});
    assert_eq!(check(None, &good).unwrap().as_str(), "new");
    assert_eq!(
        check(Some("x"), &json!({"description": "d"}))
            .unwrap()
            .as_str(),
        "x"
    );
    for text in [
        json!({"description": "d"}),
        json!({"name": "a b", "description": "d"}),
        json!({"name": "a"}),
        json!({"name": "a", "description": "d", "mode": "x"}),
        json!({"name": "a", "description": "d", "org": "other"}),
        json!([]),
    ] {
        let fault = check(None, &text).unwrap_err();
        assert_eq!(fault.kind, Kind::InvalidParams, "{text}");
        assert!(fault.message.contains("definition"), "{fault}");
    }
    let fault = check(None, &json!({"name": "MINE", "description": "d"})).unwrap_err();
    assert_eq!(fault.kind, Kind::Conflict);
    assert!(fault.message.contains("MINE and mine"), "{fault}");

    let stored_only = |name| fixture.agents.stored_only("default", name);
    assert!(stored_only("kept").is_ok());
    assert!(stored_only("nobody").is_ok());
    assert!(
        stored_only("mine")
            .unwrap_err()
            .message
            .contains("agents/mine.md")
    );
    assert!(
        stored_only("build")
            .unwrap_err()
            .message
            .contains("built in")
    );
    // A stored agent that a file shadows can still be changed.
    fixture.write("agents/kept.md", "");
    fixture.agents.reload().unwrap();
    assert!(stored_only("kept").is_ok());
}

#[test]
fn an_agent_that_is_a_program_has_no_model_and_no_tools() {
    let fixture = Fixture::new();
    fixture.write(
        "agents/count.md",
        "runner: command\ncommand: {argv: [wc, -l]}\nmodel: paid/big\ntools: [read, shell]\n",
    );
    fixture.write(
        "agents/gone.md",
        "runner: command\ncommand: {argv: [gone]}\n",
    );
    fixture.write("agents/empty.md", "runner: command\n");
    fixture.write("agents/model.md", "command: {argv: [ls]}\n");
    fixture.agents.reload().unwrap();
    let count = fixture.get(None, "count").unwrap();
    assert_eq!((count.model.as_str(), count.problems.len()), ("command", 0));
    assert_eq!(count.program, Some(vec!["wc".to_owned(), "-l".to_owned()]));
    assert_eq!(count.tools, [""; 0]);
    let said = count.warnings.join("\n");
    assert!(
        said.contains("ignored, because the agent is a program: model, tools"),
        "{said}"
    );
    let resolved = fixture.resolve(None, "count").unwrap();
    assert_eq!(
        (resolved.model.as_str(), &*resolved.tools.body),
        ("command", "[]")
    );
    // The program may exist when a run starts; otherwise the run reports it.
    assert!(fixture.resolve(None, "gone").is_ok());
    let gone = fixture.get(None, "gone").unwrap().problems;
    assert!(gone[0].contains("PATH"), "{gone:?}");
    // A command without `runner: command` is reported as ignored.
    let model = fixture.get(None, "model").unwrap();
    assert!(
        model.warnings[0].contains("runner: command"),
        "{:?}",
        model.warnings
    );
    assert_eq!(model.program, None);
    let place = CatalogScope {
        org: "default",
        cwd: None,
    };
    let rejected = fixture.agents.list(place).rejected;
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert!(rejected[0].reason.contains("argv") && rejected[0].line.is_some());
}
