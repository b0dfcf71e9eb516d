//! What a run has in its environment beside what every program gets: the layers, who wins, and
//! what nobody may set. Pure: the registry computes it once for each run, keeps it as rows, and
//! hands the same to everything that the run starts.
//!
//! The layers, each above the one before: the base ([`super::env`]), the agent's `env`, what the
//! settings say of the skills that the run has pinned, and what the request gives.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::fault::{Fault, Kind};
use super::secret::Given;
use super::steering::{is_of_a_tool, is_steering};

/// The most names that a request gives.
pub const MOST_NAMES: usize = 64;
/// The most bytes of a value.
pub const MOST_BYTES: usize = 32 * 1024;

/// Who has set a name, in the words of lists: `agent`, `request` or `skill:NAME`.
pub const REQUEST: &str = "request";
/// See [`REQUEST`].
pub const AGENT: &str = "agent";

/// A name of a run's environment, and who has set it. Its value is nowhere beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvName {
    /// The name.
    pub name: String,
    /// `agent`, `skill:NAME` or `request`.
    pub from: String,
}

/// What an agent says of its runs' environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfAgent {
    /// By name; nothing for one that only a request gives.
    pub env: BTreeMap<String, Option<Given>>,
    /// The names that it declares as secrets, whatever they look like.
    pub secret: BTreeSet<String>,
    /// It is a project's file: it adds names, and replaces none.
    pub of_project: bool,
}

/// What a skill that a run has pinned brings into its environment.
#[derive(Clone, Debug, PartialEq)]
pub struct OfSkill {
    /// Its name.
    pub name: String,
    /// Its source among those of skills: of two that set one name, the higher wins.
    pub rank: usize,
    /// It lies in the project or the workspace: it adds names, and replaces none.
    pub of_project: bool,
    /// The names that it says it needs, its key's among them.
    pub declared: Vec<String>,
    /// The name of its key (`primaryEnv`): a secret, whatever it looks like.
    pub key: Option<String>,
    /// What the settings give it.
    pub env: Vec<(String, Given)>,
}

/// A value of a run's environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Laid {
    /// Who has set it.
    pub from: String,
    /// It, or where it is.
    pub given: Given,
    /// It is taken out of whatever the run says.
    pub secret: bool,
}

/// The environment of a run above the base.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overlay {
    /// By name.
    pub values: BTreeMap<String, Laid>,
    /// Names that the agent or a skill has said it needs.
    declared: BTreeSet<String>,
    /// Names that this user's agent leaves to a request, whatever they are.
    opened: BTreeSet<String>,
    /// Names that the agent or a skill declares as secrets.
    secret: BTreeSet<String>,
    /// What was left aside.
    pub warnings: Vec<String>,
}

/// The layers of agent and skills, on a base that has these names.
pub fn lay(base: &BTreeSet<String>, agent: &OfAgent, skills: &[OfSkill]) -> Overlay {
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
            overlay.aside("the agent's project file", name, BLOCKED);
        } else if agent.of_project && base.contains(name) {
            overlay.aside("the agent's project file", name, ONLY_ADDS);
        } else {
            overlay.set(name, AGENT.to_owned(), given);
        }
    }
    let mut ordered: Vec<&OfSkill> = skills.iter().collect();
    // The higher source last; of one source the first by name.
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

const BLOCKED: &str = "it changes what programs load, start, trust or reach, or looks as if it did";
const ONLY_ADDS: &str = "it is set already, and a project only adds";

/// Who gives values with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// A caller that has shown the token and is no run's program: what it gives is declared by that.
    Operator,
    /// Any other.
    Other,
}

