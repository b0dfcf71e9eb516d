//! Whether the sender of a delivery has the secret. Every comparison takes constant time.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::hmac::{self, HMAC_SHA256};

use super::Delivery;
use crate::config::HookCheck;
use crate::doors::signature::{self, SigningSecret};
use crate::kernel::time::Timestamp;

/// GitHub's signature: `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits.
const GITHUB_SIGNATURE: &str = "x-hub-signature-256";
/// How far the time of a signature may be from the present, in seconds, as Standard Webhooks
/// recommends it.
const TOLERANCE_S: i64 = 5 * 60;

/// True if the delivery is signed with the secret, or carries it, as `check` requires.
pub(super) fn is_genuine(
    check: HookCheck,
    secret: &str,
    delivery: &Delivery<'_>,
    now: Timestamp,
) -> bool {
    let checked = match check {
        HookCheck::Github => by_github(secret, delivery),
        HookCheck::Standard => by_standard(secret, delivery, now),
        HookCheck::Bearer => by_bearer(secret, delivery.headers),
    };
    checked.unwrap_or(false)
}

fn by_github(secret: &str, delivery: &Delivery<'_>) -> Option<bool> {
    let shown = text(delivery.headers, GITHUB_SIGNATURE)?.strip_prefix("sha256=")?;
    let tag = from_hex(shown)?;
    let key = hmac::Key::new(HMAC_SHA256, secret.as_bytes());
    Some(hmac::verify(&key, delivery.body, &tag).is_ok())
}

fn by_standard(secret: &str, delivery: &Delivery<'_>, now: Timestamp) -> Option<bool> {
    let header = |name| text(delivery.headers, name);
    let secret = SigningSecret::parse(secret).ok()?;
    let (id, shown) = (header("webhook-id")?, header("webhook-signature")?);
    let timestamp = header("webhook-timestamp")?.parse::<i64>().ok()?;
    let is_recent = timestamp.abs_diff(now.0.div_euclid(1000)) <= TOLERANCE_S.unsigned_abs();
    let is_signed = signature::verify(&secret, id, timestamp, delivery.body, shown);
    Some(is_recent && is_signed)
}

fn by_bearer(secret: &str, headers: &HeaderMap) -> Option<bool> {
    let (scheme, shown) = text(headers, AUTHORIZATION.as_str())?.split_once(' ')?;
    // Digests have one length, and comparing them takes constant time.
    let is_secret = blake3::hash(shown.trim().as_bytes()) == blake3::hash(secret.as_bytes());
    Some(is_secret && scheme.eq_ignore_ascii_case("bearer"))
}

/// The only value of a header. Several are refused: it would depend on the reader which one counts.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let value = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some((value(*high)? << 4) | value(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SECRET: &str = "It's a Secret to Everybody";
    /// The example of GitHub's documentation of webhooks.
    const SIGNATURE: &str =
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn is_genuine_with(check: HookCheck, secret: &str, headers: &[(&str, &str)]) -> bool {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name: http::HeaderName = name.parse().unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            })
            .fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
        let delivery = Delivery {
            headers: &headers,
            body: b"Hello, World!",
        };
        is_genuine(check, secret, &delivery, Timestamp(1_700_000_000_000))
    }

    #[test]
    fn a_signature_of_github_covers_the_body() {
        let is_right = |headers: &[_]| is_genuine_with(HookCheck::Github, SECRET, headers);
        assert!(is_right(&[(GITHUB_SIGNATURE, SIGNATURE)]));
        let capitals = SIGNATURE.to_uppercase().replace("SHA", "sha");
        assert!(is_right(&[(GITHUB_SIGNATURE, &capitals)]));
        let mut other = SIGNATURE.to_owned();
        other.replace_range(10..11, "8");
        for wrong in [
            &other,
            &SIGNATURE[7..],
            &SIGNATURE[..SIGNATURE.len() - 1],
            &SIGNATURE[..SIGNATURE.len() - 2],
            "sha256=",
            "sha256=zz",
            "",
        ] {
            assert!(!is_right(&[(GITHUB_SIGNATURE, wrong)]), "{wrong}");
        }
        assert!(!is_right(&[]));
        let twice = [(GITHUB_SIGNATURE, SIGNATURE), (GITHUB_SIGNATURE, SIGNATURE)];
        assert!(!is_right(&twice), "an ambiguous header");
        assert!(!is_right(&[("x-hub-signature", SIGNATURE)]));
    }

    #[test]
    fn a_bearer_token_is_compared_whole() {
        let is_right = |value: &str| {
            is_genuine_with(
                HookCheck::Bearer,
                "0123456789abcdef",
                &[("authorization", value)],
            )
        };
        assert!(is_right("Bearer 0123456789abcdef") && is_right("bearer  0123456789abcdef "));
        for wrong in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdefg",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            assert!(!is_right(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_signature_with_a_time_is_right_for_five_minutes() {
        let text = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let secret = SigningSecret::parse(text).unwrap();
        let is_right = |timestamp: i64| {
            let shown = signature::sign(&secret, "msg_1", timestamp, b"Hello, World!");
            let timestamp = timestamp.to_string();
            let headers = [
                ("webhook-id", "msg_1"),
                ("webhook-timestamp", &timestamp),
                ("webhook-signature", &shown),
            ];
            is_genuine_with(HookCheck::Standard, text, &headers)
        };
        for age in [0, 300, -300] {
            assert!(is_right(1_700_000_000 - age), "{age}");
        }
        for age in [301, -301, 1_700_000_000, i64::MAX, -1_700_000_000_000] {
            assert!(!is_right(1_700_000_000_i64.saturating_sub(age)), "{age}");
        }
        assert!(!is_genuine_with(
            HookCheck::Standard,
            text,
            &[("webhook-id", "msg_1")]
        ));
    }
}
