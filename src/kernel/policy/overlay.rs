//! The environment of a run on top of what every program gets: the layers, their precedence, and
//! the names that cannot be set. Pure: the registry computes it once per run, stores it as rows,
//! and passes the same to everything that the run starts.
//!
//! The layers in ascending precedence: the base ([`super::env`]), the agent's `env`, the settings
//! of the skills that the run has pinned, and the values of the request.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::steering::{is_of_a_tool, is_steering};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::secret::GivenValue;

/// Maximum number of names in a request.
pub const MOST_NAMES: usize = 64;
/// Maximum bytes of a value.
pub const MOST_BYTES: usize = 32 * 1024;

/// The source of values from a request. A source is written as `agent`, `request` or `skill:NAME`.
pub const REQUEST: &str = "request";
/// The source of values from the agent's definition; see [`REQUEST`].
pub const AGENT: &str = "agent";

/// A name in a run's environment with its source; the value is never included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvName {
    /// Name of the variable.
    pub name: String,
    /// The source: `agent`, `skill:NAME` or `request`.
    pub from: String,
}

/// The environment part of an agent's definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentEnv {
    /// Values by name; `None` for a name that only a request provides.
    pub env: BTreeMap<String, Option<GivenValue>>,
    /// Names that it declares as secrets, whatever they look like.
    pub secret: BTreeSet<String>,
    /// It is a project's file: it may add names, but not replace existing ones.
    pub of_project: bool,
}

/// The environment part of a skill that a run has pinned.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillEnv {
    /// Name of the skill.
    pub name: String,
    /// Rank of its source; if two skills set one name, the higher rank wins.
    pub rank: usize,
    /// It is in the project or workspace: it may add names, but not replace existing ones.
    pub of_project: bool,
    /// Names that it declares it needs, including its key.
    pub declared: Vec<String>,
    /// The name of its key (`primaryEnv`), which is a secret, whatever it looks like.
    pub key: Option<String>,
    /// The values that the settings give it.
    pub env: Vec<(String, GivenValue)>,
}

/// A value in a run's environment.
#[derive(Clone, Debug, PartialEq)]
pub struct LayeredValue {
    /// Its source: `agent`, `skill:NAME` or `request`.
    pub from: String,
    /// The value, or a reference to it.
    pub given: GivenValue,
    /// It is redacted from all output of the run.
    pub secret: bool,
}

/// The environment of a run on top of the base.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay {
    /// The values, by name.
    pub values: BTreeMap<String, LayeredValue>,
    /// Names that the agent or a skill declares it needs.
    declared: BTreeSet<String>,
    /// Names that an agent outside a project leaves to requests, even if they are blocked.
    opened: BTreeSet<String>,
    /// Names that the agent or a skill declares as secrets.
    secret: BTreeSet<String>,
    /// Values that were ignored, and conflicts between skills.
    pub warnings: Vec<String>,
}

/// The layers of the agent and the skills, on top of the names in `base`.
pub fn build_overlay(base: &BTreeSet<String>, agent: &AgentEnv, skills: &[SkillEnv]) -> Overlay {
    let mut overlay = Overlay::default();
    overlay.declared.extend(agent.env.keys().cloned());
    overlay.secret.extend(agent.secret.iter().cloned());
    let keys = skills.iter().filter_map(|skill| skill.key.clone());
    overlay.secret.extend(keys);
    for (name, given) in &agent.env {
        let Some(given) = given else {
            if !agent.of_project {
                overlay.opened.insert(name.clone());
            }
            continue;
        };
        if agent.of_project && is_blocked(name) {
            overlay.ignore("the agent's project file", name, BLOCKED);
        } else if agent.of_project && base.contains(name) {
            overlay.ignore("the agent's project file", name, ONLY_ADDS);
        } else {
            overlay.set(name, AGENT.to_owned(), given);
        }
    }
    let mut ordered: Vec<&SkillEnv> = skills.iter().collect();
    // The higher rank last; within one rank the skill that is first by name comes last and wins.
    ordered.sort_by(|a, b| (a.rank, &b.name).cmp(&(b.rank, &a.name)));
    let below: BTreeSet<String> = base.iter().chain(overlay.values.keys()).cloned().collect();
    for skill in ordered {
        overlay.declared.extend(skill.declared.iter().cloned());
        for (name, given) in &skill.env {
            overlay.of_skill(&below, skill, name, given);
        }
    }
    overlay
}

const BLOCKED: &str = "it can control what programs load, start, trust or connect to";
const ONLY_ADDS: &str = "it is already set, and a project may only add names";

/// The caller that provides values in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// A caller that authenticated with the token and is not a run's program; its values count as
    /// declared.
    Operator,
    /// Any other caller.
    Other,
}

