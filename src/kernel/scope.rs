//! Scopes: what a token allows its holder to do. Each method names the scope that its callers need.

use std::fmt;

use super::text::text_enum::text_enum;

text_enum! {
    /// A right that a token grants. None includes another.
    #[schemars(rename = "TokenScope")]
    Scope {
        /// Read objects of the token's org, and follow their events.
        Read = "read",
        /// Start, continue, steer, cancel and remove work.
        Run = "run",
        /// Make decisions for a user: approvals, answers, reviews, values of an environment.
        Approve = "approve",
        /// Administer nodes, and call programs on them.
        Node = "node",
        /// Change agents and tokens of the org; in the org of the daemon's owner, operate the daemon.
        Admin = "admin",
    }
}

/// The org of the daemon's owner. Only its callers operate the daemon as a whole.
pub const OWNER_ORG: &str = "default";

/// A set of scopes. Its text form is their names with commas, `read,run`, in declaration order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeSet(u8);

impl ScopeSet {
    /// All scopes, as the owner of the daemon has them.
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    /// Whether `scope` is in the set.
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & bit(scope) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes of `self` that `other` does not have.
    pub fn without(self, other: ScopeSet) -> ScopeSet {
        ScopeSet(self.0 & !other.0)
    }

    /// Its scopes, in declaration order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        let all = Scope::ALL.iter().copied();
        all.filter(move |scope| self.contains(*scope))
    }

    /// Parses the text form; names may repeat and have blanks around them. The error names the
    /// unknown one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names
            .map(|name| Scope::parse(name).ok_or_else(|| unknown(name)))
            .collect()
    }
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    super::text::text_enum::unknown(name, &known)
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        let bits = scopes.into_iter().map(bit);
        ScopeSet(bits.fold(0, |all, one| all | one))
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, scope) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{scope}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_its_text_says() {
        let some = ScopeSet::parse(" run, read,,run ").unwrap();
        assert_eq!(some.to_string(), "read,run");
        assert!(some.contains(Scope::Read) && !some.contains(Scope::Admin));
        assert_eq!(
            ScopeSet::parse(&ScopeSet::all().to_string()),
            Ok(ScopeSet::all())
        );
        assert_eq!(
            ScopeSet::all().without(some).to_string(),
            "approve,node,admin"
        );
        assert!(ScopeSet::parse("").unwrap().is_empty());
    }

    #[test]
    fn an_unknown_scope_is_named_with_the_known_ones() {
        let error = ScopeSet::parse("read,rule").unwrap_err();
        assert_eq!(
            error,
            "\"rule\" is not one of read, run, approve, node, admin"
        );
    }
}
