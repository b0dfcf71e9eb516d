//! The formats of setting values: how each is parsed, validated and displayed. Referenced by the
//! table of settings.

mod remote;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::Value;

use super::hooks::HookCheck;
use super::openai::{OnDisconnect, ShownToolCalls};
use crate::kernel::event::KindPattern;
use crate::kernel::policy::Visibility;
use crate::kernel::session::Overflow;
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::webhook::SessionPattern;

pub use remote::*;

text_enum! {
    /// How file changes are detected.
    FileWatch {
        /// File system events of the operating system.
        Events = "events",
        /// Periodic scans.
        Poll = "poll",
        /// Only at start and on request.
        Off = "off",
    }
}

text_enum! {
    /// The API protocol of a model provider.
    ProviderKind {
        /// Chat Completions, as in OpenAI's API and many compatible ones.
        OpenAi = "openai",
        /// Messages, as in Anthropic's API.
        Anthropic = "anthropic",
    }
}

/// Converts a value from a file or variable to a `T` and back.
pub trait SettingForm<T> {
    /// Validates and converts a value; the error says what is expected.
    fn read(&self, value: &Value) -> Result<T, String>;

    /// The value in a form that [`Form::read`] accepts; `None` if there is none.
    fn show(&self, value: &T) -> Option<Value>;
}

/// A whole number within this inclusive range.
pub struct Count(pub u32, pub u32);

impl SettingForm<u32> for Count {
    fn read(&self, value: &Value) -> Result<u32, String> {
        let Count(least, most) = self;
        let found = value
            .as_integer()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| (least..=most).contains(&number));
        found.ok_or_else(|| format!("a whole number from {least} to {most} is expected"))
    }

    fn show(&self, value: &u32) -> Option<Value> {
        Some((*value).into())
    }
}

impl SettingForm<usize> for Count {
    fn read(&self, value: &Value) -> Result<usize, String> {
        SettingForm::<u32>::read(self, value).map(|count| count as usize)
    }

    fn show(&self, value: &usize) -> Option<Value> {
        i64::try_from(*value).ok().map(Value::from)
    }
}

/// A number of bytes, or text such as `"64 MiB"`.
pub struct Bytes;

impl SettingForm<u64> for Bytes {
    fn read(&self, value: &Value) -> Result<u64, String> {
        let found = match value {
            Value::Integer(bytes) => u64::try_from(*bytes).ok(),
            Value::String(text) => bytes(text),
            _ => None,
        };
        found.ok_or_else(|| "a number of bytes, or text such as \"64 MiB\", is expected".to_owned())
    }

    fn show(&self, value: &u64) -> Option<Value> {
        Some(i64::try_from(*value).unwrap_or(i64::MAX).into())
    }
}

/// A number of [`Bytes`] from 1 to this many.
pub struct BytesUpTo(pub u64);

impl SettingForm<u64> for BytesUpTo {
    fn read(&self, value: &Value) -> Result<u64, String> {
        let found = Bytes.read(value)?;
        match (1..=self.0).contains(&found) {
            true => Ok(found),
            false => Err(format!("1 to {} bytes are allowed", self.0)),
        }
    }