impl Overlay {
    /// The same with the values of a request on top; a refusal names the variable.
    pub fn with_request(
        mut self,
        given: BTreeMap<String, GivenValue>,
        giver: Giver,
    ) -> Result<Self, Fault> {
        if given.len() > MOST_NAMES {
            let message = format!("{} names given; the maximum is {MOST_NAMES}", given.len());
            return Err(Fault::params("env", message));
        }
        for (name, given) in given {
            check(&name, &given)?;
            if is_blocked(&name) && !self.opened.contains(&name) {
                return Err(forbidden(
                    &name,
                    &format!("{name} cannot be set by a request: {BLOCKED}"),
                    &format!(
                        "set it in an agent file in the configuration, or let \
                         requests set it: env: {{{name}: null}}"
                    ),
                ));
            }
            let is_declared = giver == Giver::Operator || self.declared.contains(&name);
            if looks_secret(&name) && !is_declared {
                return Err(forbidden(
                    &name,
                    &format!(
                        "{name} looks like a secret, and neither the agent nor one of its skills \
                         declares that name"
                    ),
                    &format!(
                        "declare it in the agent's file: env: {{{name}: null}}; a caller with \
                         the token that is not a run's program may set it without a declaration"
                    ),
                ));
            }
            self.set(&name, REQUEST.to_owned(), &given);
        }
        Ok(self)
    }

    /// All names, each with its source.
    pub fn names(&self) -> Vec<EnvName> {
        let values = self.values.iter();
        values
            .map(|(name, laid)| EnvName {
                name: name.clone(),
                from: laid.from.clone(),
            })
            .collect()
    }

    fn of_skill(
        &mut self,
        below: &BTreeSet<String>,
        skill: &SkillEnv,
        name: &str,
        given: &GivenValue,
    ) {
        let who = format!("skill {}", skill.name);
        let is_declared = skill.declared.iter().any(|known| known == name);
        let is_own = is_declared && !skill.of_project && !is_of_a_tool(name);
        if is_blocked(name) && !is_own {
            return self.ignore(&who, name, BLOCKED);
        }
        if looks_secret(name) && !is_declared {
            let why = "it looks like a secret, and the skill does not declare it";
            return self.ignore(&who, name, why);
        }
        if skill.of_project && below.contains(name) {
            return self.ignore(&who, name, ONLY_ADDS);
        }
        if let Some(known) = self.values.get(name)
            && let Some(other) = known.from.strip_prefix("skill:")
            && known.given != *given
        {
            self.warnings.push(format!(
                "environment: skills {other} and {} have different values for {name}; that of {} \
                 is used",
                skill.name, skill.name
            ));
        }
        self.set(name, format!("skill:{}", skill.name), given);
    }

    fn set(&mut self, name: &str, from: String, given: &GivenValue) {
        let laid = LayeredValue {
            secret: self.secret.contains(name) || is_secret(name, &from, given),
            from,
            given: given.clone(),
        };
        self.values.insert(name.to_owned(), laid);
    }

    fn ignore(&mut self, who: &str, name: &str, why: &str) {
        let told = format!("environment: {name} of {who} is ignored: {why}");
        self.warnings.push(told);
    }
}

fn forbidden(name: &str, message: &str, hint: &str) -> Fault {
    Fault::new(
        Kind::Forbidden,
        format!("env: {message}. Nothing was created"),
    )
    .hint(hint)
    .with("path", "env")
    .with("name", name)
}

/// Refuses names and values that no environment can hold; the refusal has the name, never the
/// value.
pub fn check(name: &str, given: &GivenValue) -> Result<(), Fault> {
    let refused = |message: &str| Err(Fault::params("env", message).with("name", name));
    if !is_name(name) {
        return refused(
            "a name starts with a letter or _ and has at most 128 letters, digits and _",
        );
    }
    match given {
        GivenValue::Text(text) if text.expose().contains('\0') => {
            refused(&format!("the value of {name} contains U+0000"))
        }
        GivenValue::Text(text) if text.expose().len() > MOST_BYTES => {
            let bytes = text.expose().len();
            refused(&format!(
                "the value of {name} has {bytes} bytes; the maximum is {MOST_BYTES}"
            ))
        }
        _ => Ok(()),
    }
}

/// True if it can be the name of an environment variable.
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.len() <= 128 && name.chars().all(fits)
}

/// True if neither a skill, a project nor a request may set it by default.
pub fn is_blocked(name: &str) -> bool {
    is_steering(name)
}

/// True if a value is a secret even without a declaration: by its name, by the name of the place
/// that it is read from, or because a request gives it as text, which is stored encrypted.
pub fn is_secret(name: &str, from: &str, given: &GivenValue) -> bool {
    looks_secret(name)
        || match given {
            GivenValue::Text(_) => from == REQUEST,
            GivenValue::From(place) => place.names_secret(),
        }
}

/// True if the name looks like that of a secret.
pub fn looks_secret(name: &str) -> bool {
    const ENDS: &[&str] = &[
        "TOKEN",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "KEY",
        "CREDENTIAL",
        "CREDENTIALS",
    ];
    let name = name.to_ascii_uppercase();
    let last = name.rsplit('_').next().unwrap_or(&name);
    ENDS.contains(&last) || name.ends_with("APIKEY") || name.starts_with("AWS_SECRET_")
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
