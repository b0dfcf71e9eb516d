//! Secret values and the places they are read from. Settings, agents and requests hold them in this
//! form; only code that starts a program or talks to a provider exposes one.

use std::fmt;
use std::path::Path;

use crate::kernel::policy::overlay::looks_secret;

/// A text that debug output never shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// The address of a receiver. Its query may be a secret, so only the rest of it is displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiverUrl(String);

impl ReceiverUrl {
    /// Wraps an address.
    pub fn new(text: impl Into<String>) -> Self {
        ReceiverUrl(text.into())
    }

    /// The whole address, for the one place that connects to it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_query(&self.0))
    }
}

impl fmt::Debug for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// The address as it is displayed: `[secret]` in place of its query, if it has one.
pub fn without_query(address: &str) -> String {
    match address.split_once('?') {
        Some((shown, _)) => format!("{shown}?[secret]"),
        None => address.to_owned(),
    }
}

/// The place that a value is read from each time it is needed. The reference itself is not secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A variable of the daemon's environment.
    Variable(String),
    /// A file, by its absolute path.
    File(String),
    /// A credential that the supervisor provides.
    Credential(String),
}

impl Reference {
    /// Parses `env:NAME`, `file:/…` or `cred:NAME`. The refusal does not repeat the text, which may
    /// be a value given in the wrong place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = "env:NAME, file:/PATH or cred:NAME is expected";
        let (kind, place) = text.split_once(':').ok_or(expected)?;
        let is_plain = !place.is_empty() && !place.contains(char::is_control);
        match kind {
            "env" if is_plain && !place.contains('=') => Ok(Reference::Variable(place.to_owned())),
            "file" if is_plain && place.starts_with('/') => Ok(Reference::File(place.to_owned())),
            // A credential is a visible file directly in the supervisor's folder.
            "cred" if is_plain && !place.contains('/') && !place.starts_with('.') => {
                Ok(Reference::Credential(place.to_owned()))
            }
            _ => Err(expected.to_owned()),
        }
    }

    /// True if the place itself indicates a secret: a credential, a variable or file whose name
    /// looks like one, or a file in a folder for secrets. Any other place may hold a folder or a
    /// host.
    pub fn names_secret(&self) -> bool {
        match self {
            Reference::Variable(name) => looks_secret(name),
            Reference::File(path) => {
                let path = Path::new(path);
                let mut folders = path.parent().into_iter().flat_map(Path::components);
                let is_kept_with_secrets = folders.any(|folder| {
                    let name = folder.as_os_str().to_string_lossy().to_ascii_lowercase();
                    ["secrets", ".secrets", "credentials", ".ssh"].contains(&name.as_str())
                });
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                is_kept_with_secrets || looks_secret(&stem.replace(['-', '.'], "_"))
            }
            Reference::Credential(_) => true,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Variable(name) => write!(f, "env:{name}"),
            Reference::File(path) => write!(f, "file:{path}"),
            Reference::Credential(name) => write!(f, "cred:{name}"),
        }
    }
}

/// A value that is given for a name, or the place it is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenValue {
    /// The value itself.
    Text(Secret),
    /// The place it is read from.
    From(Reference),
}

impl GivenValue {
    /// A value given as plain text.
    pub fn text(value: impl Into<String>) -> Self {
        GivenValue::Text(Secret::new(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_shown_as_it_is_written_and_a_value_in_its_place_is_not_repeated() {
        for text in ["env:A_KEY", "file:/run/key", "cred:weather"] {
            assert_eq!(Reference::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "canary-value",
            "env:",
            "env:A=b",
            "file:relative",
            "cred:../token",
            "cred:.hidden",
            "cred:a/b",
            "vault:a",
            "env:A\nB",
        ] {
            let refused = Reference::parse(text).unwrap_err();
            assert!(!refused.contains("canary"), "{refused}");
        }
    }

    #[test]
    fn the_query_of_an_address_is_in_no_form_that_is_displayed() {
        let url = ReceiverUrl::new("https://a.example/hook?sig=canary?b");
        assert_eq!(url.to_string(), "https://a.example/hook?[secret]");
        assert_eq!(format!("{url:?}"), "\"https://a.example/hook?[secret]\"");
        assert_eq!(url.expose(), "https://a.example/hook?sig=canary?b");
        let plain = ReceiverUrl::new("https://a.example/hook");
        assert_eq!(plain.to_string(), plain.expose());
    }

    #[test]
    fn a_place_says_by_its_name_whether_it_holds_a_secret() {
        for text in [
            "env:GH_TOKEN",
            "file:/run/secrets/db",
            "file:/etc/app/api-key.txt",
            "file:/srv/u/.ssh/id",
            "cred:weather",
        ] {
            assert!(Reference::parse(text).unwrap().names_secret(), "{text}");
        }
        for text in [
            "env:HOST",
            "env:PROJECT_DIR",
            "file:/etc/hostname",
            "file:/srv/key/region",
        ] {
            assert!(!Reference::parse(text).unwrap().names_secret(), "{text}");
        }
    }

    #[test]
    fn g7_9_nothing_that_holds_a_value_prints_it() {
        let given = GivenValue::text("canary");
        assert!(!format!("{given:?}").contains("canary"));
    }
}
