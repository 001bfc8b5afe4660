//! Keys derived from an epoch's key, and what is done with them.
//!
//! - A record key belongs to one segment: HKDF over the epoch's key, salted with the segment's
//!   random salt, bound to its sequence number. The nonce is the record's counter in the segment.
//!   Since nobody ever appends to a recovered segment, a pair of key and nonce never comes twice.
//! - The integrity key of an epoch authenticates headers and trailers.
//! - A checkpoint has a salt, and thereby a key, of its own; the nonce is the chunk's number.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::hmac;

use crate::error::JournalError;
use crate::keys::{KeyProvider, Secret};

/// Bytes of a salt.
pub(crate) const SALT_BYTES: usize = 16;
/// Bytes of an AEAD tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of a MAC.
pub(crate) const MAC_BYTES: usize = 32;
/// Bytes of the public name of a key.
pub(crate) const KEY_ID_BYTES: usize = 8;

struct Length32;

impl KeyType for Length32 {
    fn len(&self) -> usize {
        32
    }
}

pub(crate) fn derive(salt: &[u8], secret: &Secret, about: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; 32];
    Salt::new(HKDF_SHA256, salt)
        .extract(secret.bytes())
        .expand(about, Length32)
        .and_then(|okm| okm.fill(&mut key))
        .expect("32 bytes are within what HKDF gives");
    key
}

/// The keys of one epoch.
pub(crate) struct EpochKeys {
    pub(crate) epoch: u32,
    secret: Secret,
    integrity: hmac::Key,
    pub(crate) id: [u8; KEY_ID_BYTES],
}

impl EpochKeys {
    pub(crate) fn load(provider: &dyn KeyProvider, epoch: u32) -> Result<Self, JournalError> {
        let secret = provider.epoch_key(epoch).map_err(|why| JournalError::Key(why.into()))?;
        let key = derive(b"quantumqtt/integrity", &secret, &[b"log", &epoch.to_le_bytes()]);
        let integrity = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&hmac::sign(&integrity, b"key id").as_ref()[..KEY_ID_BYTES]);
        Ok(Self { epoch, secret, integrity, id })
    }

    /// Starts a running MAC.
    pub(crate) fn mac(&self) -> hmac::Context {
        hmac::Context::with_key(&self.integrity)
    }

    /// The MAC of some bytes at once.
    pub(crate) fn mac_of(&self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        finish_mac(hmac::Context::with_key(&self.integrity), bytes)
    }

    /// The key of the records of one segment.
    pub(crate) fn segment(&self, salt: &[u8; SALT_BYTES], sequence: u64, domain: u32) -> Sealer {
        let about: [&[u8]; 3] = [b"record", &sequence.to_le_bytes(), &domain.to_le_bytes()];
        Sealer::new(&derive(salt, &self.secret, &about))
    }

    /// The key of the chunks of one checkpoint.
    pub(crate) fn checkpoint(&self, salt: &[u8; SALT_BYTES], group: u64, index: u64) -> Sealer {
        let about: [&[u8]; 3] = [b"chunk", &group.to_le_bytes(), &index.to_le_bytes()];
        Sealer::new(&derive(salt, &self.secret, &about))
    }
}

pub(crate) fn finish_mac(mut running: hmac::Context, last: &[u8]) -> [u8; MAC_BYTES] {
    running.update(last);
    let mut mac = [0; MAC_BYTES];
    mac.copy_from_slice(running.sign().as_ref());
    mac
}

/// Whether two MACs are the same, in constant time.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Seals and opens under one key; the counter is the nonce.
pub(crate) struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the cipher's length");
        Self { key: LessSafeKey::new(key) }
    }

    /// Encrypts in place and returns the tag.
    pub(crate) fn seal(&self, counter: u32, about: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce(counter), Aad::from(about), bytes)
            .expect("a record is far below the cipher's bound");
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(sealed.as_ref());
        tag
    }

    /// Decrypts in place; false when it is not authentic, and then the bytes mean nothing.
    #[must_use]
    pub(crate) fn open(&self, counter: u32, about: &[u8], sealed: &mut [u8]) -> bool {
        self.key.open_in_place(nonce(counter), Aad::from(about), sealed).is_ok()
    }
}

fn nonce(counter: u32) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}
