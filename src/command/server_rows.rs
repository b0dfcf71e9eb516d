//! The stored tools of MCP servers, for the tool module.

use super::KeepServer;
use crate::contract::BoxFuture;
use crate::contract::servers::{KnownServer, ServerRows};
use crate::kernel::fault::Fault;
use crate::store::Store;
use crate::store::tables::servers;

impl ServerRows for Store {
    fn known_servers(&self) -> Result<Vec<KnownServer>, Fault> {
        self.read_now(servers::every)
    }

    fn keep_server(&self, known: KnownServer) -> BoxFuture<'static, Result<(), Fault>> {
        let store = self.clone();
        Box::pin(async move { store.submit_waiting(KeepServer { known }).await })
    }
}
