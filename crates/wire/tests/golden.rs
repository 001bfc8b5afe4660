//! Golden byte vectors, walked both ways.
//!
//! `REWRITE_GOLDEN=1` rewrites what decoding shows. Bytes and errors are only ever written by hand.

#[path = "support/golden.rs"]
mod golden;

use std::collections::BTreeSet;

use golden::Expected;
use quantumqtt_wire::{DecodeError, Packet, PacketType, Version, decode, frame};

const NO_LIMIT: usize = usize::MAX;

fn decode_whole(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame::peek(bytes, NO_LIMIT)?.expect("golden bytes hold a whole header");
    decode(version, &frame, &bytes[frame.header_bytes..])
}

fn outcome(version: Version, bytes: &[u8]) -> Expected {
    match decode_whole(version, bytes) {
        Ok(packet) => Expected::Packet(format!("{packet:?}")),
        Err(error) => Expected::Error(error.label().to_owned()),
    }
}

fn show(expected: Expected) -> String {
    match expected {
        Expected::Packet(shown) => shown,
        Expected::Error(label) => panic!("a good vector gives {label}"),
    }
}

fn rewrite() {
    for file in golden::files() {
        let mut vectors = golden::read(&file).into_iter();
        let mut vector = None;
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        let lines = text.lines().map(|line| {
            if line.starts_with('[') {
                vector = vectors.next();
            }
            match &vector {
                Some(vector) if line.starts_with("packet: ") => {
                    format!("packet: {}", show(outcome(vector.versions[0], &vector.bytes)))
                }
                _ => line.to_owned(),
            }
        });
        let rewritten = lines.collect::<Vec<_>>().join("\n") + "\n";
        std::fs::write(&file, rewritten).expect("the file can be written");
    }
}

// req: WIRE-10
// req: WIRE-20
#[test]
fn every_vector_decodes_to_what_stands_beside_it() {
    if std::env::var("REWRITE_GOLDEN").as_deref() == Ok("1") {
        rewrite();
    }
    for vector in golden::vectors() {
        assert!(!vector.versions.is_empty(), "[{}] names no version", vector.name);
        for &version in &vector.versions {
            let shown = outcome(version, &vector.bytes);
            assert_eq!(shown, vector.expected, "[{}] in {version:?}", vector.name);
        }
    }
}

// req: WIRE-01
// req: WIRE-02
// req: WIRE-20
#[test]
fn every_packet_encodes_to_its_vector() {
    for vector in golden::vectors() {
        if !matches!(vector.expected, Expected::Packet(_)) {
            continue;
        }
        for &version in &vector.versions {
            let frame = frame::peek(&vector.bytes, NO_LIMIT).unwrap().unwrap();
            assert_eq!(frame.total(), vector.bytes.len(), "[{}]", vector.name);
            let packet = decode(version, &frame, &vector.bytes[frame.header_bytes..]).unwrap();
            let mut out = Vec::new();
            packet.encode(version, &mut out).unwrap();
            let same = out == vector.bytes;
            assert_eq!(same, vector.decode_only.is_none(), "[{}] gives {out:02x?}", vector.name);
        }
    }
}

// req: WIRE-20
#[test]
fn every_packet_type_of_every_version_has_a_vector() {
    let mut seen = BTreeSet::new();
    for vector in golden::vectors() {
        if matches!(vector.expected, Expected::Packet(_)) {
            let packet_type = PacketType::from_bits(vector.bytes[0] >> 4).unwrap();
            seen.extend(vector.versions.iter().map(|&version| (version, packet_type)));
        }
    }
    for version in Version::ALL {
        for packet_type in PacketType::ALL {
            let exists = version == Version::V5 || packet_type != PacketType::Auth;
            assert_eq!(
                seen.contains(&(version, packet_type)),
                exists,
                "{version:?} {packet_type:?}"
            );
        }
    }
}

// req: WIRE-20
#[test]
fn hello_to_test_has_remaining_length_11_and_13() {
    let length_of = |name: &str| {
        let vector = golden::vectors().into_iter().find(|vector| vector.name == name).unwrap();
        vector.bytes[1]
    };
    assert_eq!(length_of("hello to test, QoS 0"), 0x0B);
    assert_eq!(length_of("hello to test, QoS 1"), 0x0D);
}

