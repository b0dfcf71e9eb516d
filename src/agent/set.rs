//! Layers definitions: which agent takes effect, which are shadowed, and which are refused because
//! a model could not distinguish their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::AgentDefinition;
use super::fields::AgentDraft;
use super::folder::{self, AgentFile};
use super::merge::{self, TrustLevel};
use super::names::slug;
use super::raw::LoadError;
use super::tools::ToolChoice;
use crate::contract::catalog::{AgentMode, InactiveDefinition, OffPreset};
use crate::kernel::ids::AgentId;
use crate::kernel::time::Timestamp;

/// The source of a definition; later variants win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DefinitionSource {
    /// Built in.
    Preset,
    /// Created over RPC.
    Stored,
    /// A file of this user.
    Config,
    /// A file of the project that contains the working folder.
    Project,
}

impl DefinitionSource {
    /// The name of the source in lists.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            DefinitionSource::Preset => "preset",
            DefinitionSource::Stored => "stored",
            DefinitionSource::Config => "config",
            DefinitionSource::Project => "project",
        }
    }
}

/// A definition in a layer.
#[derive(Clone, Debug)]
pub(super) struct LayeredDefinition {
    /// Its layer.
    pub source: DefinitionSource,
    /// The trust in it.
    pub level: TrustLevel,
    /// Its file; `None` if it is stored or built in.
    pub file: Option<PathBuf>,
    /// The number of times it was stored; `None` if it is not stored.
    pub revision: Option<i64>,
    /// When it was stored; `None` if it is not stored.
    pub stored_at: Option<Timestamp>,
    /// Its content.
    pub draft: AgentDraft,
    /// Why its project must be trusted first; `None` if it is usable.
    pub untrusted: Option<String>,
    /// A user file that would replace it but is broken, with the reason.
    pub replaced_by_broken: Option<String>,
}

/// The agent that takes effect under its name.
#[derive(Clone, Debug)]
pub(super) struct Effective {
    /// The definition in effect.
    pub candidate: LayeredDefinition,
    /// The definitions that it shadows, the highest layer first.
    pub shadowed: Vec<InactiveDefinition>,
    /// Warnings for callers that use it.
    pub notes: Vec<String>,
    /// All definitions of its name in effect, unmerged, the lowest layer first.
    written: Vec<(TrustLevel, AgentDraft)>,
}

/// The agents in effect, and what was refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// By name.
    pub agents: BTreeMap<AgentId, Effective>,
    /// Refused files and rows, each with the reason.
    pub rejected: Vec<InactiveDefinition>,
    /// Presets whose programs are not installed.
    pub off: Vec<OffPreset>,
}

impl Layers {
    /// True if any agent names skills, which can differ by folder.
    pub(super) fn name_skills(&self) -> bool {
        let mut agents = self.agents.values();
        agents.any(|taken| {
            let named = &taken.candidate.draft.definition.skills;
            named.as_ref().is_some_and(|named| !named.is_empty())
        })
    }

    /// Creates the lowest layer: the built-in agents.
    pub(super) fn presets(presets: Vec<AgentDefinition>) -> Self {
        let mut layers = Layers::default();
        let candidates = presets.into_iter().map(|definition| LayeredDefinition {
            source: DefinitionSource::Preset,
            level: TrustLevel::User,
            file: None,
            revision: None,
            stored_at: None,
            untrusted: None,
            replaced_by_broken: None,
            draft: AgentDraft {
                tools: ToolChoice {
                    allow: Some(definition.tools.clone()),
                    ..ToolChoice::default()
                },
                definition,
                warnings: Vec::new(),
                not_in_effect: Vec::new(),
                needs_trust: Vec::new(),
                soft_model: false,
                gate_lines: Vec::new(),
            },
        });
        layers.add(candidates.collect());
        layers
    }