    fn show(&self, value: &u64) -> Option<Value> {
        Bytes.show(value)
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Non-empty text.
pub struct Text;

impl SettingForm<String> for Text {
    fn read(&self, value: &Value) -> Result<String, String> {
        match value {
            Value::String(text) if !text.is_empty() => Ok(text.clone()),
            _ => Err("text is expected".to_owned()),
        }
    }

    fn show(&self, value: &String) -> Option<Value> {
        Some(value.clone().into())
    }
}

/// A list of texts; in an environment variable, separated by commas.
pub struct Texts;

impl SettingForm<Vec<String>> for Texts {
    fn read(&self, value: &Value) -> Result<Vec<String>, String> {
        match value {
            Value::Array(items) => items.iter().map(|item| Text.read(item)).collect(),
            // An environment variable can hold only this form.
            Value::String(list) => Ok(list
                .split(',')
                .map(|item| item.trim().to_owned())
                .filter(|item| !item.is_empty())
                .collect()),
            _ => Err("a list of texts is expected".to_owned()),
        }
    }

    fn show(&self, value: &Vec<String>) -> Option<Value> {
        Some(value.clone().into())
    }
}

/// A list of event kinds, or prefixes of them with a star; in an environment variable, separated by
/// commas.
pub struct EventKinds;

impl SettingForm<Vec<String>> for EventKinds {
    fn read(&self, value: &Value) -> Result<Vec<String>, String> {
        let kinds = Texts.read(value)?;
        match kinds.iter().find(|text| KindPattern::parse(text).is_none()) {
            None => Ok(kinds),
            Some(wrong) => Err(format!(
                "{wrong:?} is neither an event kind nor a prefix such as run.*"
            )),
        }
    }

    fn show(&self, value: &Vec<String>) -> Option<Value> {
        Texts.show(value)
    }
}

/// A list of session keys, or prefixes of them with a star; in an environment variable, separated by
/// commas.
pub struct SessionKeys;

impl SettingForm<Vec<String>> for SessionKeys {
    fn read(&self, value: &Value) -> Result<Vec<String>, String> {
        let keys = Texts.read(value)?;
        match keys
            .iter()
            .find(|text| SessionPattern::parse(text).is_none())
        {
            None => Ok(keys),
            Some(wrong) => Err(format!(
                "{wrong:?} is neither a session key nor a prefix such as agent:build:*"
            )),
        }
    }

    fn show(&self, value: &Vec<String>) -> Option<Value> {
        Texts.show(value)
    }
}

/// A list of addresses and networks; in an environment variable, separated by commas.
pub struct Networks;

impl SettingForm<Vec<IpNet>> for Networks {
    fn read(&self, value: &Value) -> Result<Vec<IpNet>, String> {
        let texts = Texts.read(value)?;
        let parsed = texts.iter().map(|text| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            address.or_else(|_| text.parse::<IpNet>()).map_err(|_| {
                format!("{text:?} is no address or network such as 10.0.0.1 or 10.0.0.0/8")
            })
        });
        parsed.collect()
    }

    fn show(&self, value: &Vec<IpNet>) -> Option<Value> {
        let networks =
            value.iter().map(
                |network| match network.prefix_len() == network.max_prefix_len() {
                    true => network.addr().to_string(),
                    false => network.to_string(),
                },
            );
        Some(networks.collect::<Vec<_>>().into())
    }
}

/// `true` or `false`.
pub struct Flag;

impl SettingForm<bool> for Flag {
    fn read(&self, value: &Value) -> Result<bool, String> {
        let found = match value {
            Value::Boolean(flag) => Some(*flag),
            // An environment variable can hold only this form.
            Value::String(word) => word.parse().ok(),
            _ => None,
        };
        found.ok_or_else(|| "true or false is expected".to_owned())
    }

    fn show(&self, value: &bool) -> Option<Value> {
        Some((*value).into())
    }
}

/// A list of absolute folder paths; in an environment variable, separated by commas.
pub struct Folders;

impl SettingForm<Vec<PathBuf>> for Folders {
    fn read(&self, value: &Value) -> Result<Vec<PathBuf>, String> {
        let texts = Texts.read(value)?.into_iter();
        texts.map(|text| Folder.read(&text.into())).collect()
    }

    fn show(&self, value: &Vec<PathBuf>) -> Option<Value> {
        let folders = value.iter().map(|folder| folder.display().to_string());
        Some(folders.collect::<Vec<_>>().into())
    }
}

/// A socket address to listen on.
pub struct Address;

impl SettingForm<SocketAddr> for Address {
    fn read(&self, value: &Value) -> Result<SocketAddr, String> {
        Text.read(value)?
            .parse()
            .map_err(|_| "an address such as 127.0.0.1:7777 is expected".to_owned())
    }

    fn show(&self, value: &SocketAddr) -> Option<Value> {
        Some(value.to_string().into())
    }
}

/// An absolute path of a file or folder.
pub struct Folder;

impl SettingForm<PathBuf> for Folder {
    fn read(&self, value: &Value) -> Result<PathBuf, String> {
        let path = PathBuf::from(Text.read(value)?);
        match path.is_absolute() {
            true => Ok(path),
            false => Err("an absolute path is expected".to_owned()),
        }
    }

    fn show(&self, value: &PathBuf) -> Option<Value> {
        Some(value.display().to_string().into())
    }
}

/// A duration: `"90s"`, `"10m"`, or a plain number of seconds.
pub struct Span;

impl SettingForm<Duration> for Span {
    fn read(&self, value: &Value) -> Result<Duration, String> {
        let found = match value {
            Value::String(text) => humantime::parse_duration(text).ok(),
            Value::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            _ => None,
        };
        found.ok_or_else(|| {
            "a duration such as \"90s\" or \"10m\", or a number of seconds, is expected".to_owned()
        })
    }

