//! The environment of a program that a run starts, built in layers and passed as a whole. Tools and
//! runners build one per program; of the daemon's own environment it inherits only what is named
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;

/// The variables of the daemon's environment that every program gets; a trailing `*` matches any
/// suffix.
const BASE: &[&str] = &[
    "PATH", "HOME", "LANG", "LC_*", "TERM", "TZ", "TMPDIR", "USER", "SHELL",
];

/// The variables of a program's environment, by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The base layer: the variables in `vars` that every program gets, plus those named in `pass`,
    /// which may also end in `*`.
    pub fn base(vars: impl IntoIterator<Item = (OsString, OsString)>, pass: &[String]) -> Self {
        let passes = |name: &OsStr| {
            let Some(name) = name.to_str() else {
                return false;
            };
            let added = pass.iter().map(String::as_str);
            BASE.iter().copied().chain(added).any(|one| fits(one, name))
        };
        let vars = vars.into_iter();
        Environment(vars.filter(|(name, _)| passes(name)).collect())
    }

    /// The same with `name` set, overriding lower layers.
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// All names that are valid UTF-8.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.0.keys().filter_map(|name| name.to_str());
        names.map(str::to_owned).collect()
    }

    /// The value of `name`; `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl fmt::Debug for Environment {
    /// Prints the names only: a value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(vars: &[(&str, &str)], pass: &[&str]) -> Vec<String> {
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into()));
        let pass: Vec<String> = pass.iter().map(|name| (*name).to_owned()).collect();
        let base = Environment::base(vars, &pass);
        base.iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect()
    }

    #[test]
    fn g7_a_program_gets_what_is_named_and_nothing_else() {
        let vars = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("LC", "x"),
            ("OPENAI_API_KEY", "sk"),
            ("PATHS", "x"),
            ("LD_PRELOAD", "x"),
            ("CARGO_HOME", "/c"),
            ("CARGO_TERM", "x"),
        ];
        assert_eq!(base(&vars, &[]), ["LC_ALL=C", "PATH=/bin"]);
        assert_eq!(
            base(&vars, &["CARGO_*", "MISSING"]),
            ["CARGO_HOME=/c", "CARGO_TERM=x", "LC_ALL=C", "PATH=/bin"]
        );
    }

    #[test]
    fn g7_9_debug_output_has_the_names_and_no_value() {
        let environment = Environment::default().with("A_KEY", "canary");
        assert_eq!(format!("{environment:?}"), "{\"A_KEY\"}");
    }

    #[test]
    fn a_higher_layer_wins() {
        let layered = Environment::default().with("A", "1").with("A", "2");
        assert_eq!(layered.get("A"), Some(OsStr::new("2")));
        assert_eq!(layered.get("B"), None);
    }
}
