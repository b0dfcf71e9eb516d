//! Handlers of `skills.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::contract::skills::{InstallHint, ListedSkill, PinnedSkill};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::SkillsReason;
use crate::wire::input::PAGE_LIMIT;
use crate::wire::skills as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(snapshot);
    table.method(refresh);
}

async fn list(context: Arc<CallContext>, params: wire::ListSkills) -> Result<wire::Skills, Fault> {
    let registry = &context.registry;
    let view = registry
        .skills(&context.principal, params.workspace)
        .await?;
    let here = &view.here;
    let mut found: Vec<&ListedSkill> = here.skills.iter().collect();
    if let Some(name) = &params.name {
        found.retain(|skill| skill.name == *name);
        if found.is_empty() {
            return Err(Fault::not_found("skill", name)
                .hint("skills.list without name returns all skills and the rejected files"));
        }
    }
    // The list is sorted by name, so the last name serves as the cursor.
    if let Some(last) = &params.cursor {
        found.retain(|skill| skill.name > *last);
    }
    let limit = params.limit.0 as usize;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| more);
    let whole = params.name.is_some();
    let rejected = here.rejected.iter().take(PAGE_LIMIT as usize).cloned();
    Ok(wire::Skills {
        workspace: here.workspace.clone(),
        version: view.version,
        next_cursor: last.map(|skill| skill.name.clone()),
        rejected: rejected.collect(),
        skills: found.into_iter().map(|skill| shown(skill, whole)).collect(),
    })
}

fn shown(skill: &ListedSkill, whole: bool) -> wire::Skill {
    let skill = skill.clone();
    wire::Skill {
        name: skill.name,
        description: skill.description,
        source: skill.source,
        path: skill.path,
        eligible: skill.unusable_reason.is_none(),
        reason: skill.unusable_reason,
        license: skill.license,
        compatibility: skill.compatibility,
        allowed_tools: skill.allowed_tools,
        user_invocable: skill.user_invocable,
        primary_env: skill.primary_env,
        required_env: skill.required_env,
        install: skill.install.into_iter().map(install).collect(),
        node: skill.node,
        body: whole.then(|| skill.body.body.as_ref().to_owned()),
        hash: skill.body.hash,
        warnings: skill.warnings,
        shadowed: skill.shadowed,
    }
}

fn install(hint: InstallHint) -> wire::Install {
    wire::Install {
        hint: hint.words(),
        kind: hint.kind.as_str().to_owned(),
        what: hint.what,
        label: hint.label,
        bins: hint.bins,
        os: hint.os,
    }
}

async fn snapshot(
    context: Arc<CallContext>,
    params: wire::TakeSnapshot,
) -> Result<wire::Snapshot, Fault> {
    let registry = &context.registry;
    let (view, picked) = registry
        .skills_of(&context.principal, params.workspace, params.agent)
        .await?;
    let here = &view.here;
    let shadowed = here
        .skills
        .iter()
        .flat_map(|skill| &skill.shadowed)
        .cloned();
    Ok(wire::Snapshot {
        workspace: here.workspace.clone(),
        version: view.version,
        hash: picked.pinned.hash.clone(),
        prompt: picked.set.prompt.clone(),
        skills: picked.set.skills.iter().cloned().map(pinned).collect(),
        omitted: picked.set.omitted.clone(),
        shadowed: shadowed.collect(),
        rejected: here.rejected.clone(),
    })
}

fn pinned(skill: PinnedSkill) -> wire::SnapshotSkill {
    wire::SnapshotSkill {
        name: skill.name,
        description: skill.description,
        source: skill.source,
        path: skill.path,
        primary_env: skill.primary_env,
        required_env: skill.required_env,
        node: skill.node,
        hash: skill.hash,
    }
}

async fn refresh(
    context: Arc<CallContext>,
    params: wire::RefreshSkills,
) -> Result<wire::Refreshed, Fault> {
    if params.session_key.is_some() && params.workspace.is_some() {
        let message = "give either sessionKey or workspace";
        return Err(Fault::params("workspace", message));
    }
    let folders = context
        .registry
        .refresh_skills(&context.principal, params.session_key, params.workspace)
        .await?;
    let first = folders
        .first()
        .ok_or_else(|| Fault::internal("no workspace was refreshed"))?;
    Ok(wire::Refreshed {
        before: first.before,
        after: first.after,
        reason: SkillsReason::Manual.as_str().to_owned(),
        folders,
    })
}
