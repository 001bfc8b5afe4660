//! Reads the golden vectors in `tests/golden/wire`.

use std::path::{Path, PathBuf};

use quantumqtt_wire::Version;

/// One named section of a golden file.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
    pub(crate) bytes: Vec<u8>,
    /// Why encoding gives other bytes, where it does.
    pub(crate) decode_only: Option<String>,
    pub(crate) expected: Expected,
}

/// What decoding must say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    Packet(String),
    Error(String),
}

pub(crate) fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/wire");
    let entries = std::fs::read_dir(&folder).expect("the golden folder exists");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no golden files in {}", folder.display());
    files
}

/// All vectors of all files.
pub(crate) fn vectors() -> Vec<Vector> {
    files().iter().flat_map(|file| read(file)).collect()
}

pub(crate) fn read(file: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(file).expect("the golden file can be read");
    let mut vectors: Vec<Vector> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            vectors.push(Vector {
                name: name.to_owned(),
                versions: Vec::new(),
                bytes: Vec::new(),
                decode_only: None,
                expected: Expected::Error("missing".to_owned()),
            });
            continue;
        }
        let vector = vectors.last_mut().expect("a section comes first");
        let (key, value) = line.split_once(": ").expect("lines are `key: value`");
        match key {
            "versions" => vector.versions = value.split(' ').map(version).collect(),
            "bytes" => vector.bytes.extend(parse_bytes(value)),
            "decode_only" => vector.decode_only = Some(value.to_owned()),
            "packet" => vector.expected = Expected::Packet(value.to_owned()),
            "error" => vector.expected = Expected::Error(value.to_owned()),
            _ => panic!("unknown key {key} in {}", file.display()),
        }
    }
    vectors
}

fn version(name: &str) -> Version {
    match name {
        "3.1" => Version::V31,
        "3.1.1" => Version::V311,
        "5" => Version::V5,
        _ => panic!("unknown version {name}"),
    }
}

/// Hexadecimal digits, blanks, and quoted text.
fn parse_bytes(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|byte| *byte != b' ').collect();
        assert_eq!(digits.len() % 2, 0, "half a byte in {line}");
        bytes.extend(digits.chunks_exact(2).map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits are ASCII");
            u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
        }));
    }
    bytes
}
