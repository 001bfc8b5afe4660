//! Where keys come from: an interface a key service will implement, and a local file.
//!
//! The journal asks for one key per epoch and derives everything else from it; keys live in memory
//! that is wiped when dropped, and appear in no error and no log line.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a key file is read before there is a disk to speak of"
)]

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zeroize::{Zeroize, Zeroizing};

use crate::crypto::derive;

/// Bytes of a secret.
pub(crate) const SECRET_BYTES: usize = 32;

/// A secret that wipes itself.
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// Takes over a secret.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// A key for something else than the log, which tells nothing of this secret.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        derive(b"quantumqtt/derived", self, &[purpose.as_bytes()])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Why a key could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No key of that epoch.
    #[error("there is no key of epoch {epoch}")]
    UnknownEpoch {
        /// Which.
        epoch: u32,
    },
    /// The file can be read by others.
    #[error("{path} has mode {mode:o}; the key file must have mode 600 and belong to this user")]
    Loose {
        /// Where.
        path: String,
        /// What it has.
        mode: u32,
    },
    /// The file is a link or no plain file.
    #[error("{path} is no plain file")]
    NotPlain {
        /// Where.
        path: String,
    },
    /// The file is not a key file of ours.
    #[error("{path} is no key file: {reason}")]
    Malformed {
        /// Where.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file could not be read or made.
    #[error("{what} {path} failed")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A key service refused or cannot be reached.
    #[error("the key service said: {0}")]
    Service(String),
}

/// Hands out the keys of the log.
pub trait KeyProvider: Send + Sync {
    /// The epoch new segments use.
    fn current_epoch(&self) -> u32;

    /// The key of an epoch; old epochs stay available while segments need them.
    fn epoch_key(&self, epoch: u32) -> Result<Secret, KeyError>;

    /// The seed of the key that signs this node's checkpoints.
    fn signing_seed(&self) -> Result<Secret, KeyError>;
}

/// Where salts come from; the simulator gives its own, from the seed.
pub trait Entropy: Send + Sync {
    /// Fills the bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        aws_lc_rs::rand::fill(bytes).expect("the system has a random generator");
    }
}

/// Keys from memory: for tests and the simulator, where nothing secret exists.
#[derive(Debug)]
pub struct FixedKeys {
    seed: [u8; SECRET_BYTES],
}

impl FixedKeys {
    /// Every key is derived from the seed.
    pub fn new(seed: [u8; SECRET_BYTES]) -> Self {
        Self { seed }
    }
}

impl KeyProvider for FixedKeys {
    fn current_epoch(&self) -> u32 {
        1
    }

    fn epoch_key(&self, epoch: u32) -> Result<Secret, KeyError> {
        let mut key = self.seed;
        for (byte, mixed) in key.iter_mut().zip(epoch.to_le_bytes()) {
            *byte ^= mixed;
        }
        Ok(Secret::new(key))
    }

    fn signing_seed(&self) -> Result<Secret, KeyError> {
        let mut key = self.seed;
        key.reverse();
        Ok(Secret::new(key))
    }
}

const MAGIC: &[u8; 8] = b"QMQKEY\x00\x01";
const FILE_BYTES: usize = 8 + 2 * SECRET_BYTES + 4;

/// One key file on this machine, made on the first start.
///
/// It holds the key of epoch 1 and the seed of the signing key. The file must be plain, belong to
/// this user and be readable by nobody else; a looser one is refused instead of repaired, since
/// whoever could read it may have done so.
pub struct LocalKeyFile {
    path: PathBuf,
    key: Secret,
    seed: Secret,
}

impl fmt::Debug for LocalKeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKeyFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl LocalKeyFile {
    /// Reads the key file, or makes one if there is none.
    pub fn open_or_create(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        match Self::open(path.clone()) {
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create_file(&path)?;
                Self::open(path)
            }
            other => other,
        }
    }

    /// Reads an existing key file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        let shown = path.display().to_string();
        let failed = |source| KeyError::Io { what: "reading", path: shown.clone(), source };
        // The link itself is looked at first: following it would judge somebody else's file.
        if std::fs::symlink_metadata(&path).map_err(failed)?.file_type().is_symlink() {
            return Err(KeyError::NotPlain { path: shown });
        }
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags((rustix::fs::OFlags::NOFOLLOW.bits()).cast_signed())
            .open(&path)
            .map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(KeyError::NotPlain { path: shown });
        }
        let user = rustix::process::geteuid().as_raw();
        if found.mode() & 0o177 != 0 || (found.uid() != user && user != 0) {
            return Err(KeyError::Loose { path: shown, mode: found.mode() & 0o7777 });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES + 1));
        Read::take(&mut file, FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        let (key, seed) =
            decode(&bytes).map_err(|reason| KeyError::Malformed { path: shown.clone(), reason })?;
        Ok(Self { path, key, seed })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl KeyProvider for LocalKeyFile {
    fn current_epoch(&self) -> u32 {
        1
    }

    fn epoch_key(&self, epoch: u32) -> Result<Secret, KeyError> {
        if epoch == 1 {
            return Ok(Secret::new(*self.key.bytes()));
        }
        Err(KeyError::UnknownEpoch { epoch })
    }

    fn signing_seed(&self) -> Result<Secret, KeyError> {
        Ok(Secret::new(*self.seed.bytes()))
    }
}

fn decode(bytes: &[u8]) -> Result<(Secret, Secret), &'static str> {
    if bytes.len() != FILE_BYTES {
        return Err("it has another length");
    }
    if &bytes[..8] != MAGIC {
        return Err("it begins differently, or is of a newer format");
    }
    let (body, check) = bytes.split_at(FILE_BYTES - 4);
    if crc32c::crc32c(body).to_le_bytes() != check {
        return Err("its checksum does not match");
    }
    let mut key = [0; SECRET_BYTES];
    let mut seed = [0; SECRET_BYTES];
    key.copy_from_slice(&body[8..8 + SECRET_BYTES]);
    seed.copy_from_slice(&body[8 + SECRET_BYTES..]);
    let secrets = (Secret::new(key), Secret::new(seed));
    key.zeroize();
    seed.zeroize();
    Ok(secrets)
}

/// Writes a new key under another name first, so that a crash leaves a whole key or none.
fn create_file(path: &Path) -> Result<(), KeyError> {
    let shown = path.display().to_string();
    let failed = |source| KeyError::Io { what: "making", path: shown.clone(), source };
    let mut bytes = Zeroizing::new(vec![0_u8; FILE_BYTES]);
    bytes[..8].copy_from_slice(MAGIC);
    SystemEntropy.fill(&mut bytes[8..FILE_BYTES - 4]);
    let check = crc32c::crc32c(&bytes[..FILE_BYTES - 4]);
    bytes[FILE_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut half = path.as_os_str().to_owned();
    half.push(".new");
    let half = PathBuf::from(half);
    match std::fs::remove_file(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half).map_err(failed)?;
    file.write_all(&bytes).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    // A link never replaces a file: two nodes that start at once cannot exchange the key under
    // each other's log.
    let linked = std::fs::hard_link(&half, path);
    std::fs::remove_file(&half).map_err(failed)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(failed)
}
