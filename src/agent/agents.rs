//! The agent catalog: which agents exist at a place, and what a run pins of one. Created once at
//! daemon start; the registry queries it on every spawn.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;
use tokio::sync::watch;

use super::AgentDefinition;
use super::base::{Base, ProjectTrust, SOMEWHERE, is_of, parse_stored, read_base, user_files};
use super::folder::{self, AgentFile, Dialect};
use super::folder_cache::FolderCache;
use super::health::Dependencies;
use super::last_read;
use super::merge::TrustLevel;
use super::names::slug;
use super::presets::presets;
use super::project::{self, ProjectDefinitions};
use super::raw::LoadError;
use super::served::Reachable;
use super::set::{DefinitionSource, LayeredDefinition, Layers};
use super::view::{AvailableModels, Set};
use crate::clock::Clock;
use crate::contract::catalog::{
    AgentListing, AgentSummary, Catalog, CatalogScope, Covers, Definition, Overrides, Resolved,
    Sets, ToolSet,
};
use crate::contract::nodes::{NodeView, NodesSlot};
use crate::contract::rows::AgentRows;
use crate::contract::servers::{ServedTool, ServerViews, ServersSeen};
use crate::contract::skills::SkillCatalog;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::AgentId;
use crate::kernel::policy::overlay;
use crate::kernel::secret::GivenValue;
use crate::kernel::text::preview;

/// The inputs of the catalog.
#[derive(Clone)]
pub struct AgentCatalogOptions {
    /// The agent used if a request names none.
    pub default_agent: String,
    /// The available models and programs; they change with the settings.
    pub models: watch::Receiver<AvailableModels>,
    /// The schemas of all built-in tools (`{name, description, parameters}`).
    pub tools: Vec<Value>,
    /// The tool servers and their current state.
    pub servers: ServersSeen,
    /// The paired nodes, once they are available.
    pub nodes: NodesSlot,
    /// The skills that agents may name; `None` = skills are not checked.
    pub skills: Option<Arc<dyn SkillCatalog>>,
    /// The folder of this user's agent files; `None` = no such files are read.
    pub config: Option<PathBuf>,
    /// The folder of this user's agent files for Claude Code; `None` = no such files are read.
    pub personal: Option<PathBuf>,
    /// The working folder of runs that name none.
    pub workspace: Option<PathBuf>,
    /// The tenants that always exist.
    pub orgs: Vec<String>,
    /// Stored agents and trusted projects; `None` = there are none.
    pub rows: Option<Arc<dyn AgentRows>>,
    /// The clock.
    pub clock: Clock,
}

/// The catalog of agents.
pub struct AgentCatalog {
    options: AgentCatalogOptions,
    default_agent: AgentId,
    base: RwLock<Arc<Base>>,
    nearby: Mutex<FolderCache>,
    /// Projects as last read completely, used when a later read fails.
    projects: Mutex<HashMap<PathBuf, ProjectDefinitions>>,
}

/// The maximum number of projects in the cache.
const PROJECTS: usize = 256;

impl AgentCatalog {
    /// Reads every definition. Fails if the default agent does not exist or the rows cannot be
    /// read; an invalid definition file is not an error.
    pub fn new(options: AgentCatalogOptions) -> Result<Self, Fault> {
        let default_agent = AgentId::parse(&options.default_agent)
            .map_err(|error| Fault::params("defaults.agent", error))?;
        let models = options.models.borrow().clone();
        models.check("defaults.model", &models.default)?;
        let base = read_base(&options, &models, 1, None)?;
        say_unread(&[], &base.unread);
        let agents = AgentCatalog {
            nearby: Mutex::new(FolderCache::new(options.clock.clone())),
            projects: Mutex::default(),
            base: RwLock::new(Arc::new(base)),
            default_agent,
            options,
        };
        let org = agents.options.orgs.first().map_or("", String::as_str);
        let place = CatalogScope { org, cwd: None };
        agents.set(place).entry(agents.default_agent.as_str())?;
        Ok(agents)
    }

