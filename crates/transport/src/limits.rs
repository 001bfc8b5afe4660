//! Every bound of the layers, with the relations between them.

/// Bytes of a WebSocket upgrade request, and the headers in it.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes that may wait for the rest of a record or of a handshake message. A TLS handshake message
/// may span records: a certificate chain does. Records of application data are at most 18 KiB.
pub(crate) const KEPT_BYTES_MAX: usize = 40 * 1024;
/// The most plaintext that becomes one WebSocket frame and goes to TLS at once.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;
/// What TLS may add to a chunk: two records' headers, nonces and tags.
pub(crate) const SEAL_BYTES: usize = 256;
/// A PROXY header of version 1, line end included; the specification says 107.
pub(crate) const PROXY_V1_BYTES_MAX: usize = 107;
/// A PROXY header of version 2, everything behind its first 16 bytes.
pub(crate) const PROXY_V2_BYTES_MAX: usize = 2 * 1024;
/// Answers (pongs, key updates) that may wait for a peer that does not read; then pings go unheard.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a user name taken from a certificate.
pub(crate) const USER_BYTES_MAX: usize = 1024;

const _: () = assert!(HEAD_BYTES_MAX <= KEPT_BYTES_MAX);
const _: () = assert!(PROXY_V2_BYTES_MAX + 16 <= KEPT_BYTES_MAX);
const _: () = assert!(KEPT_BYTES_MAX > 16 * 1024 + 2 * 1024 + 5);
