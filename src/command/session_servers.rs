//! The MCP servers of sessions: set by a client, and the tools that they list.

use super::context::Context;
use crate::contract::servers::{NewServer, StoredServer};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{SessionId, SessionKey};
use crate::store::tables::{session_servers, sessions};
use crate::store::write::Reply;

impl Reply for Vec<StoredServer> {}

/// Once this returns, the session has exactly these servers. One that is started or reached as before
/// keeps its tools. Returns their rows.
pub fn set(
    context: &mut Context<'_>,
    org: &str,
    (session, key): (SessionId, &SessionKey),
    servers: Vec<NewServer>,
) -> Result<Vec<StoredServer>, Fault> {
    // They are encrypted for this session, not for a later one with its key.
    sessions::by_id(context.tx, session)?
        .filter(|found| found.org == org)
        .ok_or_else(|| Fault::not_found("session", key))?;
    let before = session_servers::of(context.tx, session)?;
    session_servers::remove(context.tx, session)?;
    for server in servers {
        let known = before
            .iter()
            .find(|known| known.name == server.name && known.digest == server.digest);
        let row = StoredServer {
            session,
            name: server.name,
            given: server.given,
            transport: server.transport,
            digest: server.digest,
            sealed: server.sealed,
            tools: known.and_then(|known| known.tools.clone()),
            problem: None,
            set_at: context.now.wall,
        };
        session_servers::put(context.tx, &row)?;
    }
    Ok(session_servers::of(context.tx, session)?)
}

/// Once this returns, the row of the server has what it listed, unless another one has its name
/// meanwhile. A failure leaves the tools that are known.
pub fn keep_tools(
    context: &mut Context<'_>,
    session: SessionId,
    name: &str,
    digest: &str,
    listed: Result<String, String>,
) -> Result<(), Fault> {
    let Some(mut server) = session_servers::get(context.tx, session, name)? else {
        return Ok(());
    };
    if server.digest != digest {
        return Ok(());
    }
    match listed {
        Ok(tools) => {
            server.tools = Some(tools);
            server.problem = None;
        }
        Err(why) => server.problem = Some(why),
    }
    session_servers::put(context.tx, &server)?;
    Ok(())
}
