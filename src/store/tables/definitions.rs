//! What is known of definitions outside the store: agents that clients have stored, the agent sets
//! that the event log last recorded, projects whose definitions are trusted, tools of MCP servers.

/// Stored agents, and the agent sets that the event log last recorded.
pub mod agents {
    use std::collections::BTreeMap;

    use super::trust;
    use crate::contract::rows::{AgentRows, StoredAgent, TrustedProject};
    use crate::kernel::fault::Fault;
    use crate::kernel::time::Timestamp;
    use crate::store::Store;
    use crate::store::tables::table::{self, read, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

    table! {
        agents: StoredAgent;
        key { org, name }
        insert { created_at }
        update { format, text(body), revision }
        beside { updated_at: Timestamp }
        undecodable Moved { "revision" => "revision = 1", "created_at" => "created_at = 0" }
    }

    /// The table of agent sets.
    pub(crate) mod sets {
        use super::Noted;
        use crate::kernel::time::Timestamp;
        use crate::store::tables::table::{self, table};

        table! {
            agent_sets: Noted;
            key {} of { org: String }
            update { agents, version }
            beside { updated_at: Timestamp }
            // The current set is announced again.
            undecodable Moved { "agents" => "agents = '{}'" }
        }
    }

    /// All stored agents, ordered by tenant and name.
    pub fn every(tx: &mut dyn Tx) -> Result<Vec<StoredAgent>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM agents ORDER BY org, name");
        all(tx, sql, &[], read)
    }

    /// The stored agent with that name.
    pub fn get(tx: &mut dyn Tx, org: &str, name: &str) -> Result<Option<StoredAgent>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM agents WHERE org = ?1 AND name = ?2");
        first(tx, sql, &[org.into(), name.into()], read)
    }

    /// The number of agents that a tenant has stored.
    pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
        let sql = "SELECT count(*) FROM agents WHERE org = ?1";
        number(tx, sql, &[org.into()])
    }

    /// The row has `agent`; an earlier one of that name is replaced.
    pub fn put(tx: &mut dyn Tx, agent: &StoredAgent, now: Timestamp) -> Result<(), DbError> {
        table::put(tx, agent, [now.0.into()])
    }

    /// The row is deleted.
    pub fn delete(tx: &mut dyn Tx, org: &str, name: &str) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM agents WHERE org = ?1 AND name = ?2",
            &[org.into(), name.into()],
        )
    }

    /// A tenant's set of agents as the event log last recorded it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Noted {
        /// Definition hash by agent name.
        pub agents: BTreeMap<String, String>,
        /// The number of recorded changes.
        pub version: i64,
    }

    /// The set of agents that the event log last recorded; `None` if there is none yet.
    pub fn noted(tx: &mut dyn Tx, org: &str) -> Result<Option<Noted>, DbError> {
        let sql = sql!("SELECT {} FROM agent_sets WHERE org = ?1", sets::COLUMNS);
        first(tx, sql, &[org.into()], read)
    }

    /// The row has `noted`.
    pub fn note(tx: &mut dyn Tx, org: &str, noted: &Noted, now: Timestamp) -> Result<(), DbError> {
        table::put(tx, noted, [org.into(), now.0.into()])
    }

    impl AgentRows for Store {
        fn stored_agents(&self) -> Result<Vec<StoredAgent>, Fault> {
            self.read_now(|tx| every(tx))
        }

        fn trusted_projects(&self) -> Result<Vec<TrustedProject>, Fault> {
            self.read_now(|tx| trust::every(tx))
        }
    }
}

/// Trusted projects.
pub mod trust {
    use crate::contract::rows::TrustedProject;
    use crate::store::tables::table::{self, read, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

    table! {
        trusted_projects: TrustedProject;
        key { org, folder }
        update { hash, user, at(trusted_at) }
        // A trust with an invented folder or hash is none.
        undecodable Moved { "user" => "user = ''", "trusted_at" => "trusted_at = 0" }
    }

    /// All trusted projects, ordered by tenant and folder.
    pub fn every(tx: &mut dyn Tx) -> Result<Vec<TrustedProject>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM trusted_projects ORDER BY org, folder");
        all(tx, sql, &[], read)
    }

    /// The tenant's trust in that folder, if there is one.
    pub fn get(
        tx: &mut dyn Tx,
        org: &str,
        folder: &str,
    ) -> Result<Option<TrustedProject>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM trusted_projects WHERE org = ?1 AND folder = ?2");
        first(tx, sql, &[org.into(), folder.into()], read)
    }

    /// The number of projects that a tenant trusts.
    pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
        let sql = "SELECT count(*) FROM trusted_projects WHERE org = ?1";
        number(tx, sql, &[org.into()])
    }

    /// The row has `project`; an earlier one of that folder is replaced.
    pub fn put(tx: &mut dyn Tx, project: &TrustedProject) -> Result<(), DbError> {
        table::put(tx, project, [])
    }

    /// The row is deleted.
    pub fn delete(tx: &mut dyn Tx, org: &str, folder: &str) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM trusted_projects WHERE org = ?1 AND folder = ?2",
            &[org.into(), folder.into()],
        )
    }
}

/// MCP servers: the tools that each offered at its last start.
pub mod servers {
    use crate::contract::servers::KnownServer;
    use crate::store::tables::table::{self, read, table};
    use crate::store::tx::{DbError, Tx, all, sql};

    table! {
        tool_servers: KnownServer;
        key { name }
        update { digest, tools }
        // The server's next start stores it again.
        undecodable Moved { "digest" => "digest = ''", "tools" => "tools = '[]'" }
    }

    /// All known servers, ordered by name.
    pub fn every(tx: &mut dyn Tx) -> Result<Vec<KnownServer>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM tool_servers ORDER BY name");
        all(tx, sql, &[], read)
    }

    /// The row has `known`; an earlier one of that name is replaced.
    pub fn put(tx: &mut dyn Tx, known: &KnownServer) -> Result<(), DbError> {
        table::put(tx, known, [])
    }
}
