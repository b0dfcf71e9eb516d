//! Output of kept programs is sealed on disk, since a program may print a secret of its run: only
//! the daemon's key, which is stored beside the store, opens it.
//!
//! A file of output is a sequence of frames: the length of the rest of the frame, four bytes, and
//! the sealed bytes. Each program has its own key, and each frame its number as its nonce.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

use crate::kernel::ids::StepId;

/// The key derivation context; another context gives another key.
const PURPOSE: &str = "abide 2026 output of one kept program";
/// Bytes of the length before each frame.
const LENGTH: usize = 4;
/// The maximum length of a frame; a longer one is no frame.
const LONGEST: usize = 1 << 20;

/// The key for the output of one program. It has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct OutputKey([u8; 32]);

impl OutputKey {
    /// The key for a program of this step. `salt` is unique to its keeper, so no two programs share
    /// a key.
    pub(super) fn derive(master: &[u8; 32], step: StepId, salt: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(PURPOSE);
        hasher.update(master);
        hasher.update(step.0.as_bytes());
        hasher.update(salt.as_bytes());
        OutputKey(*hasher.finalize().as_bytes())
    }

    /// The frames of a stream, from its first: 0 for standard output, 1 for standard error.
    pub(super) fn frames(&self, stream: u8) -> Option<Frames> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok()?;
        Some(Frames {
            key: LessSafeKey::new(key),
            stream,
            next: 0,
        })
    }
}

/// Seals or opens the frames of a stream in their order.
pub(super) struct Frames {
    key: LessSafeKey,
    stream: u8,
    next: u64,
}

impl Frames {
    /// The nonce of the next frame.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[0] = self.stream;
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends the frame of `bytes`, which are fewer than [`LONGEST`], to `frames`.
    pub(super) fn seal(&mut self, bytes: &[u8], frames: &mut Vec<u8>) {
        let mut sealed = bytes.to_vec();
        let nonce = self.nonce();
        let done = self
            .key
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed);
        // It fails only for more bytes than a frame has.
        if let (Ok(()), Ok(length)) = (done, u32::try_from(sealed.len())) {
            frames.extend_from_slice(&length.to_le_bytes());
            frames.append(&mut sealed);
        }
    }

    /// Takes the whole frames out of `frames`, and appends what they contain to `text`. The error
    /// says that one cannot be opened with this key; those before it are in `text`.
    pub(super) fn open_all(
        &mut self,
        frames: &mut Vec<u8>,
        text: &mut Vec<u8>,
    ) -> Result<(), Unopened> {
        while let Some(opened) = self.open(frames)? {
            text.extend_from_slice(&opened);
        }
        Ok(())
    }

    /// Takes the first whole frame out of `frames` and opens it; `None` if there is none yet. The
    /// error says that it cannot be opened with this key.
    fn open(&mut self, frames: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Unopened> {
        let Some((length, rest)) = frames.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if !(MAX_TAG_LEN..=LONGEST).contains(&length) {
            return Err(Unopened);
        }
        let Some(sealed) = rest.get(..length) else {
            return Ok(None);
        };
        let mut sealed = sealed.to_vec();
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::empty(), &mut sealed);
        let length_of_text = opened.map_err(|_| Unopened)?.len();
        sealed.truncate(length_of_text);
        frames.drain(..LENGTH + length);
        Ok(Some(sealed))
    }
}

/// A frame cannot be opened: it was sealed with another key, or changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unopened;

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn key(master: u8, salt: &str) -> OutputKey {
        OutputKey::derive(&[master; 32], StepId(Uuid::from_u128(1)), salt)
    }

    #[test]
    fn frames_open_in_their_order_with_their_key_as_soon_as_they_are_whole() {
        let mut sealed = Vec::new();
        let mut frames = key(7, "a").frames(0).unwrap();
        frames.seal(b"canary one", &mut sealed);
        let first = sealed.len();
        frames.seal(b"two", &mut sealed);
        assert!(!String::from_utf8_lossy(&sealed).contains("canary"));

        let mut opened = key(7, "a").frames(0).unwrap();
        let mut read = Vec::new();
        let mut texts = Vec::new();
        for byte in &sealed {
            read.push(*byte);
            texts.extend(opened.open(&mut read).unwrap());
        }
        assert_eq!(texts, [b"canary one".to_vec(), b"two".to_vec()]);
        assert_eq!(read, [0; 0]);

        for mut other in [
            key(8, "a").frames(0),
            key(7, "b").frames(0),
            key(7, "a").frames(1),
        ]
        .map(Option::unwrap)
        {
            assert_eq!(other.open(&mut sealed.clone()), Err(Unopened));
        }
        // The second frame alone is out of order.
        let mut late = key(7, "a").frames(0).unwrap();
        assert_eq!(late.open(&mut sealed[first..].to_vec()), Err(Unopened));
        let mut no_frame = vec![0xff; 9];
        assert_eq!(late.open(&mut no_frame), Err(Unopened));
    }
}
