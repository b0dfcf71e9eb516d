//! The Ed25519 key by which a node proves itself, and the proof of the gateway's key.

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::error::NodeError;
use crate::kernel::secret::Secret;

/// The key of this node for one gateway.
pub(super) struct NodeKey(Ed25519KeyPair);

impl NodeKey {
    /// A new key, and its text form for the key file.
    pub(super) fn generate() -> Result<(NodeKey, Secret), NodeError> {
        let random = SystemRandom::new();
        let document = Ed25519KeyPair::generate_pkcs8(&random).map_err(|_| {
            NodeError::Local("the system gave no random bytes for a key".to_owned())
        })?;
        let text = Secret::new(hex(document.as_ref()));
        let key = NodeKey::read(text.expose()).map_err(NodeError::Local)?;
        Ok((key, text))
    }

    /// Reads the text form.
    pub(super) fn read(text: &str) -> Result<NodeKey, String> {
        let bytes = from_hex(text).ok_or("it is not a key in hexadecimal digits")?;
        let pair = Ed25519KeyPair::from_pkcs8(&bytes);
        pair.map(NodeKey)
            .map_err(|_| "it is not an Ed25519 key".to_owned())
    }

    /// The public key, hexadecimal.
    pub(super) fn public(&self) -> String {
        hex(self.0.public_key().as_ref())
    }

    /// The signature of these bytes, hexadecimal.
    pub(super) fn sign(&self, bytes: &[u8]) -> String {
        hex(self.0.sign(bytes).as_ref())
    }
}

/// True if the key, hexadecimal, has made this signature, hexadecimal.
pub(super) fn is_signed(public_key: &str, bytes: &[u8], signature: &str) -> bool {
    let (Some(key), Some(signature)) = (from_hex(public_key), from_hex(signature)) else {
        return false;
    };
    let key = UnparsedPublicKey::new(&ED25519, key);
    key.verify(bytes, &signature).is_ok()
}

/// The form in which people compare keys: `SHA256:` and the first 16 bytes of the digest.
pub fn fingerprint(public_key: &str) -> String {
    let bytes = from_hex(public_key).unwrap_or_default();
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    format!("SHA256:{}", hex(&digest.as_ref()[..16]))
}

/// Random bytes, hexadecimal.
pub(super) fn nonce() -> Result<String, NodeError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|fault| NodeError::Local(format!("the system gave no random bytes: {fault}")))?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;

    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_and_others_do_not() {
        let (key, text) = NodeKey::generate().unwrap();
        let again = NodeKey::read(text.expose()).unwrap();
        assert_eq!(key.public(), again.public());
        let signature = again.sign(b"hello");
        assert!(is_signed(&key.public(), b"hello", &signature));
        assert!(!is_signed(&key.public(), b"hallo", &signature));
        let (other, _) = NodeKey::generate().unwrap();
        assert!(!is_signed(&other.public(), b"hello", &signature));
        assert!(!is_signed("", b"hello", &signature));
        assert!(!is_signed(&key.public(), b"hello", "xx"));
        assert_ne!(fingerprint(&key.public()), fingerprint(&other.public()));
        assert!(NodeKey::read("00").is_err());
        assert!(NodeKey::read("ä").is_err());
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
