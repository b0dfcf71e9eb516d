//! Stored agents, the recorded set of all agents, trust in projects, and versions of skill sets.

use std::collections::BTreeMap;

use super::context::Context;
use crate::contract::commit::CommitEffect;
use crate::contract::rows::{StoredAgent, TrustedProject};
use crate::contract::skills::SkillPin;
use crate::kernel::event::{AgentsChanged, SkillsChanged};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::run::PinnedSkills;
use crate::store::tables::agents::Noted;
use crate::store::tables::skills::SkillsNoted;
use crate::store::tables::{agents, blobs, skills, trust};

/// Maximum number of stored agents per tenant.
pub const MAX_AGENTS: i64 = 500;
/// Maximum number of trusted projects per tenant.
pub const MAX_TRUSTED: i64 = 1000;

/// An agent definition to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutAgent {
    /// The tenant.
    pub org: String,
    /// The agent's name.
    pub name: String,
    /// The format of the definition text.
    pub format: String,
    /// The definition, already validated.
    pub text: String,
    /// True to create the agent, which must not exist; false to update it, which must exist.
    pub new: bool,
    /// Expected revision; a different one is a `conflict`.
    pub if_revision: Option<i64>,
}

/// Once this returns, the stored agent has this definition; an equal definition is no change.
pub fn put_agent(context: &mut Context<'_>, new: PutAgent) -> Result<i64, Fault> {
    let found = agents::get(context.tx, &new.org, &new.name)?;
    if let Some(found) = &found
        && found.text == new.text
        && found.format == new.format
    {
        return Ok(found.revision);
    }
    let revision = match (&found, new.new) {
        (Some(found), true) => return Err(name_taken(found)),
        (None, false) => return Err(no_such_agent(&new.name)),
        (Some(found), false) => {
            check_revision(found, new.if_revision)?;
            found.revision + 1
        }
        (None, true) => {
            let count = agents::count(context.tx, &new.org)?;
            if count >= MAX_AGENTS {
                return Err(
                    limit_reached("stored_agents", MAX_AGENTS, "agents created over RPC")
                        .hint("delete one that is no longer needed (agents.delete)"),
                );
            }
            1
        }
    };
    let agent = StoredAgent {
        org: new.org,
        name: new.name,
        format: new.format,
        text: new.text,
        revision,
        created_at: found.map_or(context.now.wall, |found| found.created_at),
    };
    agents::put(context.tx, &agent, context.now.wall)?;
    context.effect(CommitEffect::AgentsChanged);
    Ok(revision)
}

/// Once this returns, the stored agent is deleted; the reply says whether this command did it.
pub fn delete_agent(
    context: &mut Context<'_>,
    org: &str,
    name: &str,
    if_revision: Option<i64>,
) -> Result<bool, Fault> {
    let Some(found) = agents::get(context.tx, org, name)? else {
        return Ok(false);
    };
    check_revision(&found, if_revision)?;
    agents::delete(context.tx, org, name)?;
    context.effect(CommitEffect::AgentsChanged);
    Ok(true)
}

/// Once this returns, the event log has every change up to these agents. `built_in` is the base if
/// no set was recorded before.
pub fn note_agents(
    context: &mut Context<'_>,
    org: &str,
    now: BTreeMap<String, String>,
    built_in: BTreeMap<String, String>,
    reason: &str,
) -> Result<(), Fault> {
    let before = agents::noted(context.tx, org)?;
    let before = before.unwrap_or(Noted {
        agents: built_in,
        version: 0,
    });
    if before.agents == now {
        return Ok(());
    }
    let added = now.keys().filter(|name| !before.agents.contains_key(*name));
    let removed = before.agents.keys().filter(|name| !now.contains_key(*name));
    let changed = now.iter().filter(|(name, hash)| {
        before
            .agents
            .get(*name)
            .is_some_and(|before| before != *hash)
    });
    let version = before.version + 1;
    context.emit_org(
        org,
        AgentsChanged {
            version,
            reason: reason.to_owned().into(),
            added: added.cloned().collect(),
            changed: changed.map(|(name, _)| name.clone()).collect(),
            removed: removed.cloned().collect(),
        },
    );
    let noted = Noted {
        agents: now,
        version,
    };
    agents::note(context.tx, org, &noted, context.now.wall)?;
    Ok(())
}

