//! Golden files: bytes and behaviour that must not change unnoticed.
//!
//! With `QUANTUMQTT_REWRITE_GOLDEN` set the files are rewritten; the diff is then the review.

use std::path::PathBuf;

#[expect(
    clippy::disallowed_methods,
    reason = "a test reads and writes files, the machine does not"
)]
pub(crate) fn check_golden(name: &str, actual: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/machine");
    let path: PathBuf = [folder, name].iter().collect();
    if std::env::var_os("QUANTUMQTT_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (number, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(actual, expected, "{name}, line {}", number + 1);
    }
    assert_eq!(actual.len(), expected.len(), "{name} differs in length");
}