    /// Adds the definitions of a folder as the top layer.
    pub(super) fn add_files(
        &mut self,
        source: DefinitionSource,
        level: TrustLevel,
        found: Vec<AgentFile>,
    ) {
        let mut candidates = Vec::new();
        let mut broken_ones = Vec::new();
        for AgentFile { file, outcome, .. } in found {
            match outcome {
                Ok(draft) => candidates.push(LayeredDefinition {
                    source,
                    level,
                    file: Some(file),
                    revision: None,
                    stored_at: None,
                    draft,
                    untrusted: None,
                    replaced_by_broken: None,
                }),
                Err(broken) => {
                    self.reject(source, Some(&file), &broken);
                    broken_ones.push((file, broken));
                }
            }
        }
        let given: BTreeSet<String> = candidates
            .iter()
            .map(|one| one.draft.definition.name.clone())
            .collect();
        self.add(candidates);
        for (file, broken) in broken_ones {
            self.block(&file, &broken, &given);
        }
    }

    /// Marks an agent unusable if a broken user file would replace it: the agent may have more
    /// rights than that file gives.
    fn block(&mut self, file: &Path, broken: &LoadError, given: &BTreeSet<String>) {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        let stem = stem.unwrap_or_default().to_owned();
        let named = folder::stated_name(file).unwrap_or(stem);
        let id = AgentId::parse(&named)
            .ok()
            .filter(|_| !given.contains(&named));
        if let Some(taken) = id.and_then(|id| self.agents.get_mut(&id)) {
            taken.candidate.replaced_by_broken = Some(format!(
                "{}, which would replace it, is not valid: {broken}",
                shown(file)
            ));
        }
    }

    /// Records a refused definition.
    pub(super) fn reject(
        &mut self,
        source: DefinitionSource,
        file: Option<&Path>,
        broken: &LoadError,
    ) {
        self.rejected.push(InactiveDefinition {
            source: source.as_str().to_owned(),
            file: file.map(shown),
            line: broken.line,
            reason: broken.reason.clone(),
        });
    }

    /// Adds one layer on top.
    pub(super) fn add(&mut self, layer: Vec<LayeredDefinition>) {
        let mut layer = self.without_doubles(layer);
        self.drop_clashes_within(&mut layer);
        for candidate in layer {
            self.put(candidate);
        }
    }

    /// Keeps one definition of each name: the file called like the agent, else the first by file
    /// name, so that the result is deterministic.
    fn without_doubles(&mut self, layer: Vec<LayeredDefinition>) -> Vec<LayeredDefinition> {
        let mut kept: Vec<LayeredDefinition> = Vec::new();
        for candidate in layer {
            let name = &candidate.draft.definition.name;
            let Some(at) = kept
                .iter()
                .position(|known| known.draft.definition.name == *name)
            else {
                kept.push(candidate);
                continue;
            };
            let (winner, loser) = if is_called_like_it(&candidate) && !is_called_like_it(&kept[at])
            {
                let loser = std::mem::replace(&mut kept[at], candidate);
                (&kept[at], loser)
            } else {
                (&kept[at], candidate)
            };
            let reason = format!(
                "agent {} is defined twice; {} is used",
                loser.draft.definition.name,
                origin(winner)
            );
            self.reject(
                loser.source,
                loser.file.as_deref(),
                &LoadError::whole(reason),
            );
        }
        kept
    }

    /// Refuses both of two names that a model could not distinguish: a call of either would be
    /// ambiguous.
    fn drop_clashes_within(&mut self, layer: &mut Vec<LayeredDefinition>) {
        let mut by_slug: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for candidate in layer.iter() {
            let name = &candidate.draft.definition.name;
            by_slug.entry(slug(name)).or_default().insert(name.clone());
        }
        layer.retain(|candidate| {
            let name = &candidate.draft.definition.name;
            let same = &by_slug[&slug(name)];
            if same.len() == 1 {
                return true;
            }
            let names: Vec<&str> = same.iter().map(String::as_str).collect();
            let reason = format!(
                "agents {} differ only in case or punctuation: none of them is used; rename all \
                 but one",
                names.join(" and ")
            );
            self.reject(
                candidate.source,
                candidate.file.as_deref(),
                &LoadError::whole(reason),
            );
            false
        });
    }

