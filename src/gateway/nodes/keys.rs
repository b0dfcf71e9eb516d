//! Keys of gateway and nodes, tokens of nodes, and the codes that people type.

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::kernel::fault::Fault;
use crate::wire::node_link::{from_hex, to_hex};

/// The letters of codes: none looks like another one.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Number of letters of the code of a waiting node: 40 bits. It is valid for minutes, and only an
/// operator can use it.
const SHORT: usize = 8;
/// Number of letters of a setup code: 80 bits, since anyone who reaches the gateway can try one.
const LONG: usize = 16;
/// What every token of a node begins with.
const TOKEN: &str = "abide_node_";

/// The gateway's own key, by which nodes recognize it.
pub struct GatewayKey {
    pair: Ed25519KeyPair,
    public: String,
}

impl GatewayKey {
    /// The key with this seed, 32 secret bytes in hexadecimal.
    pub fn from_seed(seed: &str) -> Result<Self, Fault> {
        let seed = from_hex(seed).unwrap_or_default();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|fault| Fault::internal(format!("not the seed of a key: {fault}")))?;
        let public = to_hex(pair.public_key().as_ref());
        Ok(GatewayKey { pair, public })
    }

    /// The public key, hexadecimal.
    pub(super) fn public(&self) -> &str {
        &self.public
    }

    /// The signature of these bytes, hexadecimal.
    pub(super) fn sign(&self, bytes: &[u8]) -> String {
        to_hex(self.pair.sign(bytes).as_ref())
    }
}

/// True if `signature` is that of `bytes` by the owner of this public key.
pub(super) fn is_signed(public_key: &str, bytes: &[u8], signature: &str) -> bool {
    let (Some(key), Some(signature)) = (from_hex(public_key), from_hex(signature)) else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, key)
        .verify(bytes, &signature)
        .is_ok()
}

/// True for the text of an Ed25519 public key in its one form, lower-case hexadecimal.
pub(super) fn is_public_key(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// 32 random bytes, hexadecimal.
pub(super) fn nonce() -> Result<String, Fault> {
    random::<32>().map(|bytes| to_hex(&bytes))
}

/// A new token of a node.
pub(super) fn token() -> Result<String, Fault> {
    nonce().map(|secret| format!("{TOKEN}{secret}"))
}

/// The hash by which a token or a setup code is stored. Both are random and long enough that a fast
/// hash gives nothing away.
pub(super) fn hash(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

/// The code of a waiting node: `ABCD-2345`.
pub(super) fn short_code() -> Result<String, Fault> {
    random::<SHORT>().map(|bytes| code(&bytes))
}

/// A setup code: `ABCD-2345-EFGH-6789`.
pub(super) fn setup_code() -> Result<String, Fault> {
    random::<LONG>().map(|bytes| code(&bytes))
}

/// A code as a person may type it, in its one form; `None` if it cannot be one.
pub(super) fn typed_code(text: &str) -> Option<String> {
    let letters = text.bytes().filter(|byte| !matches!(byte, b'-' | b' '));
    let letters: Vec<u8> = letters.map(|byte| byte.to_ascii_uppercase()).collect();
    let is_code = matches!(letters.len(), SHORT | LONG)
        && letters.iter().all(|letter| LETTERS.contains(letter));
    is_code.then(|| grouped(&letters))
}

fn code(random: &[u8]) -> String {
    let letters = random.iter().map(|byte| LETTERS[usize::from(byte % 32)]);
    grouped(&letters.collect::<Vec<u8>>())
}

fn grouped(letters: &[u8]) -> String {
    let groups: Vec<String> = letters
        .chunks(4)
        .map(|group| group.iter().copied().map(char::from).collect())
        .collect();
    groups.join("-")
}

fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Fault::internal("the system gave no random bytes"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_and_one_text() {
        let key = GatewayKey::from_seed(&nonce().unwrap()).unwrap();
        let other = GatewayKey::from_seed(&nonce().unwrap()).unwrap();
        let signature = key.sign(b"text");
        assert!(is_public_key(key.public()));
        assert!(is_signed(key.public(), b"text", &signature));
        assert!(!is_signed(key.public(), b"texts", &signature));
        assert!(!is_signed(other.public(), b"text", &signature));
        for broken in ["", "00", "zz", &"0".repeat(128)] {
            assert!(!is_signed(key.public(), b"text", broken));
            assert!(!is_signed(broken, b"text", &signature));
        }
        assert!(GatewayKey::from_seed("00").is_err());
    }

    #[test]
    fn a_code_is_recognized_as_people_type_it() {
        let code = short_code().unwrap();
        assert_eq!(code.len(), 9);
        for typed in [code.clone(), code.to_lowercase(), code.replace('-', " ")] {
            assert_eq!(typed_code(&typed), Some(code.clone()));
        }
        let long = setup_code().unwrap();
        assert_eq!(typed_code(&format!(" {long} ")), Some(long.clone()));
        for none in ["", "ABCD", "ABCD-234I", "ABCD-23450", "ABCD-234é"] {
            assert_eq!(typed_code(none), None, "{none}");
        }
        assert_ne!(setup_code().unwrap(), long);
    }
}
