//! The environment of a server's program, and the per-run process of a server with `scope = "run"`.
//! Called by `servers` and `server`.

use std::sync::Arc;

use super::server::McpServer;
use super::servers::McpServers;
use crate::config::{self, ServerScope};
use crate::contract::journal::RunEnvironment;
use crate::kernel::ids::RunId;
use crate::kernel::policy::env::Environment;
use crate::kernel::policy::overlay::looks_secret;
use crate::kernel::secret::GivenValue;
use crate::kernel::text::redact::{Pieces, Redactor};
use crate::process;

/// The run that a process was started for, and its environment.
pub(super) struct RunScope {
    run: RunId,
    environment: RunEnvironment,
}

impl McpServer {
    /// True if each run gets its own process.
    pub(super) fn is_per_run(&self) -> bool {
        self.table.scope == ServerScope::Run
    }

    /// The environment of the program: its run's environment or the shared one, plus the variables
    /// of its table. References are read now; the error names one that cannot be read.
    pub(super) fn environment(&self) -> Result<Environment, String> {
        let mut environment = match &self.own {
            // The mark identifies leftover processes of the run.
            Some(own) => {
                let variables = own.environment.variables.clone();
                variables.with(process::RUN_ID, own.run.to_string())
            }
            None => self.shared.options.environment.clone(),
        };
        let mut secrets = Vec::new();
        for (name, given) in &self.table.env {
            let value = match given {
                GivenValue::Text(text) => text.clone(),
                GivenValue::From(place) => {
                    config::read(place).map_err(|why| format!("{name} (env): {why}"))?
                }
            };
            environment = environment.with(name, value.expose());
            let is_secret = match given {
                GivenValue::Text(_) => looks_secret(name),
                GivenValue::From(place) => looks_secret(name) || place.names_secret(),
            };
            if is_secret {
                secrets.push((name.as_str(), value));
            }
        }
        let headers = self.table.headers.iter();
        secrets.extend(headers.map(|(name, value)| (name.as_str(), value.clone())));
        secrets.extend(self.session_secrets());
        let secrets = secrets.iter().map(|(name, value)| (*name, value));
        *self.lock_redactor() = Redactor::new(secrets);
        Ok(environment)
    }

    /// Masks the secrets of the server in a text.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for redactor in self.redactors() {
            redactor.in_place(&mut text);
        }
        text
    }

    /// The same for a text that arrives in pieces.
    pub(super) fn pieces_without_secrets(&self) -> impl FnMut(&str) -> String + use<> {
        let mut pieces = self.redactors().map(Pieces::new);
        move |piece| {
            let piece = piece.to_owned();
            pieces
                .iter_mut()
                .fold(piece, |piece, pieces| pieces.more(&piece))
        }
    }

    /// The redactors of its table and of its run.
    fn redactors(&self) -> [Redactor; 2] {
        let of_run = self.own.as_ref();
        let of_run = of_run.map(|own| own.environment.redactor.clone());
        [self.lock_redactor().clone(), of_run.unwrap_or_default()]
    }

    /// True if it was started from this table in this environment.
    fn is_of(&self, declared: &McpServer, environment: &RunEnvironment) -> bool {
        let own = self.own.as_ref();
        self.table == declared.table
            && own.is_some_and(|own| own.environment.variables == environment.variables)
    }
}

impl McpServers {
    /// Returns the run's own process of a server and starts it if there is none. A process whose
    /// table or environment is outdated (a value was read again since) is ended first.
    pub(super) async fn run_server(
        &self,
        run: RunId,
        environment: &RunEnvironment,
        declared: &McpServer,
    ) -> Arc<McpServer> {
        let (own, stale) = {
            let mut leases = self.lock_leases();
            let leased = leases.entry(run).or_default();
            let known = leased.iter().position(|one| {
                one.name == declared.name && one.is_of_session == declared.is_of_session
            });
            match known {
                Some(at) if leased[at].is_of(declared, environment) => {
                    return Arc::clone(&leased[at]);
                }
                known => {
                    let stale = known.map(|at| leased.swap_remove(at));
                    let environment = environment.clone();
                    let own = declared.leased(Some(RunScope { run, environment }));
                    leased.push(Arc::clone(&own));
                    (own, stale)
                }
            }
        };
        if let Some(stale) = stale {
            stale.end().await;
        }
        own
    }
}
