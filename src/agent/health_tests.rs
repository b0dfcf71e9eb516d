//! Agent dependencies are checked once a load, however often they are requested; the checks are
//! counted.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::{AgentCatalog, AgentCatalogOptions, AvailableModels};
use crate::clock::Clock;
use crate::contract::catalog::{Catalog, CatalogScope, Overrides, Pinned};
use crate::contract::skills::{PickedSkills, SkillCatalog, SkillListing, SkillSet};
use crate::kernel::time::Timestamp;

const HERE: CatalogScope<'static> = CatalogScope {
    org: "default",
    cwd: None,
};

/// The number of checks of each kind.
#[derive(Default)]
struct Asked {
    programs: AtomicUsize,
    providers: AtomicUsize,
    skills: AtomicUsize,
}

impl Asked {
    fn counts(&self) -> [usize; 3] {
        [&self.programs, &self.providers, &self.skills].map(|count| count.load(Ordering::Relaxed))
    }
}

/// No skills, except in folders that contain a file `skills`.
struct NoSkills(Arc<Asked>);

impl SkillCatalog for NoSkills {
    fn is_ready(&self, _: CatalogScope<'_>) -> bool {
        true
    }

    fn here(&self, place: CatalogScope<'_>, _: bool) -> Arc<SkillListing> {
        let cwd = place.cwd;
        let has_some = cwd.is_some_and(|cwd| Path::new(cwd).join("skills").exists());
        Arc::new(SkillListing {
            org: place.org.to_owned(),
            workspace: cwd.unwrap_or_default().to_owned(),
            hash: has_some.to_string(),
            skills: Vec::new(),
            rejected: Vec::new(),
        })
    }

    fn pick(
        &self,
        here: &SkillListing,
        names: Option<&[String]>,
        _: &[String],
    ) -> Arc<PickedSkills> {
        self.0.skills.fetch_add(1, Ordering::Relaxed);
        Arc::new(PickedSkills {
            set: SkillSet::default(),
            pinned: Pinned {
                hash: String::new(),
                body: "{}".into(),
            },
            bodies: Vec::new(),
            unknown: match here.hash.as_str() {
                "true" => Vec::new(),
                _ => names.unwrap_or_default().to_vec(),
            },
        })
    }

