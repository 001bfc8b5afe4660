//! Keys and seals: AES-256-GCM over every block and every footer.
//!
//! - The owner gives a key per epoch. A chunk's own key is derived from it (HKDF-SHA256) and from
//!   the chunk's random salt; a nonce is the number of the block. A chunk is written once, from
//!   front to back, and an attempt that fails is thrown away with its salt, so no nonce is ever
//!   used twice under one key. There is nothing to reserve and nothing to remember.
//! - What a seal is bound to: tenant, partition, chunk, and the header of the block with its
//!   number and offsets. A block that was moved, swapped or taken from another log does not open.
//! - The footer holds the tag of every block. Whoever knows the footer's digest knows the chunk.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt as HkdfSalt};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use crate::block::Identity;
use crate::error::{Error, Result};

pub(crate) const TAG_BYTES: usize = 16;
pub(crate) const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// The nonce of a footer; no chunk has so many blocks.
pub(crate) const FOOTER_NUMBER: u32 = u32::MAX;
const LABEL: &[u8] = b"quantumqtt records chunk 1";

pub(crate) type Tag = [u8; TAG_BYTES];

/// The keys of a partition, by epoch. New chunks are sealed under the newest.
#[derive(Clone)]
pub struct Keys {
    /// Rising epochs; never empty.
    epochs: Arc<[(u32, [u8; KEY_BYTES])]>,
    salts: Salts,
}

/// Where salts come from.
#[derive(Clone)]
enum Salts {
    System,
    /// The same for every chunk; golden files need it, nothing else may.
    Fixed([u8; SALT_BYTES]),
}

impl Keys {
    /// One key, of this epoch.
    pub fn new(epoch: u32, key: [u8; KEY_BYTES]) -> Self {
        Self { epochs: Arc::new([(epoch, key)]), salts: Salts::System }
    }

    /// The same with one more epoch, which may be older or newer.
    #[must_use]
    pub fn with(&self, epoch: u32, key: [u8; KEY_BYTES]) -> Self {
        let mut epochs: Vec<_> =
            self.epochs.iter().copied().filter(|(known, _)| *known != epoch).collect();
        epochs.push((epoch, key));
        epochs.sort_unstable_by_key(|(epoch, _)| *epoch);
        Self { epochs: epochs.into(), salts: self.salts.clone() }
    }

    /// The same with a salt that never changes: for golden files only, since two chunks under one
    /// salt would share their nonces.
    #[doc(hidden)]
    #[must_use]
    pub fn with_fixed_salt(&self, salt: [u8; SALT_BYTES]) -> Self {
        Self { epochs: self.epochs.clone(), salts: Salts::Fixed(salt) }
    }

    pub(crate) fn newest_epoch(&self) -> u32 {
        self.epochs.last().map_or(0, |(epoch, _)| *epoch)
    }

    pub(crate) fn new_salt(&self) -> Result<[u8; SALT_BYTES]> {
        let mut salt = [0; SALT_BYTES];
        match &self.salts {
            Salts::System => {
                SystemRandom::new().fill(&mut salt).map_err(|_| Error::NoRandomness)?;
            }
            Salts::Fixed(fixed) => salt = *fixed,
        }
        Ok(salt)
    }

    /// The seal of one chunk.
    pub(crate) fn seal(
        &self,
        identity: &Identity,
        chunk: u64,
        epoch: u32,
        salt: &[u8; SALT_BYTES],
    ) -> Result<ChunkSeal> {
        let found = self.epochs.iter().find(|(known, _)| *known == epoch);
        let (_, key) = found.ok_or(Error::UnknownKey { epoch })?;
        let derived = HkdfSalt::new(HKDF_SHA256, salt).extract(key);
        let unbound = derived
            .expand(&[LABEL], &AES_256_GCM)
            .map(UnboundKey::from)
            .expect("a key of 32 bytes is within what HKDF can give");
        let tenant = identity.tenant.as_bytes();
        let mut bound = Vec::with_capacity(tenant.len() + 16);
        bound.extend((tenant.len() as u32).to_le_bytes());
        bound.extend(tenant);
        bound.extend(identity.partition.to_le_bytes());
        bound.extend(chunk.to_le_bytes());
        Ok(ChunkSeal { key: LessSafeKey::new(unbound), bound })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epochs: Vec<u32> = self.epochs.iter().map(|(epoch, _)| *epoch).collect();
        formatter.debug_struct("Keys").field("epochs", &epochs).finish_non_exhaustive()
    }
}

/// The key of one chunk and what its seals are bound to.
pub(crate) struct ChunkSeal {
    key: LessSafeKey,
    bound: Vec<u8>,
}

impl ChunkSeal {
    /// Encrypts `body` where it lies.
    pub(crate) fn seal(&self, number: u32, header: &[u8], body: &mut [u8]) -> Tag {
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(number), self.aad(header), body)
            .expect("no body is as long as what AES-GCM refuses");
        tag.as_ref().try_into().expect("a tag has 16 bytes")
    }

    /// Decrypts `body` where it lies; the tag stands behind it. False if anything was changed.
    pub(crate) fn open(&self, number: u32, header: &[u8], body_and_tag: &mut [u8]) -> bool {
        self.key.open_in_place(nonce(number), self.aad(header), body_and_tag).is_ok()
    }

    fn aad(&self, header: &[u8]) -> Aad<Vec<u8>> {
        Aad::from([&self.bound, header].concat())
    }
}

impl fmt::Debug for ChunkSeal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChunkSeal").finish_non_exhaustive()
    }
}

fn nonce(number: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
