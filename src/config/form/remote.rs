//! The formats of settings that describe external programs and addresses: location, credentials,
//! and which values are never displayed.

use std::collections::BTreeMap;

use toml::Value;

use super::{OneOf, SettingForm, Text};
use crate::kernel::policy::overlay;
use crate::kernel::secret::{GivenValue, ReceiverUrl, Reference, Secret};
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// Which runs share one process of a tool server.
    ServerScope {
        /// One process for all runs.
        Shared = "shared",
        /// One process per run that calls it, in that run's environment.
        Run = "run",
    }
}

/// The scope of a tool server; see [`ServerScope`].
pub const SERVER_SCOPE: OneOf<ServerScope> = OneOf {
    all: ServerScope::ALL,
    text: ServerScope::as_str,
};

/// An `http` or `https` URL without user, query and fragment.
pub struct HttpUrl;

impl SettingForm<String> for HttpUrl {
    fn read(&self, value: &Value) -> Result<String, String> {
        let text = Text.read(value)?;
        match is_web(&text) && !text.contains(['?', '#', '@']) {
            true => Ok(text),
            // Text before an @ or after a ? may be a secret, and addresses are displayed to
            // everyone.
            false => Err(
                "an address such as https://example.org/v1, without user and query, is expected"
                    .to_owned(),
            ),
        }
    }

    fn show(&self, value: &String) -> Option<Value> {
        Some(value.clone().into())
    }
}

/// The address of a receiver: an `http` or `https` URL without user and fragment. Its query is never
/// displayed.
pub struct ReceiverAddress;

impl SettingForm<ReceiverUrl> for ReceiverAddress {
    fn read(&self, value: &Value) -> Result<ReceiverUrl, String> {
        let text = Text.read(value)?;
        let before = text.split('?').next().unwrap_or_default();
        match is_web(&text) && !before.contains('@') && !text.contains('#') {
            true => Ok(ReceiverUrl::new(text)),
            false => Err(
                "an address such as https://example.org/hook, without user and fragment, is \
                 expected"
                    .to_owned(),
            ),
        }
    }

    fn show(&self, value: &ReceiverUrl) -> Option<Value> {
        Some(value.expose().into())
    }
}

/// True for an `http` or `https` URL with a host.
fn is_web(text: &str) -> bool {
    let has_host = text
        .parse::<http::Uri>()
        .is_ok_and(|url| url.host().is_some_and(|host| !host.is_empty()));
    (text.starts_with("http://") || text.starts_with("https://")) && has_host
}

/// A text, or a reference to where it is read from: `{ from = "env:NAME" }`.
pub struct GivenText;

impl SettingForm<GivenValue> for GivenText {
    fn read(&self, value: &Value) -> Result<GivenValue, String> {
        let expected = || {
            "a text, or { from = \"env:NAME\" }, { from = \"file:/PATH\" } or { from = \
             \"cred:NAME\" }, is expected"
                .to_owned()
        };
        match value {
            Value::String(text) => Ok(GivenValue::text(text)),
            Value::Table(table) if table.len() == 1 => {
                let from = table.get("from").and_then(Value::as_str);
                Reference::parse(from.ok_or_else(expected)?).map(GivenValue::From)
            }
            _ => Err(expected()),
        }
    }

    fn show(&self, value: &GivenValue) -> Option<Value> {
        Some(match value {
            GivenValue::Text(text) => text.expose().into(),
            GivenValue::From(place) => {
                let from = ("from".to_owned(), Value::from(place.to_string()));
                Value::Table(toml::Table::from_iter([from]))
            }
        })
    }
}

/// A table of names with a [`GivenText`] each; in an environment variable, one `NAME=value` per
/// line.
pub struct GivenVariables;

impl SettingForm<BTreeMap<String, GivenValue>> for GivenVariables {
    fn read(&self, value: &Value) -> Result<BTreeMap<String, GivenValue>, String> {
        let pairs: BTreeMap<String, GivenValue> = match value {
            Value::Table(table) => table
                .iter()
                .map(|(name, value)| Ok((name.clone(), GivenText.read(value)?)))
                .collect::<Result<_, String>>()?,
            other => {
                let pairs = pairs_of(other, '=');
                let pairs = pairs.ok_or("a table, { NAME = \"value\" }, is expected")?;
                let pairs = pairs.into_iter();
                pairs
                    .map(|(name, value)| (name, GivenValue::text(value)))
                    .collect()
            }
        };
        for (name, given) in &pairs {
            overlay::check(name, given).map_err(|fault| fault.message)?;
        }
        Ok(pairs)
    }

