//! Verifies that the daemon's own environment is unchanged since its start: no run may change it.
//! Part of the doctor's checks.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::contract::finding::{Finding, Health};

/// The daemon's environment at its start: variable name to a digest of the value, keyed with a
/// random key that is never stored.
pub struct EnvironmentSnapshot {
    key: [u8; 32],
    digests: BTreeMap<OsString, blake3::Hash>,
}

impl EnvironmentSnapshot {
    /// Captures the current environment. Fails if no random bytes are available.
    pub fn note() -> Result<Self, String> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|fault| fault.to_string())?;
        let digests = digests(&key);
        Ok(EnvironmentSnapshot { key, digests })
    }

    /// The finding on whether it is unchanged; changed variables are named without values.
    pub fn look(&self) -> Finding {
        let now = digests(&self.key);
        let names = self.digests.keys().chain(now.keys());
        let mut changed: Vec<String> = names
            .filter(|name| self.digests.get(*name) != now.get(*name))
            .map(|name| name.display().to_string())
            .collect();
        changed.sort_unstable();
        changed.dedup();
        let id = "environment.untouched";
        match changed.is_empty() {
            true => Finding::new(
                id,
                Health::Ok,
                format!(
                    "the daemon's own environment is unchanged since its start ({} variables)",
                    now.len()
                ),
            ),
            false => Finding::new(
                id,
                Health::Fail,
                format!(
                    "the daemon's own environment has changed since its start: {}",
                    changed.join(", ")
                ),
            )
            .fix("this is a defect: runs may see each other's values; abide stop --restart"),
        }
    }
}

fn digests(key: &[u8; 32]) -> BTreeMap<OsString, blake3::Hash> {
    let variables = std::env::vars_os();
    variables
        .map(|(name, value)| {
            let digest = blake3::keyed_hash(key, value.as_encoded_bytes());
            (name, digest)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks the process in which a variable is planted.
    const PLANTED: &str = "ABIDE_TEST_PLANTED";

    /// This process has threads that read the environment, so nothing may be planted here: a
    /// process is started for this test alone.
    #[test]
    fn g7_1_a_variable_that_somebody_plants_is_found_and_named() {
        let name = "daemon::environment_check::tests::g7_1_a_variable_that_somebody_plants_is_found_and_named";
        if std::env::var_os(PLANTED).is_none() {
            let me = std::env::current_exe().unwrap();
            let child = std::process::Command::new(me)
                .args(["--exact", name, "--test-threads=1"])
                .env(PLANTED, "before")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            assert!(
                child.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        }
        let start = EnvironmentSnapshot::note().unwrap();
        assert_eq!(start.look().status, Health::Ok);
        for (variable, value) in [
            (PLANTED, Some("canary")),
            ("ABIDE_TEST_NEW", Some("canary")),
            ("PATH", None),
        ] {
            let found = temp_env::with_var(variable, value, || start.look());
            assert_eq!(found.status, Health::Fail, "{found:?}");
            assert!(
                found.message.ends_with(&format!(": {variable}")),
                "{found:?}"
            );
            assert!(!found.message.contains("canary"), "{found:?}");
        }
        assert_eq!(start.look().status, Health::Ok);
    }
}