    fn show(&self, value: &Duration) -> Option<Value> {
        Some(humantime::format_duration(*value).to_string().into())
    }
}

/// A [`Span`] greater than 0, for intervals and timeouts.
pub struct Period;

impl SettingForm<Duration> for Period {
    fn read(&self, value: &Value) -> Result<Duration, String> {
        match Span.read(value)? {
            Duration::ZERO => Err("more than 0 is expected".to_owned()),
            period => Ok(period),
        }
    }

    fn show(&self, value: &Duration) -> Option<Value> {
        Span.show(value)
    }
}

/// A [`Span`] not longer than the given one.
pub struct UpTo(pub Duration);

impl SettingForm<Duration> for UpTo {
    fn read(&self, value: &Value) -> Result<Duration, String> {
        let span = Span.read(value)?;
        if span > self.0 {
            let most = humantime::format_duration(self.0);
            return Err(format!("at most {most} is allowed"));
        }
        Ok(span)
    }

    fn show(&self, value: &Duration) -> Option<Value> {
        Span.show(value)
    }
}

/// A [`Span`] where 0 means "never".
pub struct OrNever;

impl SettingForm<Option<Duration>> for OrNever {
    fn read(&self, value: &Value) -> Result<Option<Duration>, String> {
        Span.read(value)
            .map(|span| (!span.is_zero()).then_some(span))
    }

    fn show(&self, value: &Option<Duration>) -> Option<Value> {
        Span.show(&value.unwrap_or_default())
    }
}

/// A value that may be unset.
pub struct Optional<F>(pub F);

impl<T, F: SettingForm<T>> SettingForm<Option<T>> for Optional<F> {
    fn read(&self, value: &Value) -> Result<Option<T>, String> {
        self.0.read(value).map(Some)
    }

    fn show(&self, value: &Option<T>) -> Option<Value> {
        self.0.show(value.as_ref()?)
    }
}

/// One word of a fixed list.
pub struct OneOf<T: 'static> {
    all: &'static [T],
    text: fn(T) -> &'static str,
}

/// The visibility of sessions; see [`Visibility`].
pub const VISIBILITY: OneOf<Visibility> = OneOf {
    all: Visibility::ALL,
    text: Visibility::as_str,
};

/// The overflow strategy of transcripts; see [`Overflow`].
pub const OVERFLOW: OneOf<Overflow> = OneOf {
    all: Overflow::ALL,
    text: Overflow::as_str,
};

/// How files are watched; see [`FileWatch`].
pub const FILE_WATCH: OneOf<FileWatch> = OneOf {
    all: FileWatch::ALL,
    text: FileWatch::as_str,
};

/// What clients of the OpenAI-compatible API see; see [`ShownToolCalls`].
pub const SHOWN_TOOL_CALLS: OneOf<ShownToolCalls> = OneOf {
    all: ShownToolCalls::ALL,
    text: ShownToolCalls::as_str,
};

/// What a disconnect does; see [`OnDisconnect`].
pub const ON_DISCONNECT: OneOf<OnDisconnect> = OneOf {
    all: OnDisconnect::ALL,
    text: OnDisconnect::as_str,
};

/// How a delivery of a webhook is checked; see [`HookCheck`].
pub const HOOK_CHECK: OneOf<HookCheck> = OneOf {
    all: HookCheck::ALL,
    text: HookCheck::as_str,
};

/// The API protocol of a provider; see [`ProviderKind`].
pub const PROVIDER_KIND: OneOf<ProviderKind> = OneOf {
    all: ProviderKind::ALL,
    text: ProviderKind::as_str,
};

impl<T: Copy> SettingForm<T> for OneOf<T> {
    fn read(&self, value: &Value) -> Result<T, String> {
        let mut all = self.all.iter().copied();
        let found = all.find(|one| value.as_str() == Some((self.text)(*one)));
        found.ok_or_else(|| {
            let words: Vec<&str> = self.all.iter().map(|one| (self.text)(*one)).collect();
            format!("one of {} is expected", words.join(", "))
        })
    }

    fn show(&self, value: &T) -> Option<Value> {
        Some((self.text)(*value).into())
    }
}

/// An amount of money, 0 or more.
pub struct Amount;

impl SettingForm<f64> for Amount {
    fn read(&self, value: &Value) -> Result<f64, String> {
        let found = match value {
            Value::Float(amount) => Some(*amount),
            #[expect(clippy::cast_precision_loss, reason = "no price is that high")]
            Value::Integer(amount) => Some(*amount as f64),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        found
            .filter(|amount| amount.is_finite() && *amount >= 0.0)
            .ok_or_else(|| "a number of 0 or more is expected".to_owned())
    }

    fn show(&self, value: &f64) -> Option<Value> {
        Some((*value).into())
    }
}
