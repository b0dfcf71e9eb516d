//! `tokens.*`: access tokens of users, with their org, scopes, end and limits.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::{self, PageSize};
use super::schema;
use super::shapes::Word;
use crate::kernel::ids::{TokenId, is_name};
use crate::kernel::scope::Scope;
use crate::kernel::time::Timestamp;
use crate::kernel::token::is_user;

/// Maximum time until a token expires: ten years.
pub const EXPIRY_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Parameters of `tokens.create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateToken {
    /// User that its holder acts as: up to 64 letters, digits and `._-@+`.
    #[serde(deserialize_with = "user")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"))]
    pub user: String,
    /// Org of the user; the caller's own if unset. Only the owner of the daemon may name another.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "org"
    )]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
    pub org: Option<String>,
    /// What it is for.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "input::name"
    )]
    #[schemars(length(min = 1, max = input::NAME_LIMIT))]
    pub label: Option<String>,
    /// What it allows, at least one scope. A caller with an access token grants only scopes that it
    /// has.
    #[serde(deserialize_with = "some_scopes")]
    #[schemars(length(min = 1))]
    pub scopes: Vec<Scope>,
    /// Time until it expires, at most ten years; it does not expire if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<TokenLifetime>,
    /// Its limits.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "limits"
    )]
    pub limits: Option<TokenLimits>,
}

/// Limits of an access token; an absent one does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenLimits {
    /// Maximum number of calls per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<NonZeroU32>,
    /// Maximum number of simultaneous connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<NonZeroU32>,
    /// With this many open runs of its user, its holder's requests for another one are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_runs: Option<NonZeroU32>,
}

/// Time until a token expires, more than zero and at most [`EXPIRY_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLifetime(pub Duration);

impl Serialize for TokenLifetime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}ms", self.0.as_millis()))
    }
}

impl<'de> Deserialize<'de> for TokenLifetime {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let span = input::span(from)?;
        if span.is_zero() || span > EXPIRY_LIMIT {
            let rule = "it must be more than zero and at most 3650 days";
            return Err(serde::de::Error::custom(rule));
        }
        Ok(TokenLifetime(span))
    }
}

impl JsonSchema for TokenLifetime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TokenLifetime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let what = "Time until a token expires: text such as \"30d\", or seconds.";
        schema::span(what, 0, true, EXPIRY_LIMIT.as_secs())
    }
}

fn user<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match is_user(&text) {
        true => Ok(text),
        false => Err(serde::de::Error::custom(
            "a user is 1 to 64 letters, digits, '.', '_', '-', '@' or '+', starting with a letter or digit",
        )),
    }
}

fn org<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    match text.as_deref().is_none_or(is_name) {
        true => Ok(text),
        false => Err(serde::de::Error::custom(
            "an org is 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit",
        )),
    }
}

/// An object: a list of values in the order of the fields is refused.
fn limits<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<TokenLimits>, D::Error> {
    let fields = Option::<Map<String, Value>>::deserialize(from)?;
    let limits = fields.map(|fields| serde_json::from_value(Value::Object(fields)));
    limits.transpose().map_err(serde::de::Error::custom)
}

fn some_scopes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Scope>, D::Error> {
    let scopes = Vec::<Scope>::deserialize(from)?;
    match scopes.is_empty() {
        false => Ok(scopes),
        true => Err(serde::de::Error::custom("a token needs at least one scope")),
    }
}

/// Result of `tokens.create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// The new token.
    pub token: Token,
    /// Its text, which its holder sends as `Authorization: Bearer`. It is not stored and cannot be
    /// shown again.
    pub secret: String,
}

/// Parameters of `tokens.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTokens {
    /// Only tokens of this org; if unset, those of the caller's own, or all for the owner of the
    /// daemon. Only the owner may name another org.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "org"
    )]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
    pub org: Option<String>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `tokens.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// One page of tokens, newest first; those that ended more than 90 days ago may be absent.
    pub tokens: Vec<Token>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `tokens.revoke`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// The token.
    #[serde(deserialize_with = "input::id")]
    pub id: TokenId,
}

/// An access token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its id, which is a part of its text and not secret.
    pub id: TokenId,
    /// Org of its holder.
    pub org: String,
    /// User that its holder acts as.
    pub user: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What it allows.
    pub scopes: Vec<Scope>,
    /// Its limits.
    pub limits: TokenLimits,
    /// `active`, `expired` or `revoked`.
    pub state: Word,
    /// Principal that created it.
    pub created_by: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Its last use; absent if it was not used yet. After a kill of the daemon up to a minute is
    /// missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
}