    fn known(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn required_programs(&self, _: &str) -> std::collections::BTreeSet<String> {
        std::collections::BTreeSet::new()
    }
}

fn agents(home: &Path, asked: &Arc<Asked>, clock: &Clock) -> AgentCatalog {
    let tools = ["read", "skill", "subagent_"];
    let tools = tools.map(|name| json!({ "name": name, "description": "", "parameters": {} }));
    let (programs, providers) = (Arc::clone(asked), Arc::clone(asked));
    let models = AvailableModels {
        default: "offline/search".to_owned(),
        offered: vec!["offline/search".to_owned(), "paid/big".to_owned()],
        thinking: Vec::new(),
        programs: Arc::new(move |name| {
            if !super::presets::is_program(name) {
                programs.programs.fetch_add(1, Ordering::Relaxed);
            }
            Err("it was not found in PATH".to_owned())
        }),
        providers: Arc::new(move |name| {
            (name == "paid").then(|| {
                providers.providers.fetch_add(1, Ordering::Relaxed);
                "its key is missing".to_owned()
            })
        }),
    };
    AgentCatalog::new(AgentCatalogOptions {
        default_agent: "build".to_owned(),
        models: tokio::sync::watch::channel(models).1,
        tools: tools.into(),
        servers: tokio::sync::watch::channel(Arc::default()).1,
        nodes: Default::default(),
        skills: Some(Arc::new(NoSkills(Arc::clone(asked)))),
        config: Some(home.join("agents")),
        personal: None,
        workspace: None,
        orgs: vec!["default".to_owned()],
        rows: None,
        clock: clock.clone(),
    })
    .unwrap()
}

fn write(home: &Path, name: &str, fields: &str) {
    let folder = home.join("agents");
    fs::create_dir_all(&folder).unwrap();
    let text = format!("---\ndescription: {name}.\n{fields}\n---\nPrompt.\n");
    fs::write(folder.join(format!("{name}.md")), text).unwrap();
}

/// The reason why each linked agent is not a tool of `host`.
fn left_out(agents: &AgentCatalog) -> Vec<(String, String)> {
    let left_out = agents.tools(HERE, "host", &[]).unwrap().left_out;
    let mut left_out: Vec<_> = left_out
        .into_iter()
        .map(|one| (one.name, one.reason))
        .collect();
    left_out.sort();
    left_out
}

#[test]
fn c1_the_look_at_linked_agents_is_made_once_a_load_and_an_edit_has_it_made_anew() {
    let home = tempfile::tempdir().unwrap();
    let asked = Arc::new(Asked::default());
    let links = ["keyless", "programless", "skilless", "well"];
    let links = links.map(|name| format!("{{agent: {name}, session: own}}"));
    let links = format!("linked_agents: [{}]", links.join(", "));
    write(home.path(), "host", &format!("tools: []\n{links}"));
    write(home.path(), "keyless", "model: paid/big\ntools: [read]");
    write(
        home.path(),
        "programless",
        "runner: command\ncommand: {argv: [gone]}",
    );
    write(home.path(), "skilless", "tools: [skill]\nskills: [nowhere]");
    write(home.path(), "well", "tools: [read]");
    let agents = agents(home.path(), &asked, &Clock::test(Timestamp(0)));
    assert_eq!(asked.counts(), [1, 1, 1], "one look at each");
    for _ in 0..3 {
        let found = left_out(&agents);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "subagent_keyless",
                "subagent_programless",
                "subagent_skilless"
            ]
        );
        for ((_, reason), why) in found
            .iter()
            .zip(["key is missing", "PATH", "skill nowhere"])
        {
            assert!(reason.contains(why), "{reason}");
        }
        let host = agents.resolve(HERE, "host", Overrides::default()).unwrap();
        assert!(host.tools.body.contains("subagent_well"));
        assert!(!agents.get(HERE, "keyless").unwrap().problems.is_empty());
        assert_eq!(agents.get(HERE, "skilless").unwrap().missing.len(), 1);
        assert!(agents.list(HERE).agents.len() > 5);
    }
    assert_eq!(asked.counts(), [1, 1, 1], "and none for a call");

    write(home.path(), "keyless", "tools: [read]");
    write(home.path(), "skilless", "tools: [skill]");
    agents.reload().unwrap();
    assert_eq!(asked.counts(), [2, 1, 1], "what is left of it, once more");
    let found = left_out(&agents);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "subagent_programless");
}

#[test]
fn c1_skills_are_looked_for_where_the_run_works_and_again_when_they_come() {
    let (home, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (asked, clock) = (Arc::<Asked>::default(), Clock::test(Timestamp(0)));
    let link = "linked_agents: [{agent: skilled, session: own}]";
    write(home.path(), "host", &format!("tools: []\n{link}"));
    write(
        home.path(),
        "skilled",
        "tools: [skill]\nskills: [of-the-project]",
    );
    let agents = agents(home.path(), &asked, &clock);
    let there = CatalogScope {
        org: "default",
        cwd: work.path().to_str(),
    };
    let left_out = |place| agents.tools(place, "host", &[]).unwrap().left_out.len();
    assert_eq!((left_out(HERE), left_out(there)), (1, 1));
    fs::write(work.path().join("skills"), "").unwrap();
    clock.advance(Duration::from_secs(1));
    assert_eq!((left_out(HERE), left_out(there)), (1, 0));
    let host = agents.resolve(there, "host", Overrides::default()).unwrap();
    assert!(host.tools.body.contains("subagent_skilled"));
    // The result is cached for all callers.
    let looks = asked.counts();
    clock.advance(Duration::from_secs(1));
    assert_eq!((left_out(there), asked.counts()), (0, looks));
}