impl Overlay {
    /// With what the request gives on top; the refusal names the name.
    pub fn with_request(
        mut self,
        given: BTreeMap<String, Given>,
        giver: Giver,
    ) -> Result<Self, Fault> {
        if given.len() > MOST_NAMES {
            let message = format!("{} names; {MOST_NAMES} at most", given.len());
            return Err(Fault::params("env", message));
        }
        for (name, given) in given {
            check(&name, &given)?;
            if is_blocked(&name) && !self.opened.contains(&name) {
                return Err(forbidden(
                    &name,
                    &format!("{name} cannot be set by a request: {BLOCKED}"),
                    &format!(
                        "an agent's file in the configuration may set it, or leave it to \
                         requests: env: {{{name}: null}}"
                    ),
                ));
            }
            let is_declared = giver == Giver::Operator || self.declared.contains(&name);
            if looks_secret(&name) && !is_declared {
                return Err(forbidden(
                    &name,
                    &format!(
                        "{name} looks like a secret, and neither the agent nor a skill that it \
                         has says that it needs one of that name"
                    ),
                    &format!(
                        "say so in the agent's file: env: {{{name}: null}}; a caller that shows \
                         the token and is no run's program may give it all the same"
                    ),
                ));
            }
            self.set(&name, REQUEST.to_owned(), &given);
        }
        Ok(self)
    }

    /// The names, each with who has set it.
    pub fn names(&self) -> Vec<EnvName> {
        let values = self.values.iter();
        values
            .map(|(name, laid)| EnvName {
                name: name.clone(),
                from: laid.from.clone(),
            })
            .collect()
    }

    fn of_skill(&mut self, below: &BTreeSet<String>, skill: &OfSkill, name: &str, given: &Given) {
        let who = format!("skill {}", skill.name);
        let is_declared = skill.declared.iter().any(|known| known == name);
        let is_own = is_declared && !skill.of_project && !is_of_a_tool(name);
        if is_blocked(name) && !is_own {
            return self.aside(&who, name, BLOCKED);
        }
        if looks_secret(name) && !is_declared {
            let why = "it looks like a secret, and the skill does not say that it needs it";
            return self.aside(&who, name, why);
        }
        if skill.of_project && below.contains(name) {
            return self.aside(&who, name, ONLY_ADDS);
        }
        if let Some(known) = self.values.get(name)
            && let Some(other) = known.from.strip_prefix("skill:")
            && known.given != *given
        {
            self.warnings.push(format!(
                "environment: skills {other} and {} have different values for {name}; that of {} \
                 counts",
                skill.name, skill.name
            ));
        }
        self.set(name, format!("skill:{}", skill.name), given);
    }

    fn set(&mut self, name: &str, from: String, given: &Given) {
        let laid = Laid {
            secret: self.secret.contains(name) || is_secret(name, &from, given),
            from,
            given: given.clone(),
        };
        self.values.insert(name.to_owned(), laid);
    }

    fn aside(&mut self, who: &str, name: &str, why: &str) {
        let told = format!("environment: {name} of {who} is left aside: {why}");
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

/// Refuses what no environment can hold; the refusal has the name and never the value.
pub fn check(name: &str, given: &Given) -> Result<(), Fault> {
    let refused = |message: &str| Err(Fault::params("env", message).with("name", name));
    if !is_name(name) {
        return refused(
            "a name begins with a letter or _ and has letters, digits and _, 128 of them at most",
        );
    }
    match given {
        Given::Text(text) if text.expose().contains('\0') => {
            refused(&format!("the value of {name} holds U+0000"))
        }
        Given::Text(text) if text.expose().len() > MOST_BYTES => {
            let bytes = text.expose().len();
            refused(&format!(
                "the value of {name} has {bytes} bytes; {MOST_BYTES} at most"
            ))
        }
        _ => Ok(()),
    }
}

/// Can it be the name of a variable?
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.len() <= 128 && name.chars().all(fits)
}

/// May neither a skill nor a project nor a request set it?
pub fn is_blocked(name: &str) -> bool {
    is_steering(name)
}

/// Is a value of this name a secret without being declared as one? It is by its name, by the name
/// of the place that it is read from, or as a text that a request gives, which is kept sealed.
pub fn is_secret(name: &str, from: &str, given: &Given) -> bool {
    looks_secret(name)
        || match given {
            Given::Text(_) => from == REQUEST,
            Given::From(place) => place.names_secret(),
        }
}

/// Does it look like the name of a secret?
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
