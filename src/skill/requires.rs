//! Reads a skill's requirements from its metadata, in this program's format and in those of earlier
//! clients, and checks whether this machine or a connected one meets them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use super::install;
use super::parse::is_true;
use super::yaml::YamlNode;
use crate::contract::skills::InstallHint;

/// Keys in `metadata` under which clients keep their extensions. The first one present is used;
/// without any, `metadata` itself.
const VENDORS: &[&str] = &["abide", "openclaw", "clawdbot", "moltbot", "clawdis"];

/// What must be available for a skill to be usable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillRequirements {
    /// Platforms, any of them: `linux`, `macos`, `windows`. Empty = any.
    pub os: Vec<String>,
    /// Programs, all of them required.
    pub bins: Vec<String>,
    /// Programs, any one of them required.
    pub any_bins: Vec<String>,
    /// Environment variables of the run, all required.
    pub env: Vec<String>,
    /// Settings that must be on, all of them.
    pub config: Vec<String>,
    /// The environment variable that holds its key.
    pub primary_env: Option<String>,
    /// Require only the platform; skip the checks of programs, variables and settings.
    pub always: bool,
    /// The name of its entry in the settings, if not the skill's name.
    pub key: Option<String>,
    /// How its programs can be installed.
    pub install: Vec<InstallHint>,
    /// The only node on which it is usable: the one that publishes it.
    pub on_node: Option<String>,
}

/// The requirements in a skill's metadata, and remarks about what was not understood.
pub(super) fn requires(metadata: &YamlNode) -> (SkillRequirements, Vec<String>) {
    let mut odd = Vec::new();
    let own = VENDORS.iter().find_map(|vendor| metadata.get(vendor));
    let parsed;
    let own = match own {
        // JSON within a string.
        Some(YamlNode::Text(text)) => {
            parsed = super::yaml::read(text).map(|tree| YamlNode::Map(tree.fields));
            parsed.as_ref().unwrap_or(metadata)
        }
        Some(map @ YamlNode::Map(_)) => map,
        _ => metadata,
    };
    let needs = own.get("requires").unwrap_or(&YamlNode::Null);
    let mut list = |from: &YamlNode, name: &str| match from.get(name) {
        None | Some(YamlNode::Null) => Vec::new(),
        Some(YamlNode::Text(text)) => vec![text.clone()],
        Some(YamlNode::List(items)) => items
            .iter()
            .filter_map(YamlNode::text)
            .map(str::to_owned)
            .collect(),
        Some(YamlNode::Map(_)) => {
            odd.push(format!(
                "{name}: a list of names is expected; it is ignored"
            ));
            Vec::new()
        }
    };
    let text = |name: &str| own.get(name).and_then(YamlNode::text).map(str::to_owned);
    let os = list(own, "os");
    let found = SkillRequirements {
        os: os.iter().map(|name| platform(name)).collect(),
        bins: list(needs, "bins"),
        any_bins: list(needs, "anyBins"),
        env: list(needs, "env"),
        config: list(needs, "config"),
        primary_env: text("primaryEnv"),
        always: own.get("always").is_some_and(is_true),
        key: text("skillKey"),
        install: install::hints(own.get("install"), &mut odd),
        on_node: None,
    };
    (found, odd)
}

/// The standard name of a platform, from the names that clients use.
pub(super) fn platform(name: &str) -> String {
    match name.to_ascii_lowercase().as_str() {
        "darwin" | "mac" | "osx" => "macos".to_owned(),
        "win32" | "win" => "windows".to_owned(),
        other => other.to_owned(),
    }
}

/// A connected node on which programs can be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteHost {
    /// Its name.
    pub name: String,
    /// `linux`, `macos` or `windows`.
    pub platform: String,
    /// Names of the programs that it has.
    pub bins: BTreeSet<String>,
}

/// What skills can rely on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// This platform: `linux`, `macos` or `windows`.
    pub platform: String,
    /// The search path for programs of runs.
    pub path: Option<OsString>,
    /// Names of the variables in a run's environment.
    pub env: BTreeSet<String>,
    /// Of these the names that agents, requests or the skill's settings give. Only they are passed on
    /// to programs on nodes.
    pub given: BTreeSet<String>,
    /// Names of the settings that are on.
    pub config: BTreeSet<String>,
    /// The connected nodes on which programs can be run, by name.
    pub remotes: Vec<RemoteHost>,
}

impl Host {
    /// The platform and `PATH` of this process, for checks without a daemon.
    pub fn of_this_process() -> Self {
        Host {
            platform: std::env::consts::OS.to_owned(),
            path: std::env::var_os("PATH"),
            ..Host::default()
        }
    }
}

/// A missing program, or alternatives of which one is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPrograms<'a> {
    /// The program's name, or the names of the alternatives.
    pub any_of: Vec<&'a str>,
    /// How one of them can be installed on this platform.
    pub hints: Vec<&'a InstallHint>,
}

