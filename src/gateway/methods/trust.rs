//! Handlers of `trust.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::contract::catalog::Covers;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::TrustView;
use crate::wire::trust as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(add);
    table.method(list);
    table.method(revoke);
}

async fn add(
    context: Arc<CallContext>,
    params: wire::TrustProject,
) -> Result<wire::Project, Fault> {
    let registry = &context.registry;
    let (project, now) = registry.trust(&context.principal, params.folder).await?;
    Ok(shown(TrustView {
        project,
        now: Ok(now),
    }))
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListProjects,
) -> Result<wire::Projects, Fault> {
    let mut views = context.registry.trusted(&context.principal).await?;
    // The list is sorted by folder, so the last folder serves as the cursor.
    views.sort_by(|a, b| a.project.folder.cmp(&b.project.folder));
    if let Some(last) = &params.cursor {
        views.retain(|view| view.project.folder > *last);
    }
    let limit = params.limit.0 as usize;
    let more = views.len() > limit;
    views.truncate(limit);
    let last = views.last().filter(|_| more);
    Ok(wire::Projects {
        next_cursor: last.map(|view| view.project.folder.clone()),
        projects: views.into_iter().map(shown).collect(),
    })
}

async fn revoke(
    context: Arc<CallContext>,
    params: wire::RevokeTrust,
) -> Result<wire::Revoked, Fault> {
    let registry = &context.registry;
    let revoked = registry
        .revoke_trust(&context.principal, params.folder)
        .await?;
    Ok(wire::Revoked { revoked })
}

fn shown(view: TrustView) -> wire::Project {
    let TrustView { project, now } = view;
    let state = match &now {
        Ok(now) if now.hash == project.hash => "trusted",
        Ok(_) => "changed",
        Err(_) => "unreadable",
    };
    let covers = now.as_ref().map(covered).unwrap_or_default();
    wire::Project {
        folder: project.folder,
        state: state.to_owned(),
        hash: project.hash,
        user: project.user,
        trusted_at: project.at,
        covers,
        reason: now.err(),
    }
}

fn covered(covers: &Covers) -> Vec<wire::CoveredFile> {
    let files = covers.files.iter();
    files
        .map(|(file, needs)| wire::CoveredFile {
            file: file.clone(),
            needs: needs.clone(),
        })
        .collect()
}