/// Once this returns, the project is trusted with the content of this hash.
pub fn trust_project(
    context: &mut Context<'_>,
    org: String,
    user: String,
    folder: String,
    hash: String,
) -> Result<TrustedProject, Fault> {
    let known = trust::get(context.tx, &org, &folder)?;
    if let Some(known) = &known
        && known.hash == hash
    {
        return Ok(known.clone());
    }
    let count = trust::count(context.tx, &org)?;
    if known.is_none() && count >= MAX_TRUSTED {
        return Err(
            limit_reached("trusted_projects", MAX_TRUSTED, "projects that are trusted")
                .hint("revoke one that is no longer needed (trust.revoke)"),
        );
    }
    let project = TrustedProject {
        org,
        folder,
        hash,
        user,
        at: context.now.wall,
    };
    trust::put(context.tx, &project)?;
    context.effect(CommitEffect::AgentsChanged);
    Ok(project)
}

/// Once this returns, the project is not trusted; the reply says whether it was.
pub fn revoke_trust(context: &mut Context<'_>, org: &str, folder: &str) -> Result<bool, Fault> {
    let known = trust::get(context.tx, org, folder)?;
    if known.is_some() {
        trust::delete(context.tx, org, folder)?;
        context.effect(CommitEffect::AgentsChanged);
    }
    Ok(known.is_some())
}

fn check_revision(found: &StoredAgent, expected: Option<i64>) -> Result<(), Fault> {
    match expected {
        Some(expected) if expected != found.revision => Err(Fault::new(
            Kind::Conflict,
            format!(
                "agent {} has revision {}, not {expected}: it was changed meanwhile. Nothing was \
                 changed",
                found.name, found.revision
            ),
        )
        .hint("read it again (agents.get) and repeat the change")
        .with("revision", found.revision)),
        _ => Ok(()),
    }
}

fn name_taken(found: &StoredAgent) -> Fault {
    Fault::new(
        Kind::Conflict,
        format!(
            "agent {} already exists at revision {}. Nothing was changed",
            found.name, found.revision
        ),
    )
    .hint("change it with agents.update")
    .with("revision", found.revision)
}

fn no_such_agent(name: &str) -> Fault {
    Fault::not_found("stored agent", name).hint("create it with agents.create")
}

fn limit_reached(limit: &str, value: i64, counts: &str) -> Fault {
    Fault::new(
        Kind::Limit,
        format!("limit {limit} = {value} reached; it counts {counts}. Nothing was stored"),
    )
    .with("limit", limit)
    .with("value", value)
    .with("counts", counts)
}

/// The usable skills of a folder, as found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSkills {
    /// The tenant.
    pub org: String,
    /// The folder.
    pub workspace: String,
    /// Hash of the usable skills.
    pub hash: String,
    /// Number of usable skills.
    pub count: usize,
    /// What triggered the check.
    pub reason: &'static str,
}

/// Once this returns, the folder's skills are recorded with this hash; the reply has their version.
pub fn note_skills(context: &mut Context<'_>, found: &NoteSkills) -> Result<i64, Fault> {
    skills_version(context, found)
}

fn skills_version(context: &mut Context<'_>, found: &NoteSkills) -> Result<i64, Fault> {
    let before = skills::get(context.tx, &found.org, &found.workspace)?;
    if let Some(before) = &before
        && before.hash == found.hash
    {
        return Ok(before.version);
    }
    let noted = SkillsNoted {
        org: found.org.clone(),
        workspace: found.workspace.clone(),
        hash: found.hash.clone(),
        version: before.as_ref().map_or(0, |before| before.version) + 1,
    };
    skills::put(context.tx, &noted, context.now.wall)?;
    // The first check of a folder is not a change.
    if before.is_some() {
        context.emit_org(
            &found.org,
            SkillsChanged {
                workspace: found.workspace.clone(),
                version: noted.version,
                reason: found.reason.into(),
                skills: found.count,
            },
        );
    }
    Ok(noted.version)
}

/// Once this returns, the pinned skills are readable for as long as the run exists.
pub fn pin_skills(
    context: &mut Context<'_>,
    org: &str,
    pin: &SkillPin,
) -> Result<PinnedSkills, Fault> {
    let now = match pin {
        SkillPin::Now(now) => now,
        SkillPin::Reused(pinned, body) => {
            // Renews the last-use time of the body, and of the bodies that it names.
            blobs::insert(context.tx, body, context.now.wall)?;
            return Ok(pinned.clone());
        }
    };
    let found = NoteSkills {
        org: org.to_owned(),
        workspace: now.workspace.clone(),
        hash: now.hash.clone(),
        count: now.count,
        reason: "watch",
    };
    let version = skills_version(context, &found)?;
    skills::keep(context.tx, &now.picked, context.now.wall)?;
    Ok(PinnedSkills {
        version,
        hash: now.picked.pinned.hash.clone(),
    })
}
