//! Access tokens of users: what is known of a token, its limits, and the form of its text.

use super::ids::TokenId;
use super::scope::ScopeSet;
use super::secret::Secret;
use super::time::Timestamp;

/// The beginning of every token's text, by which people and scanners of secrets recognise one.
pub const PREFIX: &str = "abide_";

/// A token: for whom it is and what it allows. Its text is nowhere but with its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// Its id, which is a part of its text.
    pub id: TokenId,
    /// The org of its holder.
    pub org: String,
    /// The user that its holder acts as.
    pub user: String,
    /// What it is for, as its creator wrote it.
    pub label: Option<String>,
    /// BLAKE3 of its text, hexadecimal. A slow hash is for passwords, which people choose: the 256
    /// random bits of a token cannot be found by trying.
    pub hash: String,
    /// What it allows.
    pub scopes: ScopeSet,
    /// How much it allows.
    pub limits: TokenLimits,
    /// The principal that created it.
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// From when on it is refused; `None`: it does not expire.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Its last use, precise to a minute; `None` if it was not used yet.
    pub used_at: Option<Timestamp>,
}

impl AccessToken {
    /// `active`, `expired` or `revoked`.
    pub fn state(&self, now: Timestamp) -> &'static str {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(end)) if end <= now => "expired",
            _ => "active",
        }
    }

    /// When it stopped or will stop to be valid.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.revoked_at.or(self.expires_at)
    }
}

/// The limits of a token; `None` means none of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// Maximum number of calls per minute.
    pub calls_per_minute: Option<u32>,
    /// Maximum number of simultaneous connections.
    pub connections: Option<u32>,
    /// Maximum number of open runs of its user while its holder may request another one.
    pub open_runs: Option<u32>,
}

/// The text of the token with this id: the prefix, the id and a secret of hexadecimal digits.
pub fn token_text(id: TokenId, secret: &str) -> Secret {
    Secret::new(format!("{PREFIX}{}_{secret}", id.0.simple()))
}

/// The id in the text of a token; `None` if the text is not one of an access token.
pub fn id_in(text: &str) -> Option<TokenId> {
    let (id, _) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let id = uuid::Uuid::try_parse(id).ok()?;
    Some(TokenId(id))
}

/// True if the text can name a user: 1 to 64 letters, digits, `.`, `_`, `-`, `@` or `+`, starting
/// with a letter or digit.
pub fn is_user(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._-@+".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_read_back_from_the_text_and_nothing_else_is_an_id() {
        let id = TokenId(uuid::Uuid::from_u128(7));
        let text = token_text(id, "00ff");
        assert!(text.expose().starts_with(PREFIX));
        assert_eq!(id_in(text.expose()), Some(id));
        for other in ["", "abide_", "abide_7_00ff", "abide_x", "secret", "abide__"] {
            assert_eq!(id_in(other), None, "{other}");
        }
    }

    #[test]
    fn users_have_the_characters_of_names_and_addresses() {
        for good in ["ann", "ann@example.org", "7.b_c-d+e"] {
            assert!(is_user(good), "{good}");
        }
        for bad in ["", "@ann", "a b", "a/b", "a:b", "ä", &"a".repeat(65)] {
            assert!(!is_user(bad), "{bad}");
        }
    }

    #[test]
    fn a_token_ends_when_it_is_revoked_or_expires() {
        let mut token = AccessToken {
            id: TokenId(uuid::Uuid::nil()),
            org: String::new(),
            user: String::new(),
            label: None,
            hash: String::new(),
            scopes: ScopeSet::default(),
            limits: TokenLimits::default(),
            created_by: String::new(),
            created_at: Timestamp(0),
            expires_at: None,
            revoked_at: None,
            used_at: None,
        };
        assert_eq!(token.state(Timestamp(i64::MAX)), "active");
        token.expires_at = Some(Timestamp(10));
        assert_eq!(token.state(Timestamp(9)), "active");
        assert_eq!(token.state(Timestamp(10)), "expired");
        token.revoked_at = Some(Timestamp(5));
        assert_eq!(token.state(Timestamp(10)), "revoked");
        assert_eq!(token.ends_at(), Some(Timestamp(5)));
    }
}
