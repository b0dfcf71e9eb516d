//! The SHA-256 fingerprint of a certificate, by which people compare and programs pin it.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// SHA-256 of a certificate in DER form. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// The text is not a SHA-256 fingerprint.
#[derive(Debug, thiserror::Error)]
#[error("a SHA-256 fingerprint of 64 hexadecimal digits is expected, with or without colons")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// The fingerprint of the certificate `der`.
    pub fn of(der: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, der).as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    /// Takes this type's own text, and what `openssl x509 -fingerprint -sha256` prints.
    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let text = text.trim();
        let digits = match text.rsplit_once('=') {
            Some((name, digits)) if name.eq_ignore_ascii_case("sha256 fingerprint") => digits,
            Some(_) => return Err(NotAFingerprint),
            None => text,
        };
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(NotAFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
            let value = high.zip(low).map(|(high, low)| high * 16 + low);
            *byte = value
                .and_then(|value| u8::try_from(value).ok())
                .ok_or(NotAFingerprint)?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_forms_of_a_fingerprint_are_read_and_nothing_else() {
        let print = Fingerprint::of(b"abc");
        let text = print.to_string();
        // The value that the standard gives as an example.
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let pairs: Vec<String> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
            .collect();
        let openssl = format!("sha256 Fingerprint={}\n", pairs.join(":"));
        for form in [&text, &text.to_uppercase(), &openssl, &format!(" {text} ")] {
            assert_eq!(form.parse::<Fingerprint>().unwrap(), print, "{form}");
        }
        let json = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
        for bad in [
            "",
            "ab",
            &text[1..],
            &format!("{text}0"),
            &format!("x{}", &text[1..]),
            &format!("SHA1 Fingerprint={text}"),
            &"ä".repeat(32),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
