//! Settings of inbound hooks: how a delivery is checked, and whether a table can be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::named::HookTable;
use super::private::SHORTEST;
use crate::kernel::secret::{GivenValue, Secret};
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// How a delivery proves that its sender has the secret.
    HookCheck {
        /// GitHub's signature of the body, `X-Hub-Signature-256`.
        Github = "github",
        /// The signature of Standard Webhooks, with its time.
        Standard = "standard",
        /// The secret itself, `Authorization: Bearer`.
        Bearer = "bearer",
    }
}

/// All inbound hooks, by name.
pub type HookTables = Arc<BTreeMap<String, HookTable>>;

impl HookTable {
    /// Checks that the fields which have no default are set, and that a secret in the settings can
    /// be one.
    pub(super) fn is_complete(&self) -> Result<(), String> {
        let missing = |field: &str, what: &str| Err(format!("{field} is missing: {what}"));
        let Some(check) = self.check else {
            return missing("check", "github, standard or bearer");
        };
        match &self.secret {
            None => return missing("secret", "a text, or { from = \"file:/PATH\" }"),
            Some(GivenValue::Text(secret)) => {
                usable(check, secret).map_err(|why| format!("secret: {why}"))?;
            }
            Some(GivenValue::From(_)) => {}
        }
        match self.task {
            None => missing(
                "task",
                "the text of the task, with fields such as {issue.title}",
            ),
            Some(_) => Ok(()),
        }
    }

    /// The secret as it is now: a reference is read each time, so that a changed file needs no
    /// reload. The error never repeats the secret.
    pub fn read_secret(&self) -> Result<Secret, String> {
        let secret = match self.secret.as_ref().ok_or("secret is missing")? {
            GivenValue::Text(secret) => secret.clone(),
            GivenValue::From(place) => super::reference::read(place)?,
        };
        usable(self.check.ok_or("check is missing")?, &secret)?;
        Ok(secret)
    }

    /// The header with the id of a delivery.
    pub fn delivery_header(&self) -> &str {
        match (&self.idempotency_header, self.check) {
            (Some(header), _) => header,
            (None, Some(HookCheck::Github)) => "x-github-delivery",
            (None, Some(HookCheck::Standard)) => "webhook-id",
            (None, Some(HookCheck::Bearer) | None) => "idempotency-key",
        }
    }
}

/// Refuses a secret that could be guessed, or that cannot sign.
fn usable(check: HookCheck, secret: &Secret) -> Result<(), String> {
    let text = secret.expose();
    let length = text.chars().count();
    if length < SHORTEST {
        return Err(format!(
            "it has {length} characters, but a secret needs at least {SHORTEST}"
        ));
    }
    if check == HookCheck::Standard {
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        STANDARD.decode(encoded).map_err(|_| {
            "check = \"standard\" needs whsec_ and base64, as the sender shows it".to_owned()
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::secret::Reference;

    fn table(check: HookCheck, secret: &str) -> HookTable {
        HookTable {
            check: Some(check),
            secret: Some(GivenValue::text(secret)),
            task: Some(super::super::template::Template::parse("do it").unwrap()),
            ..HookTable::default()
        }
    }

    #[test]
    fn a_table_needs_a_check_a_secret_and_a_task() {
        let whole = table(HookCheck::Github, "0123456789abcdef");
        assert_eq!(whole.is_complete(), Ok(()));
        let mut without = [whole.clone(), whole.clone(), whole.clone()];
        without[0].check = None;
        without[1].secret = None;
        without[2].task = None;
        for (table, field) in without.iter().zip(["check", "secret", "task"]) {
            let refused = table.is_complete().unwrap_err();
            assert!(
                refused.starts_with(&format!("{field} is missing")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_secret_is_long_enough_and_of_the_form_that_its_check_needs() {
        for short in ["", "short", "0123456789abcde"] {
            for check in HookCheck::ALL {
                let refused = table(*check, short).is_complete().unwrap_err();
                assert!(refused.contains("at least 16"), "{refused}");
            }
        }
        let plain = "canary-canary-canary!";
        let refused = table(HookCheck::Standard, plain).is_complete().unwrap_err();
        assert!(
            refused.contains("base64") && !refused.contains("canary"),
            "{refused}"
        );
        assert!(table(HookCheck::Bearer, plain).is_complete().is_ok());
        let right = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        assert!(table(HookCheck::Standard, right).is_complete().is_ok());
    }

    #[test]
    fn a_referenced_secret_is_read_at_each_use_and_checked_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let mut table = table(HookCheck::Github, "");
        table.secret = Some(GivenValue::From(Reference::File(
            path.to_str().unwrap().to_owned(),
        )));
        assert_eq!(table.is_complete(), Ok(()), "the file may come later");
        assert!(table.read_secret().is_err());
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(table.read_secret().unwrap().expose(), "0123456789abcdef");
        std::fs::write(&path, "short\n").unwrap();
        let refused = table.read_secret().unwrap_err();
        assert!(refused.contains("at least 16"), "{refused}");
    }
}
