//! What a checkpoint says about itself: canonical JSON, hashed and signed.
//!
//! The hash covers the document without `content_hash` and `signature`, the signature the same
//! bytes. Whoever changes a field, a chunk or the order of chunks breaks one of them (LOG-24).

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::crypto::SALT_BYTES;
use crate::json::Json;
use crate::keys::Secret;
use crate::limits::{CHUNKS_MAX, MANIFEST_BYTES_MAX, NAME_BYTES_MAX};
use crate::members::Members;
use crate::recovery::hexadecimal;

/// The manifest's format; a later one is refused.
pub const MANIFEST_FORMAT: u32 = 1;

const FULL: &str = "full";

/// Signs this node's manifests and checks them.
pub(crate) struct Signer {
    pair: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new(seed: &Secret) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.bytes());
        Self { pair: pair.expect("every 32 bytes are a seed") }
    }

    fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }
}

/// One sealed file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What its owner called it.
    pub name: String,
    /// Its length before it was sealed.
    pub bytes: u64,
    pub(crate) digest: [u8; 32],
}

/// A parsed or future manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) node: u64,
    pub(crate) group: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) members: Members,
    pub(crate) schema: u32,
    pub(crate) key_epoch: u32,
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) state_digest: Vec<u8>,
}

/// Why a manifest is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManifestError {
    Newer(u32),
    Refused(&'static str),
}

/// Names become parts of nothing but the manifest, and stay readable there.
pub(crate) fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(known)
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("32 bytes")
}

impl Manifest {
    fn unsigned(&self, signer: &Signer) -> BTreeMap<String, Json> {
        let members = &self.members;
        let chunks = self.chunks.iter().map(|chunk| {
            Json::object([
                ("bytes", Json::text(chunk.bytes)),
                ("digest", Json::Text(hexadecimal(&chunk.digest))),
                ("name", Json::text(&chunk.name)),
            ])
        });
        let document = Json::object([
            ("chain_length", Json::Number(0)),
            ("chunks", Json::List(chunks.collect())),
            ("format", Json::Number(MANIFEST_FORMAT)),
            ("group", Json::text(self.group)),
            ("index", Json::text(self.index)),
            ("key_epoch", Json::Number(self.key_epoch)),
            ("kind", Json::text(FULL)),
            (
                "members",
                Json::object([
                    ("auto_leave", Json::Bool(members.auto_leave)),
                    ("learners", Json::texts(&members.learners)),
                    ("learners_next", Json::texts(&members.learners_next)),
                    ("voters", Json::texts(&members.voters)),
                    ("voters_outgoing", Json::texts(&members.voters_outgoing)),
                ]),
            ),
            ("node", Json::text(self.node)),
            ("parent", Json::text("")),
            ("salt", Json::Text(hexadecimal(&self.salt))),
            ("schema", Json::Number(self.schema)),
            ("signer", Json::Text(hexadecimal(signer.public()))),
            ("state_digest", Json::Text(hexadecimal(&self.state_digest))),
            ("term", Json::text(self.term)),
        ]);
        match document {
            Json::Object(fields) => fields,
            _ => unreachable!("made as an object above"),
        }
    }

    /// The signed document.
    pub(crate) fn encode(&self, signer: &Signer) -> String {
        let mut fields = self.unsigned(signer);
        let content = Json::Object(fields.clone()).encode();
        let signature = signer.pair.sign(content.as_bytes());
        fields.insert(
            "content_hash".to_owned(),
            Json::Text(hexadecimal(&sha256(content.as_bytes()))),
        );
        fields.insert("signature".to_owned(), Json::Text(hexadecimal(signature.as_ref())));
        Json::Object(fields).encode()
    }

    /// Reads a document that this node signed.
    pub(crate) fn decode(text: &[u8], signer: &Signer) -> Result<Self, ManifestError> {
        let refused = ManifestError::Refused;
        if text.len() > MANIFEST_BYTES_MAX {
            return Err(refused("the manifest is larger than any of ours"));
        }
        let document = std::str::from_utf8(text).ok().and_then(Json::parse);
        let Some(Json::Object(mut fields)) = document else {
            return Err(refused("the manifest is no canonical JSON"));
        };
        let mut take = |name| fields.remove(name).and_then(|value| bytes_of(&value));
        let hash = take("content_hash").ok_or(refused("the manifest has no hash"))?;
        let signature = take("signature").ok_or(refused("the manifest has no signature"))?;
        let document = Json::Object(fields);
        let content = document.encode();
        if hash != sha256(content.as_bytes()) {
            return Err(refused("the manifest's hash does not match"));
        }
        match document.field("format").and_then(Json::as_number) {
            Some(MANIFEST_FORMAT) => {}
            Some(newer) if newer > MANIFEST_FORMAT => return Err(ManifestError::Newer(newer)),
            _ => return Err(refused("the manifest has no format")),
        }
        let key = document.field("signer").and_then(bytes_of);
        if key.as_deref() != Some(signer.public()) {
            return Err(refused("the manifest was signed by another key"));
        }
        UnparsedPublicKey::new(&ED25519, signer.public())
            .verify(content.as_bytes(), &signature)
            .map_err(|_| refused("the manifest's signature does not match"))?;
        Self::from_document(&document).ok_or(refused("the manifest lacks a field"))
    }

    fn from_document(document: &Json) -> Option<Self> {
        let wide = |name: &str| document.field(name)?.as_u64();
        let members = document.field("members")?;
        let list = |name: &str| members.field(name)?.as_u64s();
        let members = Members {
            voters: list("voters")?,
            learners: list("learners")?,
            voters_outgoing: list("voters_outgoing")?,
            learners_next: list("learners_next")?,
            auto_leave: members.field("auto_leave")?.as_bool()?,
        };
        let chunks = document.field("chunks")?.as_list()?;
        let chunks = chunks.iter().map(|chunk| {
            Some(Chunk {
                name: chunk.field("name")?.as_text().filter(|name| is_name(name))?.to_owned(),
                bytes: chunk.field("bytes")?.as_u64()?,
                digest: bytes_of(chunk.field("digest")?)?.try_into().ok()?,
            })
        });
        let chunks: Vec<Chunk> = chunks.collect::<Option<_>>()?;
        let sound = members.is_sound()
            && chunks.len() <= CHUNKS_MAX
            && document.field("kind")?.as_text()? == FULL;
        sound.then_some(())?;
        Some(Self {
            node: wide("node")?,
            group: wide("group")?,
            index: wide("index")?,
            term: wide("term")?,
            members,
            schema: document.field("schema")?.as_number()?,
            key_epoch: document.field("key_epoch")?.as_number()?,
            salt: bytes_of(document.field("salt")?)?.try_into().ok()?,
            chunks,
            state_digest: bytes_of(document.field("state_digest")?)?,
        })
    }
}

fn bytes_of(value: &Json) -> Option<Vec<u8>> {
    let text = value.as_text()?;
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    digits.chunks(2).map(pair).collect()
}
