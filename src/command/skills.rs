//! Versions of skill sets, and the skills that a new run pins.

use serde_json::json;

use super::context::Context;
use crate::contract::skills::SkillPin;
use crate::kernel::fault::Fault;
use crate::kernel::run::PinnedSkills;
use crate::kernel::run::action::EventKind;
use crate::store::tables::skills::SkillsNoted;
use crate::store::tables::{blobs, skills};

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
pub fn note(context: &mut Context<'_>, found: &NoteSkills) -> Result<i64, Fault> {
    version(context, found)
}

fn version(context: &mut Context<'_>, found: &NoteSkills) -> Result<i64, Fault> {
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
            EventKind::SkillsChanged,
            &found.org,
            json!({
                "workspace": found.workspace,
                "version": noted.version,
                "reason": found.reason,
                "skills": found.count,
            }),
        );
    }
    Ok(noted.version)
}

/// Once this returns, the pinned skills are readable for as long as the run exists.
pub fn pin(context: &mut Context<'_>, org: &str, pin: &SkillPin) -> Result<PinnedSkills, Fault> {
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
    let version = version(context, &found)?;
    skills::keep(context.tx, &now.picked, context.now.wall)?;
    Ok(PinnedSkills {
        version,
        hash: now.picked.pinned.hash.clone(),
    })
}
