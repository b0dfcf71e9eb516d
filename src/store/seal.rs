//! Encrypts the environment values of runs and the MCP servers of sessions, so that they cannot be
//! read from the store or a copy of it without the key. The registry seals before it submits, and opens before a process is
//! started; the key is stored beside the store, not in it.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use uuid::Uuid;

use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::secret::Secret;

/// The key derivation context; another context gives another key.
const PURPOSE: &str = "abide 2026 environment of a run: one value";
/// The same for an MCP server of a session.
const SERVER: &str = "abide 2026 MCP server of a session";
/// The same for digests of such servers.
const SERVER_DIGEST: &str = "abide 2026 digest of an MCP server of a session";

/// Seals and opens values with one key.
#[derive(Clone)]
pub struct Seal([u8; 32]);

impl Seal {
    /// A seal with this key.
    pub fn new(key: [u8; 32]) -> Self {
        Seal(key)
    }

    /// A key for another purpose, which names it uniquely; this key cannot be derived from it.
    pub fn key_for(&self, purpose: &'static str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.0)
    }

    /// Encrypts the value of `name` of a run: a fresh nonce, then the ciphertext, which opens only
    /// with this key, for that name of that run.
    pub fn close(&self, run: RunId, name: &str, value: &Secret) -> Result<Vec<u8>, Fault> {
        close(self.key(PURPOSE, run.0, name)?, value)
    }

    /// Decrypts a value; `None` if key, run or name differ from those it was sealed with.
    pub fn open(&self, run: RunId, name: &str, sealed: &[u8]) -> Option<Secret> {
        open(self.key(PURPOSE, run.0, name).ok()?, sealed)
    }

    /// Encrypts the server `name` of a session, like [`Seal::close`].
    pub fn close_server(
        &self,
        session: SessionId,
        name: &str,
        server: &Secret,
    ) -> Result<Vec<u8>, Fault> {
        close(self.key(SERVER, session.0, name)?, server)
    }

    /// Decrypts the server `name` of a session, like [`Seal::open`].
    pub fn open_server(&self, session: SessionId, name: &str, sealed: &[u8]) -> Option<Secret> {
        open(self.key(SERVER, session.0, name).ok()?, sealed)
    }

    /// A digest of a server of a session, which can be computed only with this key.
    pub fn server_digest(&self, server: &Secret) -> String {
        let key = self.key_for(SERVER_DIGEST);
        let digest = blake3::keyed_hash(&key, server.expose().as_bytes());
        digest.to_hex().to_string()
    }

    /// Derives the key for this one value. No two values share a key, so random nonces suffice.
    fn key(&self, purpose: &str, owner: Uuid, name: &str) -> Result<LessSafeKey, Fault> {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0);
        hasher.update(owner.as_bytes());
        hasher.update(name.as_bytes());
        let key = UnboundKey::new(&CHACHA20_POLY1305, hasher.finalize().as_bytes());
        let key = key.map_err(|_| Fault::internal("a key could not be derived"))?;
        Ok(LessSafeKey::new(key))
    }
}

fn close(key: LessSafeKey, value: &Secret) -> Result<Vec<u8>, Fault> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(Fault::internal)?;
    let mut sealed = value.expose().as_bytes().to_vec();
    key.seal_in_place_append_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::empty(),
        &mut sealed,
    )
    .map_err(|_| Fault::internal("a value could not be sealed"))?;
    Ok([nonce.as_slice(), &sealed].concat())
}

fn open(key: LessSafeKey, sealed: &[u8]) -> Option<Secret> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut opened = sealed.to_vec();
    let text = key.open_in_place(nonce, Aad::empty(), &mut opened).ok()?;
    String::from_utf8(text.to_vec()).ok().map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_value_opens_for_its_run_its_name_and_its_key_and_for_nothing_else() {
        let (run, other) = (RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2)));
        let seal = Seal::new([7; 32]);
        let value = Secret::new("canary ä");
        let sealed = seal.close(run, "A", &value).unwrap();
        let readable = String::from_utf8_lossy(&sealed).contains("canary");
        assert!(!readable);
        assert_ne!(sealed, seal.close(run, "A", &value).unwrap());
        assert_eq!(seal.open(run, "A", &sealed), Some(value.clone()));
        assert_eq!(seal.open(other, "A", &sealed), None);
        assert_eq!(seal.open(run, "B", &sealed), None);
        assert_eq!(Seal::new([8; 32]).open(run, "A", &sealed), None);
        // What is sealed for a session opens for that session and name alone.
        let (session, foreign) = (SessionId(Uuid::from_u128(1)), SessionId(Uuid::from_u128(2)));
        let server = seal.close_server(session, "A", &value).unwrap();
        assert_eq!(seal.open_server(session, "A", &server), Some(value.clone()));
        assert_eq!(seal.open_server(foreign, "A", &server), None);
        assert_eq!(seal.open_server(session, "B", &server), None);
        assert_eq!(seal.open(run, "A", &server), None);
        assert_ne!(
            seal.server_digest(&value),
            Seal::new([8; 32]).server_digest(&value)
        );
        for cut in [0, NONCE_LEN, sealed.len() - 1] {
            assert_eq!(seal.open(run, "A", &sealed[..cut]), None);
        }
        let mut bent = sealed.clone();
        bent[NONCE_LEN] ^= 1;
        assert_eq!(seal.open(run, "A", &bent), None);
    }
}
