//! The forms that a setting's value can have: how each is read, checked and shown. Named by
//! the table of the settings.

mod remote;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::Value;

use crate::kernel::policy::Visibility;
use crate::kernel::session::Overflow;
use crate::kernel::text_enum::text_enum;

pub use remote::*;

text_enum! {
    /// How changes of files are noticed.
    FileWatch {
        /// By the system's events.
        Events = "events",
        /// By looking again and again.
        Poll = "poll",
        /// Only at the start and when somebody asks.
        Off = "off",
    }
}

text_enum! {
    /// What a provider of models speaks.
    ProviderKind {
        /// Chat Completions, as OpenAI and many others have it.
        OpenAi = "openai",
        /// Messages, as Anthropic has it.
        Anthropic = "anthropic",
    }
}

/// How the text of a file or variable becomes a `T` and is shown again.
pub trait Form<T> {
    /// Checks and takes a value; the fault says what is expected.
    fn read(&self, value: &Value) -> Result<T, String>;

    /// The value, so that [`Form::read`] would take it; `None` where there is none.
    fn show(&self, value: &T) -> Option<Value>;
}

/// A whole number from the first to the second.
pub struct Count(pub u32, pub u32);

impl Form<u32> for Count {
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

impl Form<usize> for Count {
    fn read(&self, value: &Value) -> Result<usize, String> {
        Form::<u32>::read(self, value).map(|count| count as usize)
    }

    fn show(&self, value: &usize) -> Option<Value> {
        i64::try_from(*value).ok().map(Value::from)
    }
}

/// A number of bytes, or text such as `"64 MiB"`.
pub struct Bytes;

impl Form<u64> for Bytes {
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

/// Text that is not empty.
pub struct Text;

impl Form<String> for Text {
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

/// A list of texts; in a variable, divided by commas.
pub struct Texts;

impl Form<Vec<String>> for Texts {
    fn read(&self, value: &Value) -> Result<Vec<String>, String> {
        match value {
            Value::Array(items) => items.iter().map(|item| Text.read(item)).collect(),
            // The one form that a variable can have.
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

/// `true` or `false`.
pub struct Flag;

impl Form<bool> for Flag {
    fn read(&self, value: &Value) -> Result<bool, String> {
        let found = match value {
            Value::Boolean(flag) => Some(*flag),
            // The one form that a variable can have.
            Value::String(word) => word.parse().ok(),
            _ => None,
        };
        found.ok_or_else(|| "true or false is expected".to_owned())
    }

    fn show(&self, value: &bool) -> Option<Value> {
        Some((*value).into())
    }
}

/// A list of folders; in a variable, divided by commas.
pub struct Folders;

impl Form<Vec<PathBuf>> for Folders {
    fn read(&self, value: &Value) -> Result<Vec<PathBuf>, String> {
        let texts = Texts.read(value)?.into_iter();
        texts.map(|text| Folder.read(&text.into())).collect()
    }

    fn show(&self, value: &Vec<PathBuf>) -> Option<Value> {
        let folders = value.iter().map(|folder| folder.display().to_string());
        Some(folders.collect::<Vec<_>>().into())
    }
}

/// Where to listen.
pub struct Address;

impl Form<SocketAddr> for Address {
    fn read(&self, value: &Value) -> Result<SocketAddr, String> {
        Text.read(value)?
            .parse()
            .map_err(|_| "an address such as 127.0.0.1:7777 is expected".to_owned())
    }

    fn show(&self, value: &SocketAddr) -> Option<Value> {
        Some(value.to_string().into())
    }
}

/// A file or folder.
pub struct Folder;

impl Form<PathBuf> for Folder {
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

/// `"90s"`, `"10m"`, or a plain number of seconds.
pub struct Span;

impl Form<Duration> for Span {
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

/// A [`Span`] after which something is done again, so more than none.
pub struct Period;

impl Form<Duration> for Period {
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

/// A [`Span`] up to the given one.
pub struct UpTo(pub Duration);

impl Form<Duration> for UpTo {
    fn read(&self, value: &Value) -> Result<Duration, String> {
        let span = Span.read(value)?;
        if span > self.0 {
            let most = humantime::format_duration(self.0);
            return Err(format!("{most} is the most"));
        }
        Ok(span)
    }

    fn show(&self, value: &Duration) -> Option<Value> {
        Span.show(value)
    }
}

/// A [`Span`]; no time at all stands for "never".
pub struct OrNever;

impl Form<Option<Duration>> for OrNever {
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

impl<T, F: Form<T>> Form<Option<T>> for Optional<F> {
    fn read(&self, value: &Value) -> Result<Option<T>, String> {
        self.0.read(value).map(Some)
    }

    fn show(&self, value: &Option<T>) -> Option<Value> {
        self.0.show(value.as_ref()?)
    }
}

/// One word of a list.
pub struct Word<T: 'static> {
    all: &'static [T],
    text: fn(T) -> &'static str,
}

/// How far a session sees.
pub const VISIBILITY: Word<Visibility> = Word {
    all: Visibility::ALL,
    text: Visibility::as_str,
};

/// What becomes of a transcript that is too long.
pub const OVERFLOW: Word<Overflow> = Word {
    all: Overflow::ALL,
    text: Overflow::as_str,
};

/// How files are watched.
pub const FILE_WATCH: Word<FileWatch> = Word {
    all: FileWatch::ALL,
    text: FileWatch::as_str,
};

/// What a provider speaks.
pub const PROVIDER_KIND: Word<ProviderKind> = Word {
    all: ProviderKind::ALL,
    text: ProviderKind::as_str,
};

impl<T: Copy> Form<T> for Word<T> {
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

impl Form<f64> for Amount {
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