    fn show(&self, value: &BTreeMap<String, GivenValue>) -> Option<Value> {
        let pairs = value.iter();
        let pairs = pairs.filter_map(|(name, given)| Some((name.clone(), GivenText.show(given)?)));
        Some(Value::Table(pairs.collect()))
    }
}

/// Credentials for an HTTP tool server, given as names of variables in the daemon's environment,
/// never as values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// The variable that holds a bearer token.
    pub bearer_env: Option<String>,
    /// Header name to the variable that holds the header's value.
    pub header_envs: BTreeMap<String, String>,
}

/// Reads [`Auth`] from `{ bearer_env = "NAME", header_envs = { "X-Key" = "NAME" } }`.
pub struct AuthNames;

impl SettingForm<Auth> for AuthNames {
    fn read(&self, value: &Value) -> Result<Auth, String> {
        let expected = || {
            "a table is expected: bearer_env = \"NAME\", header_envs = { \"X-Key\" = \"NAME\" }"
                .to_owned()
        };
        let mut auth = Auth::default();
        for (name, value) in value.as_table().ok_or_else(expected)? {
            match name.as_str() {
                "bearer_env" => auth.bearer_env = Some(Text.read(value)?),
                "header_envs" => {
                    for (header, value) in value.as_table().ok_or_else(expected)? {
                        if header.parse::<http::HeaderName>().is_err() {
                            return Err(format!("{header:?} is not a valid header name"));
                        }
                        auth.header_envs.insert(header.clone(), Text.read(value)?);
                    }
                }
                _ => return Err(format!("unknown field {name:?}; {}", expected())),
            }
        }
        Ok(auth)
    }

    fn show(&self, value: &Auth) -> Option<Value> {
        let mut table = toml::Table::new();
        if let Some(name) = &value.bearer_env {
            table.insert("bearer_env".to_owned(), name.clone().into());
        }
        if !value.header_envs.is_empty() {
            let pairs = value.header_envs.iter();
            let pairs = pairs.map(|(header, name)| (header.clone(), Value::from(name.clone())));
            table.insert("header_envs".to_owned(), Value::Table(pairs.collect()));
        }
        Some(Value::Table(table))
    }
}

/// The pairs of a table of texts, or of lines of the form name, `divider`, value.
fn pairs_of(value: &Value, divider: char) -> Option<Vec<(String, String)>> {
    match value {
        Value::Table(table) => table
            .iter()
            .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect(),
        Value::String(lines) => lines
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (name, value) = line.split_once(divider)?;
                Some((name.trim().to_owned(), value.trim().to_owned()))
            })
            .collect(),
        _ => None,
    }
}

/// The name of a header, in small letters.
pub struct HeaderName;

impl SettingForm<String> for HeaderName {
    fn read(&self, value: &Value) -> Result<String, String> {
        let text = Text.read(value)?;
        match text.parse::<http::HeaderName>() {
            Ok(name) => Ok(name.to_string()),
            Err(_) => Err("the name of a header is expected".to_owned()),
        }
    }

    fn show(&self, value: &String) -> Option<Value> {
        Text.show(value)
    }
}

/// Header names and values; in an environment variable, one `Name: value` per line.
pub struct Headers;

impl SettingForm<BTreeMap<String, Secret>> for Headers {
    fn read(&self, value: &Value) -> Result<BTreeMap<String, Secret>, String> {
        let expected = || "a table of texts, { \"Name\" = \"value\" }, is expected".to_owned();
        let pairs = pairs_of(value, ':');
        let pairs = pairs.ok_or_else(expected)?;
        for (name, value) in &pairs {
            let is_header = name.parse::<http::HeaderName>().is_ok()
                && http::HeaderValue::from_str(value).is_ok();
            if !is_header {
                return Err(format!("{name:?} and its value are not a valid header"));
            }
        }
        let pairs = pairs.into_iter();
        Ok(pairs
            .map(|(name, value)| (name, Secret::new(value)))
            .collect())
    }

    fn show(&self, value: &BTreeMap<String, Secret>) -> Option<Value> {
        let pairs = value.iter();
        let pairs = pairs.map(|(name, value)| (name.clone(), Value::from(value.expose())));
        Some(Value::Table(pairs.collect()))
    }
}
