//! Signatures of webhooks as Standard Webhooks 1.0 defines them: HMAC-SHA256 over the id, the time
//! and the body of a message. Used for messages that the daemon sends and for those it receives.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{self, HMAC_SHA256};

/// Prefix of a secret in its text form.
const PREFIX: &str = "whsec_";
/// Version of the symmetric signature, before its base64.
const VERSION: &str = "v1,";

/// A secret that signs messages.
#[derive(Clone)]
pub(crate) struct SigningSecret(hmac::Key);

impl SigningSecret {
    /// Reads the text form: `whsec_` and base64. The prefix may be missing, as senders show both
    /// forms. The error never repeats the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let encoded = text.strip_prefix(PREFIX).unwrap_or(text);
        let bytes = STANDARD
            .decode(encoded)
            .map_err(|_| "whsec_ and base64 are expected")?;
        match bytes.is_empty() {
            true => Err("the secret is empty"),
            false => Ok(SigningSecret(hmac::Key::new(HMAC_SHA256, &bytes))),
        }
    }
}

/// The signature of a message for the header `webhook-signature`: `v1,` and base64. `timestamp` is in
/// seconds since 1970, as in `webhook-timestamp`; `body` is what is sent, byte by byte.
pub(crate) fn sign(secret: &SigningSecret, id: &str, timestamp: i64, body: &[u8]) -> String {
    let tag = hmac::sign(&secret.0, &signed(id, timestamp, body));
    format!("{VERSION}{}", STANDARD.encode(tag))
}

/// True if one of the signatures in `header` is right. They are separated by spaces, as a sender has
/// two while it changes its secret. Signatures of other versions are skipped. Comparing takes
/// constant time.
pub(crate) fn verify(
    secret: &SigningSecret,
    id: &str,
    timestamp: i64,
    body: &[u8],
    header: &str,
) -> bool {
    let message = signed(id, timestamp, body);
    header
        .split(' ')
        .filter_map(|one| STANDARD.decode(one.strip_prefix(VERSION)?).ok())
        .any(|tag| hmac::verify(&secret.0, &message, &tag).is_ok())
}

/// What is signed.
fn signed(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let mut message = format!("{id}.{timestamp}.").into_bytes();
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    // Computed with `openssl dgst -sha256 -mac HMAC`.
    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    const SIGNATURE: &str = "v1,YOREwC5BRUvI4ezImQEgEteB7JbPr/Iy2YCZe049/5g=";

    #[test]
    fn a_signature_is_that_of_another_implementation() {
        let secret = SigningSecret::parse(SECRET).unwrap();
        assert_eq!(
            sign(&secret, "msg_1", 1_700_000_000, b"{\"a\":1}"),
            SIGNATURE
        );
        let bare = SigningSecret::parse(&SECRET["whsec_".len()..]).unwrap();
        assert_eq!(sign(&bare, "msg_1", 1_700_000_000, b"{\"a\":1}"), SIGNATURE);
    }

    #[test]
    fn one_right_signature_is_enough_and_each_part_is_signed() {
        let secret = SigningSecret::parse(SECRET).unwrap();
        let is_right =
            |id, timestamp, body: &[u8], header: &str| verify(&secret, id, timestamp, body, header);
        let other = SigningSecret::parse("whsec_b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA==").unwrap();
        let foreign = sign(&other, "msg_1", 1_700_000_000, b"{\"a\":1}");
        let both = format!("v1a,{} {foreign} {SIGNATURE}", &SIGNATURE["v1,".len()..]);
        assert!(is_right("msg_1", 1_700_000_000, b"{\"a\":1}", &both));
        assert!(!is_right("msg_2", 1_700_000_000, b"{\"a\":1}", SIGNATURE));
        assert!(!is_right("msg_1", 1_700_000_001, b"{\"a\":1}", SIGNATURE));
        assert!(!is_right("msg_1", 1_700_000_000, b"{\"a\":2}", SIGNATURE));
        for wrong in ["", "v1,", "v1", &foreign, &SIGNATURE[3..], "v1,AAAA"] {
            assert!(
                !is_right("msg_1", 1_700_000_000, b"{\"a\":1}", wrong),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_secret_that_signs_nothing_is_refused() {
        for wrong in ["", "whsec_", "whsec_not base64", "whsec_AAEC=="] {
            assert!(SigningSecret::parse(wrong).is_err(), "{wrong}");
        }
    }
}