impl SkillRequirements {
    /// The required programs that are not on this machine, with install hints.
    pub fn missing_programs<'a>(&'a self, host: &Host) -> Vec<MissingPrograms<'a>> {
        let has = |name: &String| is_program(host, name);
        let mut missing: Vec<Vec<&str>> = without(&self.bins, has)
            .into_iter()
            .map(|name| vec![name])
            .collect();
        if !self.any_bins.is_empty() && !self.any_bins.iter().any(has) {
            missing.push(self.any_bins.iter().map(String::as_str).collect());
        }
        let brings = |hint: &InstallHint, any_of: &[&str]| {
            let fits = hint.os.is_empty() || hint.os.contains(&host.platform);
            // Many hints say what is installed, but not which programs it contains.
            let brings = |bin: &String| any_of.contains(&bin.as_str());
            fits && (hint.bins.is_empty() || hint.bins.iter().any(brings))
        };
        let with_hints = |any_of: Vec<&'a str>| MissingPrograms {
            hints: self
                .install
                .iter()
                .filter(|hint| brings(hint, &any_of))
                .collect(),
            any_of,
        };
        missing.into_iter().map(with_hints).collect()
    }

    /// The node through which the skill is usable; `None` if this machine meets its platform and
    /// programs, or no machine does.
    pub fn node<'a>(&self, host: &'a Host) -> Option<&'a RemoteHost> {
        let here = || self.programs_missing(|bin| is_program(host, bin)).is_none();
        if self.on_node.is_none() && self.fits(&host.platform) && here() {
            return None;
        }
        host.remotes.iter().find(|node| {
            let has = |bin: &String| node.bins.contains(bin);
            self.on_node.as_ref().is_none_or(|only| *only == node.name)
                && self.fits(&node.platform)
                && self.programs_missing(has).is_none()
        })
    }

    /// Whether it is for this platform.
    fn fits(&self, platform: &str) -> bool {
        self.os.is_empty() || self.os.iter().any(|os| os == platform)
    }

    /// What a machine with these programs lacks, as a clause.
    fn programs_missing(&self, has: impl Fn(&String) -> bool) -> Option<String> {
        if self.always {
            return None;
        }
        let bins = without(&self.bins, &has);
        if !bins.is_empty() {
            let bins = bins.join(", ");
            return Some(format!("no program {bins} on the PATH of runs"));
        }
        (!self.any_bins.is_empty() && !self.any_bins.iter().any(has)).then(|| {
            let bins = self.any_bins.join(", ");
            format!("none of the programs {bins} on the PATH of runs")
        })
    }

    /// Why the skill is not usable on `host`; `None` if it is. One machine, this one or a node, must
    /// have the platform and all programs.
    pub fn missing(&self, host: &Host) -> Option<String> {
        let through = self.node(host);
        if let (None, Some(node)) = (through, &self.on_node) {
            return Some(format!(
                "node {node}, which publishes it, is away or lacks what it requires"
            ));
        }
        if through.is_none() {
            let fits = |node: &RemoteHost| self.fits(&node.platform);
            if !self.fits(&host.platform) && !host.remotes.iter().any(fits) {
                return Some(format!("it is for {}", self.os.join(", ")));
            }
            let here = self.fits(&host.platform);
            let lacks = self.programs_missing(|bin| here && is_program(host, bin));
            if let Some(why) = lacks {
                return Some(why);
            }
        }
        if self.always {
            return None;
        }
        let env = self.env_missing(host);
        if !env.is_empty() {
            let env = env.join(", ");
            return Some(match through {
                None => format!("{env} is not set in the environment of runs"),
                Some(node) => format!(
                    "{env} is not passed on to node {}: give it by the agent, the request or \
                     skills.entries",
                    node.name
                ),
            });
        }
        let config = without(&self.config, |key| host.config.contains(key));
        match config.is_empty() {
            true => None,
            false => Some(format!("setting {} is not on", config.join(", "))),
        }
    }
}

impl SkillRequirements {
    /// The required variables that its programs would not have, here or on its node.
    fn env_missing(&self, host: &Host) -> Vec<&str> {
        let has = match self.node(host) {
            Some(_) => &host.given,
            None => &host.env,
        };
        without(&self.env, |name| has.contains(name))
    }

    /// The missing environment variables, if nothing else is missing; otherwise empty.
    pub fn lacks_env(&self, host: &Host) -> Vec<String> {
        let lacks = self.env_missing(host);
        if lacks.is_empty() || self.always {
            return Vec::new();
        }
        let mut with = host.clone();
        with.env.extend(self.env.iter().cloned());
        with.given.extend(self.env.iter().cloned());
        match self.missing(&with) {
            None => lacks.into_iter().map(str::to_owned).collect(),
            Some(_) => Vec::new(),
        }
    }
}

fn without(names: &[String], has: impl Fn(&String) -> bool) -> Vec<&str> {
    let missing = names.iter().filter(|name| !has(name));
    missing.map(String::as_str).collect()
}

fn is_program(host: &Host, name: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    // A name with a slash would not be searched for on the path.
    if name.is_empty() || name.contains('/') {
        return false;
    }
    let Some(path) = &host.path else {
        return false;
    };
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .any(|folder| {
            std::fs::metadata(Path::new(&folder).join(name))
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}