/// Every prefix of a good packet asks for more, whatever its length.
// req: WIRE-07
#[test]
fn a_truncated_stream_never_yields_a_packet() {
    for vector in golden::vectors() {
        if !matches!(vector.expected, Expected::Packet(_)) {
            continue;
        }
        for cut in 0..vector.bytes.len() {
            let seen = &vector.bytes[..cut];
            let complete = frame::peek(seen, NO_LIMIT).unwrap().and_then(|frame| frame.body(seen));
            assert_eq!(complete, None, "[{}] cut at {cut}", vector.name);
        }
    }
}

/// A body cut short behind an honest-looking header is an error, except where the standard makes
/// the rest optional: payloads, lists, and the tails that v5 lets packets leave out.
#[test]
fn a_truncated_body_is_an_error_or_a_shorter_legal_packet() {
    let mut refused = 0;
    for vector in golden::vectors() {
        if !matches!(vector.expected, Expected::Packet(_)) {
            continue;
        }
        let mut frame = frame::peek(&vector.bytes, NO_LIMIT).unwrap().unwrap();
        let whole = frame.body(&vector.bytes).unwrap();
        let cuts = |&version| (0..whole.len()).map(move |cut| (version, cut));
        for (version, cut) in vector.versions.iter().flat_map(cuts) {
            frame.body_bytes = cut;
            match decode(version, &frame, whole) {
                Err(_) => refused += 1,
                Ok(shorter) => {
                    assert!(
                        may_end_early(version, frame.packet_type),
                        "[{}] cut at {cut}",
                        vector.name
                    );
                    let mut out = Vec::new();
                    shorter.encode(version, &mut out).unwrap();
                    let again = frame::peek(&out, NO_LIMIT).unwrap().unwrap();
                    let body = again.body(&out).unwrap();
                    assert_eq!(decode(version, &again, body), Ok(shorter), "[{}]", vector.name);
                }
            }
        }
    }
    assert!(refused > 500, "only {refused} truncations were refused");
}

fn may_end_early(version: Version, packet_type: PacketType) -> bool {
    match packet_type {
        // 3.1 lets user name and password be missing.
        PacketType::Connect => version == Version::V31,
        PacketType::ConnAck | PacketType::PingReq | PacketType::PingResp => false,
        _ => true,
    }
}

// req: WIRE-15
#[test]
fn every_rejection_names_its_clause_and_can_be_told() {
    for vector in golden::vectors() {
        for &version in &vector.versions {
            let Err(error) = decode_whole(version, &vector.bytes) else {
                continue;
            };
            let message = error.to_string();
            assert!(message.contains("[MQTT-") || message.contains('§'), "{message}");
            let told = [PacketType::ConnAck, PacketType::Disconnect]
                .into_iter()
                .any(|packet_type| error.reason_code().legal_in(packet_type));
            assert!(told, "{error} has reason {}", error.reason_code());
        }
    }
}

#[test]
fn an_announced_body_that_is_not_there_is_an_error() {
    let frame = frame::peek(&[0x30, 0x0B], NO_LIMIT).unwrap().unwrap();
    let missing = decode(Version::V311, &frame, b"\0\x04test");
    assert_eq!(missing, Err(DecodeError::Truncated { field: "body" }));
}

/// One vector per way to be wrong; only `packet_too_large` needs a limit and is tested with
/// `frame`.
#[test]
fn every_decode_error_has_a_vector() {
    let seen: BTreeSet<String> = golden::vectors()
        .into_iter()
        .filter_map(|vector| match vector.expected {
            Expected::Error(label) => Some(label),
            Expected::Packet(_) => None,
        })
        .collect();
    let source = include_str!("../src/error.rs");
    let labels: BTreeSet<String> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> \""))
        .map(|(_, label)| label.trim_end_matches("\",").to_owned())
        .filter(|label| label != "packet_too_large")
        .collect();
    assert!(labels.len() > 30, "the labels were not found in the source");
    assert_eq!(seen, labels);
}
