//! Handlers of `gateway.backup` and `gateway.doctor`.

use std::path::PathBuf;
use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::wire::maintenance as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(backup);
    table.method(doctor);
}

async fn backup(
    context: Arc<CallContext>,
    params: wire::Backup,
) -> Result<wire::BackupMade, Fault> {
    let path = params.path.map(PathBuf::from);
    if path.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(Fault::params(
            "path",
            "an absolute path is expected: the daemon does not know the caller's working directory",
        ));
    }
    let made = context.registry.backup(path).await?;
    Ok(wire::BackupMade {
        path: made.path.to_string_lossy().into_owned(),
        bytes: made.bytes,
        store_id: made.store_id,
        schema: made.schema,
        rows: made.rows,
        took_ms: made.took_ms,
    })
}

async fn doctor(context: Arc<CallContext>, _: wire::Examine) -> Result<wire::Examined, Fault> {
    let mut findings = context.control.surroundings();
    findings.extend(context.registry.examine().await?);
    Ok(wire::Examined::of(findings))
}