    fn put(&mut self, candidate: LayeredDefinition) {
        let definition = &candidate.draft.definition;
        let Ok(id) = AgentId::parse(&definition.name) else {
            // The name was checked when it was parsed.
            return;
        };
        let clash = self
            .agents
            .keys()
            .find(|known| **known != id && slug(known.as_str()) == slug(id.as_str()));
        if let Some(known) = clash {
            let reason = format!(
                "agents {id} and {known} differ only in case or punctuation: {known} is used, it \
                 was defined first; rename this one"
            );
            self.reject(
                candidate.source,
                candidate.file.as_deref(),
                &LoadError::whole(reason),
            );
            return;
        }
        let below = self.agents.remove(&id);
        let (Some(why), Some(mut below)) = (&candidate.untrusted, below.clone()) else {
            let taken = self.taken(candidate, below);
            self.agents.insert(id, taken);
            return;
        };
        // An untrusted definition does not replace another.
        below.notes.push(format!(
            "{} stays in effect; {} is not used: {why}",
            origin(&below.candidate),
            origin(&candidate)
        ));
        let reason = LoadError::whole(why.clone());
        self.reject(candidate.source, candidate.file.as_deref(), &reason);
        self.agents.insert(id, below);
    }

    /// Puts the candidate in the place of `below`, with no more rights than every more trusted
    /// definition of its name gives.
    fn taken(&self, mut candidate: LayeredDefinition, below: Option<Effective>) -> Effective {
        let mut written = below
            .as_ref()
            .map(|below| below.written.clone())
            .unwrap_or_default();
        written.push((candidate.level, candidate.draft.clone()));
        let is_primary = |name: &str| {
            let known = AgentId::parse(name)
                .ok()
                .and_then(|id| self.agents.get(&id));
            known.is_some_and(|known| known.candidate.draft.definition.mode == AgentMode::Primary)
        };
        let kept = match merge::effective(&written, &is_primary) {
            Some((draft, kept)) => {
                candidate.draft = draft;
                kept
            }
            None => Vec::new(),
        };
        let fields = candidate.draft.not_in_effect.iter();
        let mut taken = Effective {
            notes: fields.map(|name| later(name)).collect(),
            shadowed: Vec::new(),
            candidate,
            written,
        };
        if let Some(below) = below {
            taken.covers(below, &kept);
        }
        taken
    }
}

impl Effective {
    fn covers(&mut self, below: Effective, kept: &[&str]) {
        let here = origin(&self.candidate);
        if !kept.is_empty() {
            let way = match self.candidate.source {
                DefinitionSource::Project => "; abide trust removes this limit",
                _ => "; a file in the configuration of this program may grant more",
            };
            self.notes.push(format!(
                "{here} is limited by {} in these fields: {}{way}",
                origin(&below.candidate),
                kept.join(", ")
            ));
        }
        // A project may be written by others, so shadowing is always reported.
        if self.candidate.source == DefinitionSource::Project {
            self.notes
                .push(format!("{here} shadows {}", origin(&below.candidate)));
        }
        self.shadowed.push(InactiveDefinition {
            source: below.candidate.source.as_str().to_owned(),
            file: below.candidate.file.as_deref().map(shown),
            line: None,
            reason: format!("shadowed by {here}"),
        });
        self.shadowed.extend(below.shadowed);
    }
}

fn is_called_like_it(candidate: &LayeredDefinition) -> bool {
    let stem = candidate.file.as_deref().and_then(Path::file_stem);
    stem.is_some_and(|stem| stem == candidate.draft.definition.name.as_str())
}

fn origin(candidate: &LayeredDefinition) -> String {
    match &candidate.file {
        Some(file) => shown(file),
        None => format!(
            "the {} agent {}",
            candidate.source.as_str(),
            candidate.draft.definition.name
        ),
    }
}

/// The note about a field that is not in effect yet.
fn later(name: &str) -> String {
    format!("not in effect yet: {name}")
}

/// A path as lists show it.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}