    fn models(&self) -> watch::Ref<'_, AvailableModels> {
        self.options.models.borrow()
    }

    fn servers(&self) -> Arc<ServerViews> {
        Arc::clone(&self.options.servers.borrow())
    }

    fn nodes(&self, org: &str) -> Vec<NodeView> {
        let nodes = self.options.nodes.get();
        nodes.map(|nodes| nodes.list(org)).unwrap_or_default()
    }

    fn base(&self) -> Arc<Base> {
        // A panic during the write left either the old or the new value.
        Arc::clone(&self.base.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn cwd<'a>(&'a self, place: CatalogScope<'a>) -> Option<&'a Path> {
        match place.cwd {
            Some(cwd) => Some(Path::new(cwd)),
            None => self.options.workspace.as_deref(),
        }
    }

    /// The agents in effect at a place.
    fn set(&self, place: CatalogScope<'_>) -> Arc<Set> {
        let base = self.base();
        let Some(cwd) = self.cwd(place) else {
            return Arc::clone(&base.of(place.org).set);
        };
        let known = self.nearby().fresh(place.org, cwd, base.generation);
        if let Some(found) = known {
            return found.unwrap_or_else(|| Arc::clone(&base.of(place.org).set));
        }
        // Read without the lock, so that other requests proceed.
        let project = project::find(cwd);
        let watched: Vec<PathBuf> = project
            .iter()
            .flat_map(|folder| project::folders(folder, self.options.personal.as_deref()))
            .map(|(inside, _)| inside)
            .collect();
        // Unreadable files count as unchanged; this result is not cached, so the next request
        // retries.
        let signature = crate::watch::readable_signature(&watched);
        let is_readable = signature.is_ok();
        let mut files = signature.unwrap_or_default();
        // Whether the named skills exist is part of the health of the agents.
        let skills = self.options.skills.as_ref().filter(|_| place.cwd.is_some());
        if let Some(skills) = skills {
            let mut hasher = DefaultHasher::new();
            (files, &skills.here(place, false).hash).hash(&mut hasher);
            files = hasher.finish();
        }
        let state = (project.clone(), files);
        let same = self
            .nearby()
            .unchanged(place.org, cwd, base.generation, &state);
        if let (Some(found), true) = (same, is_readable) {
            return found.unwrap_or_else(|| Arc::clone(&base.of(place.org).set));
        }
        let (set, is_whole) = match project {
            None => (None, true),
            Some(folder) => self.with_project(&base, place, folder),
        };
        let set = set.or_else(|| {
            let layers = &base.of(place.org).layers;
            let has_its_own = place.cwd.is_some() && layers.name_skills();
            has_its_own.then(|| Arc::new(self.ready(layers, place)))
        });
        if is_readable && is_whole {
            self.nearby()
                .keep(place.org, cwd, base.generation, state, set.clone());
        }
        set.unwrap_or_else(|| Arc::clone(&base.of(place.org).set))
    }

    fn nearby(&self) -> std::sync::MutexGuard<'_, FolderCache> {
        // A cache: an inconsistent entry is refreshed soon.
        self.nearby.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tenant's agents with the project's agents on top (`None` if the project has
    /// none), and whether all files could be read. Unreadable files count as last read.
    fn with_project(
        &self,
        base: &Base,
        place: CatalogScope<'_>,
        folder: PathBuf,
    ) -> (Option<Arc<Set>>, bool) {
        let org = place.org;
        let project = project::read(folder, self.options.personal.as_deref());
        let mut all = project.layers.iter().flat_map(|(_, found)| found);
        let is_whole = all.all(|found| !found.unread);
        let project = self.known_of(project, is_whole);
        if project.layers.iter().all(|(_, found)| found.is_empty()) {
            return (None, is_whole);
        }
        let trust = base.trust_in(org, &project.folder, &project.covered.hash);
        let mut layers = base.of(org).layers.clone();
        for (dialect, found) in project.layers {
            let level = match (&trust, dialect) {
                (ProjectTrust::Given, _) => TrustLevel::User,
                (_, Dialect::Own) => TrustLevel::Untrusted,
                (_, Dialect::Claude) => TrustLevel::UntrustedForeign,
            };
            let mut candidates = Vec::new();
            for AgentFile { file, outcome, .. } in found {
                match outcome {
                    Ok(draft) => candidates.push(LayeredDefinition {
                        source: DefinitionSource::Project,
                        level,
                        replaced_by_broken: None,
                        untrusted: trust.refusal(&project.folder, &draft.needs_trust),
                        file: Some(file),
                        revision: None,
                        stored_at: None,
                        draft,
                    }),
                    Err(broken) => layers.reject(DefinitionSource::Project, Some(&file), &broken),
                }
            }
            candidates.retain(|one| is_of(one, org));
            layers.add(candidates);
        }
        (Some(Arc::new(self.ready(&layers, place))), is_whole)
    }

    /// The project as read, with unreadable parts replaced by their last known state.
    fn known_of(&self, project: ProjectDefinitions, is_whole: bool) -> ProjectDefinitions {
        // A cache: every entry in it was read completely.
        let mut known = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        if is_whole {
            if known.len() >= PROJECTS {
                known.clear();
            }
            known.insert(project.folder.clone(), project.clone());
            return project;
        }
        tracing::debug!(project = %project.folder.display(), "project agents cannot be read now");
        let Some(before) = known.get(&project.folder) else {
            return project;
        };
        let layers = project.layers.into_iter().zip(&before.layers);
        ProjectDefinitions {
            layers: layers
                .map(|((dialect, now), (_, before))| (dialect, last_read::keep(now, before).0))
                .collect(),
            covered: before.covered.clone(),
            folder: project.folder,
        }
    }

    /// Prepares these agents for work at `place`.
    fn ready(&self, layers: &Layers, place: CatalogScope<'_>) -> Set {
        let ground = Dependencies {
            models: &self.models(),
            tools: &self.options.tools,
            servers: &self.servers(),
            skills: self.options.skills.as_deref(),
            place,
        };
        Set::new(layers, ground)
    }
}

/// Logs each place once when it becomes unreadable, and once when all are readable again.
fn say_unread(before: &[String], now: &[String]) {
    for place in now.iter().filter(|place| !before.contains(place)) {
        tracing::warn!(
            "agents: {place}; the last successful read stays in effect, and reading is retried"
        );
    }
    if now.is_empty() && !before.is_empty() {
        tracing::info!("the agent files can be read again");
    }
}

/// Rejects environment entries of a stored agent that a request may not set, and plain-text values,
/// which the store would keep readable.
fn stored_environment(definition: &AgentDefinition) -> Result<(), Fault> {
    for (name, given) in &definition.env {
        if overlay::is_blocked(name) {
            let message = format!(
                "env: {name} changes how programs load or start: an agent created over RPC \
                 cannot set it. Nothing was stored"
            );
            return Err(Fault::new(Kind::Forbidden, message)
                .hint("set the variable in an agent file in the configuration instead")
                .with("name", name.as_str()));
        }
        if matches!(given, Some(GivenValue::Text(_))) {
            let message = format!(
                "env: {name}: the text of a stored agent is kept as plain text, so it must not \
                 contain values. Nothing was stored"
            );
            return Err(Fault::params("definition", message)
                .hint("name the source of the value: {from: env:NAME}, {from: file:/PATH} or {from: cred:NAME}")
                .with("name", name.as_str()));
        }
    }
    Ok(())
}

impl Catalog for AgentCatalog {
    fn is_ready(&self, place: CatalogScope<'_>) -> bool {
        let generation = self.base().generation;
        self.cwd(place).is_none_or(|cwd| {
            let known = self.nearby().fresh(place.org, cwd, generation);
            known.is_some()
        })
    }

    fn resolve(
        &self,
        place: CatalogScope<'_>,
        name: &str,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        let (servers, nodes) = (self.servers(), self.nodes(place.org));
        let reachable = Reachable {
            servers: &servers,
            nodes: &nodes,
        };
        self.set(place)
            .resolve(&self.models(), reachable, name, overrides)
    }

    fn default_agent(&self) -> AgentId {
        self.default_agent.clone()
    }

    fn list(&self, place: CatalogScope<'_>) -> AgentListing {
        let (servers, nodes) = (self.servers(), self.nodes(place.org));
        let reachable = Reachable {
            servers: &servers,
            nodes: &nodes,
        };
        self.set(place).list(&self.models(), reachable)
    }

    fn get(&self, place: CatalogScope<'_>, name: &str) -> Result<AgentSummary, Fault> {
        let set = self.set(place);
        let (id, entry) = set.entry(name)?;
        let (servers, nodes) = (self.servers(), self.nodes(place.org));
        let reachable = Reachable {
            servers: &servers,
            nodes: &nodes,
        };
        Ok(entry.summary(id, &self.models(), reachable))
    }

    fn tools(
        &self,
        place: CatalogScope<'_>,
        name: &str,
        served: &[ServedTool],
    ) -> Result<ToolSet, Fault> {
        let set = self.set(place);
        let (id, entry) = set.entry(name)?;
        let (servers, nodes) = (self.servers(), self.nodes(place.org));
        let equipment = entry.equipment(Reachable {
            servers: &servers,
            nodes: &nodes,
        });
        Ok(ToolSet {
            agent: id.clone(),
            tools: entry.with_served(&equipment, served),
            left_out: entry.left_out(&equipment),
        })
    }

    fn check(&self, org: &str, definition: &Definition) -> Result<AgentId, Fault> {
        let stem = definition.name.as_deref().unwrap_or_default();
        let refused = |broken: LoadError| {
            Fault::params("definition", format!("{broken}. Nothing was stored"))
                .with("line", broken.line)
        };
        let draft = parse_stored(&definition.format, stem, &definition.text).map_err(refused)?;
        let found = &draft.definition;
        if found.org.as_deref().is_some_and(|named| named != org) {
            let message = "org: a stored agent belongs to the tenant that stores it";
            return Err(Fault::params("definition", message));
        }
        stored_environment(found)?;
        let base = self.base();
        let known = base.of(org).set.names();
        let clash = known
            .iter()
            .find(|known| **known != found.name && slug(known) == slug(&found.name));
        if let Some(clash) = clash {
            return Err(Fault::new(
                Kind::Conflict,
                format!(
                    "agents {} and {clash} would differ only in case or punctuation, and a model \
                     could not tell them apart. Nothing was stored",
                    found.name
                ),
            )
            .hint("choose another name"));
        }
        AgentId::parse(&found.name).map_err(Fault::internal)
    }

    fn stored_only(&self, org: &str, name: &str) -> Result<(), Fault> {
        let base = self.base();
        let set = &base.of(org).set;
        let Ok((_, entry)) = set.entry(name) else {
            return Ok(());
        };
        if entry.source == DefinitionSource::Stored || entry.shadows(DefinitionSource::Stored) {
            return Ok(());
        }
        let shown = preview(name, 64);
        Err(match &entry.file {
            Some(file) => Fault::new(
                Kind::Conflict,
                format!("agent {shown} is defined in {file}; it cannot be changed over RPC"),
            )
            .hint("edit or delete that file; the daemon applies the change at once")
            .with("file", file.as_str()),
            None => Fault::new(
                Kind::Conflict,
                format!("agent {shown} is built in and cannot be changed"),
            )
            .hint("to replace it, create an agent of that name with agents.create or a file"),
        })
    }

    fn reload(&self) -> Result<(), Fault> {
        // Read before the lock is taken, so that no request waits for a slow disk. The last read
        // wins; callers run one at a time.
        let before = self.base();
        let next = before.generation + 1;
        let base = read_base(&self.options, &self.models(), next, Some(&before))?;
        say_unread(&before.unread, &base.unread);
        *self.base.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(base);
        Ok(())
    }

    fn is_outdated(&self) -> bool {
        self.nearby().forget();
        self.base().state != user_files(&self.options)
    }

    fn unread(&self) -> Vec<String> {
        self.base().unread.clone()
    }

    fn sets(&self) -> Sets {
        let base = self.base();
        base.sets
            .iter()
            .map(|(org, own)| (org.clone(), own.set.hashes()))
            .collect()
    }

    fn built_in(&self) -> BTreeMap<String, String> {
        let layers = Layers::presets(presets());
        self.ready(&layers, SOMEWHERE).hashes()
    }

    fn covers(&self, folder: &str) -> Result<Covers, Fault> {
        let asked = Path::new(folder);
        let whole = asked.canonicalize().map_err(|fault| {
            Fault::params(
                "folder",
                match fault.kind() {
                    std::io::ErrorKind::NotFound => format!("folder {folder} does not exist"),
                    _ => format!("{folder}: {fault}"),
                },
            )
        })?;
        match project::find(&whole) {
            Some(found) if found == whole => {}
            Some(found) => {
                let message = format!("it is inside project {}", found.display());
                return Err(Fault::params("folder", message).hint("name that folder"));
            }
            None => {
                return Err(Fault::params(
                    "folder",
                    "it is not a project: no folder at or above it contains .abide or .git",
                ));
            }
        }
        let project = project::read(whole, self.options.personal.as_deref());
        let folder = project.folder.to_str().ok_or_else(|| {
            Fault::params(
                "folder",
                "a folder whose name is not UTF-8 cannot be trusted",
            )
        })?;
        Ok(Covers {
            folder: folder.to_owned(),
            hash: project.covered.hash,
            files: project
                .covered
                .files
                .into_iter()
                .map(|(file, needs)| (file, needs.iter().map(ToString::to_string).collect()))
                .collect(),
        })
    }
}

/// The result of checking one file: the agent's name and its warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedAgent {
    /// The agent's name.
    pub name: String,
    /// What was corrected, ignored, or is not in effect.
    pub warnings: Vec<String>,
}

impl AgentCatalog {
    /// Checks one file as if it were among this user's agents, or, for a file in `.claude/agents`,
    /// among those of Claude Code.
    pub fn check_file(&self, file: &Path) -> Result<CheckedAgent, LoadError> {
        let is_claude = file
            .parent()
            .is_some_and(|folder| folder.ends_with(".claude/agents"));
        let dialect = match is_claude {
            true => Dialect::Claude,
            false => Dialect::Own,
        };
        let draft = folder::read_file(file, dialect, None)?;
        let name = draft.definition.name.clone();
        let gate_lines = draft.gate_lines.clone();
        let mut layers = Layers::default();
        layers.add_files(
            DefinitionSource::Config,
            TrustLevel::User,
            vec![AgentFile {
                file: file.to_owned(),
                outcome: Ok(draft),
                unread: false,
            }],
        );
        let set = self.ready(&layers, SOMEWHERE);
        let (id, entry) = set
            .entry(&name)
            .map_err(|fault| LoadError::whole(fault.message))?;
        let servers = self.servers();
        let reachable = Reachable {
            servers: &servers,
            nodes: &[],
        };
        let summary = entry.summary(id, &self.models(), reachable);
        let mut warnings = summary.warnings;
        let idle = entry.idle_rules(&gate_lines);
        let found = summary.problems.into_iter().chain(summary.missing);
        for found in found.chain(idle) {
            if !warnings.contains(&found) {
                warnings.push(found);
            }
        }
        Ok(CheckedAgent { name, warnings })
    }
}
