//! The entry format: golden bytes, closing, and bytes from anywhere.

use std::fmt::Write;

use bytes::Bytes;
use proptest::prelude::*;
use quantumqtt_machine::{
    AckKind, ClientAck, Command, ConnectionLost, DEDUPE_KEY_BYTES_MAX, DedupeKey,
    ENTRY_BYTES_CLOSE, ENTRY_COMMANDS_MAX, Entry, EntryBuilder, EntryError, EntryHeader,
    FieldError, LeaveWill, Limits, Machine, OpenSession, Origin, Overflow, PubRel, Publish,
    RetainHandling, Source, Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe, Will,
};
use quantumqtt_wire::{QoS, ReasonCode};

use crate::golden::check_golden;
use crate::rig::{entry_of, publishing};

const ORIGIN: Origin = Origin { node: 3, shard: 2, connection: 300 };

const HEADER: EntryHeader = EntryHeader {
    partition: 7,
    tenant: 2,
    routing_epoch: 5,
    leader: 3,
    batch_seq: 9,
    now_ms: 1_700_000_000_000,
};

const OPEN: OpenSession<'static> = OpenSession {
    origin: ORIGIN,
    client_id: "küche",
    identity: "alice",
    level: 5,
    clean_start: true,
    expiry_s: u32::MAX,
    receive_maximum: 100,
    maximum_packet_bytes: 65_536,
    will: Some(Will {
        topic: "w",
        properties: b"\x01\x01",
        payload: b"gone",
        qos: QoS::ExactlyOnce,
        retain: true,
        delay_s: 30,
        expiry_s: Some(60),
    }),
};

const LOST: ConnectionLost<'static> = ConnectionLost {
    client_id: "c",
    session_epoch: 4,
    fire_will: true,
    expiry_s: Some(0),
    will_grace_s: 0,
};

const PUBLISH: Publish<'static> = Publish {
    origin: ORIGIN,
    client_id: "c",
    session_epoch: 4,
    incarnation: 1,
    packet_id: 65_535,
    qos: QoS::ExactlyOnce,
    retain: true,
    dup: true,
    captured: false,
    dedupe: None,
    source: Source::Mqtt,
    expiry_s: Some(3_600),
    topic: "a/b",
    properties: b"\x01\x01",
    payload: b"\x00\xff payload",
};

const DEDUPE: Option<DedupeKey<'static>> = Some(DedupeKey { identity: "alice", key: "0-1" });

const RELEASE: PubRel<'static> =
    PubRel { origin: ORIGIN, client_id: "c", session_epoch: 4, packet_id: 65_535 };

const ACK: ClientAck<'static> = ClientAck {
    client_id: "c",
    session_epoch: 4,
    packet_id: 12,
    kind: AckKind::PubRec,
    reason: ReasonCode::QUOTA_EXCEEDED,
};

fn subscribe() -> Subscribe<'static> {
    let options = SubscriptionOptions {
        qos: QoS::ExactlyOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let refused = SubscribeFilter {
        filter: "$share/g/#",
        options: SubscriptionOptions::with_qos(QoS::AtMostOnce),
        refused: Some(ReasonCode::NOT_AUTHORIZED),
    };
    Subscribe {
        origin: ORIGIN,
        client_id: "c",
        session_epoch: 4,
        packet_id: 10,
        subscription_id: Some(268_435_455),
        filters: vec![SubscribeFilter { filter: "a/+", options, refused: None }, refused],
    }
}

fn unsubscribe() -> Unsubscribe<'static> {
    Unsubscribe {
        origin: ORIGIN,
        client_id: "c",
        session_epoch: 4,
        packet_id: 11,
        filters: vec!["a/+", "b"],
    }
}

/// One command of every kind, optional fields once present and once absent.
fn samples() -> Vec<(&'static str, Command<'static>)> {
    let bare = OpenSession { will: None, clean_start: false, identity: "", ..OPEN };
    let captured = Publish { captured: true, ..publishing(0, QoS::AtMostOnce, "t", "") };
    let cut_off = ConnectionLost { expiry_s: None, will_grace_s: 60, ..LOST };
    let will = OPEN.will.expect("it has one");
    let left = LeaveWill { client_id: "c", identity: "alice", will, will_grace_s: 60 };
    let declined = ClientAck { kind: AckKind::Declined, ..ACK };
    let limits = Limits { overflow: Overflow::DropOldest, ..Limits::default() };
    vec![
        ("open_session", Command::OpenSession(OPEN)),
        ("open_session_bare", Command::OpenSession(bare)),
        ("connection_lost", Command::ConnectionLost(LOST)),
        ("subscribe", Command::Subscribe(subscribe())),
        ("unsubscribe", Command::Unsubscribe(unsubscribe())),
        ("publish", Command::Publish(PUBLISH)),
        ("publish_captured", Command::Publish(captured)),
        ("publish_dedupe", Command::Publish(Publish { dedupe: DEDUPE, ..PUBLISH })),
        ("pub_rel", Command::PubRel(RELEASE)),
        ("client_ack", Command::ClientAck(ACK)),
        ("tick", Command::Tick),
        ("set_limits", Command::SetLimits(limits)),
        ("connection_cut_off", Command::ConnectionLost(cut_off)),
        ("leave_will", Command::LeaveWill(left)),
        ("client_declined", Command::ClientAck(declined)),
    ]
}

fn encoded(command: &Command<'_>) -> Bytes {
    let mut builder = EntryBuilder::new();
    builder.push(command).unwrap();
    builder.finish(&HEADER)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn every_command_has_the_bytes_it_always_had() {
    let mut text =
        String::from("# One entry per command: name, bytes. Read by every later release.\n");
    for (name, command) in samples() {
        writeln!(text, "{name} {}", hex(&encoded(&command))).unwrap();
    }
    let run = entry_of_acks(&[(4, 65_534), (4, 65_535), (4, 1)]);
    writeln!(text, "client_ack_run {}", hex(&run)).unwrap();
    check_golden("entries.txt", &text);
}

fn entry_of_acks(acks: &[(u64, u16)]) -> Bytes {
    let mut builder = EntryBuilder::new();
    for &(session_epoch, packet_id) in acks {
        builder.push(&puback(session_epoch, packet_id)).unwrap();
    }
    builder.finish(&HEADER)
}

fn puback(session_epoch: u64, packet_id: u16) -> Command<'static> {
    let (kind, reason) = (AckKind::PubAck, ReasonCode::SUCCESS);
    Command::ClientAck(ClientAck { client_id: "c", session_epoch, packet_id, kind, reason })
}

#[test]
fn pubacks_that_follow_each_other_are_one_record_and_come_apart_again() {
    let rounds = [(4, 65_534), (4, 65_535), (4, 1), (4, 2), (4, 4), (5, 5), (5, 5), (5, 6)];
    let entry = Entry::parse(entry_of_acks(&rounds)).unwrap();
    // Around 65 535, then: a gap, another connection, a repeat.
    assert_eq!(entry.count(), 4);
    let commands: Result<Vec<_>, _> = entry.commands().collect();
    assert_eq!(commands.unwrap(), rounds.map(|(epoch, id)| puback(epoch, id)));
}

#[test]
fn a_record_of_pubacks_is_bounded_and_ends_with_its_entry() {
    let mut builder = EntryBuilder::new();
    for packet_id in 1..=1_500 {
        builder.push(&puback(4, packet_id)).unwrap();
    }
    assert_eq!(builder.count(), 3);
    builder.finish(&HEADER);
    builder.push(&puback(4, 1_501)).unwrap();
    let entry = Entry::parse(builder.finish(&HEADER)).unwrap();
    let commands: Result<Vec<_>, _> = entry.commands().collect();
    assert_eq!(commands.unwrap(), [puback(4, 1_501)], "nothing of the entry before");
}

#[test]
fn a_record_that_no_builder_writes_is_malformed() {
    // The run's last two fields are its first id and its count.
    for (first, count) in [(0, 2), (1, 0), (1, 1)] {
        let mut bytes = entry_of_acks(&[(4, 1), (4, 2)]).to_vec();
        let end = bytes.len();
        bytes[end - 2..].copy_from_slice(&[first, count]);
        let entry = Entry::parse(Bytes::from(bytes)).unwrap();
        let malformed = EntryError::Malformed { kind: 10, source: FieldError::Range };
        let commands: Vec<_> = entry.commands().collect();
        assert_eq!(commands, [Err(malformed)], "{first} {count}");
    }
}

#[test]
fn every_command_comes_back_as_it_went_in() {
    for (name, command) in samples() {
        let entry = Entry::parse(encoded(&command)).unwrap();
        assert_eq!(entry.header(), &HEADER);
        let commands: Result<Vec<_>, _> = entry.commands().collect();
        assert_eq!(commands.unwrap(), [command], "{name}");
    }
}

#[test]
fn a_batch_keeps_its_order_and_the_builder_starts_afresh() {
    let mut builder = EntryBuilder::new();
    for _ in 0..2 {
        for (_, command) in samples() {
            builder.push(&command).unwrap();
        }
        let entry = Entry::parse(builder.finish(&HEADER)).unwrap();
        let commands: Result<Vec<_>, _> = entry.commands().collect();
        let expected: Vec<_> = samples().into_iter().map(|(_, command)| command).collect();
        assert_eq!(commands.unwrap(), expected);
        assert!(builder.is_empty());
    }
}

#[test]
fn an_entry_closes_by_count_and_by_bytes() {
    let mut builder = EntryBuilder::new();
    for _ in 0..ENTRY_COMMANDS_MAX {
        assert!(!builder.is_full());
        builder.push(&Command::Tick).unwrap();
    }
    assert!(builder.is_full());
    assert_eq!(builder.push(&Command::Tick), Err(EntryError::Full));
    builder.finish(&HEADER);

    let large = "x".repeat(ENTRY_BYTES_CLOSE);
    let publish = Command::Publish(publishing(1, QoS::AtLeastOnce, "t", &large));
    builder.push(&publish).unwrap();
    assert!(builder.is_full());
    let entry = Entry::parse(builder.finish(&HEADER)).unwrap();
    assert_eq!(entry.commands().next().unwrap().unwrap(), publish);
}

#[test]
fn what_is_newer_or_unknown_is_an_error_and_never_skipped() {
    let bytes = encoded(&Command::Tick).to_vec();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Entry::parse(Bytes::from(bytes)).map(|_| ()).unwrap_err()
    };
    assert_eq!(changed(0, 0x51), EntryError::NotAnEntry(0x51));
    assert_eq!(changed(0, 0xE2), EntryError::NewerFormat(2));
    assert_eq!(changed(1, 3), EntryError::NewerApplyVersion(3));
    assert_eq!(changed(1, 0), EntryError::Mismatch);
    assert_eq!(changed(39, 2), EntryError::Truncated, "two commands announced, one there");
    assert_eq!(changed(39, 0), EntryError::Mismatch, "none announced, one there");
    assert_eq!(changed(45, 12), EntryError::UnknownKind(12));
    assert_eq!(changed(45, 0), EntryError::UnknownKind(0));
    assert_eq!(Entry::parse(Bytes::new()).map(|_| ()), Err(EntryError::Truncated));
}

/// What a release that knows nothing of keys could not read does not claim that it could.
#[test]
fn an_entry_is_as_new_as_what_it_holds() {
    let keyed = Command::Publish(Publish { dedupe: DEDUPE, ..PUBLISH });
    let version_of = |command| Entry::parse(encoded(command)).unwrap().apply_version();
    assert_eq!(version_of(&Command::Publish(PUBLISH)), 1);
    assert_eq!(version_of(&keyed), 2);
    assert_eq!(version_of(&Command::ConnectionLost(LOST)), 1);
    let cut_off = Command::ConnectionLost(ConnectionLost { will_grace_s: 1, ..LOST });
    assert_eq!(version_of(&cut_off), 2);
    let mut bytes = encoded(&keyed).to_vec();
    bytes[1] = 1;
    let error = Entry::parse(Bytes::from(bytes)).unwrap().commands().next().unwrap().unwrap_err();
    assert_eq!(error, EntryError::Malformed { kind: 5, source: FieldError::Range });
}

#[test]
fn a_key_that_no_client_could_send_is_malformed() {
    let long = "k".repeat(DEDUPE_KEY_BYTES_MAX + 1);
    for (key, is_sound) in [("", false), ("a\0b", false), (&long, false), (&long[1..], true)] {
        let dedupe = Some(DedupeKey { identity: "", key });
        let entry = encoded(&Command::Publish(Publish { dedupe, ..PUBLISH }));
        let command = Entry::parse(entry).unwrap().commands().next().unwrap().is_ok();
        assert_eq!(command, is_sound, "{key:?}");
    }
}

#[test]
fn a_malformed_body_stops_apply() {
    let mut bytes = encoded(&Command::Tick).to_vec();
    // A tick with a byte too many; the framing is sound.
    bytes[46] = 1;
    bytes.push(0);
    bytes[41] += 1;
    let entry = Entry::parse(Bytes::from(bytes)).unwrap();
    let mut machine = Machine::new(HEADER.partition, Limits::default());
    let error = EntryError::Malformed { kind: 8, source: FieldError::Trailing };
    assert_eq!(machine.apply(&entry, &mut Vec::new()), Err(error.into()));
    assert_eq!(error.to_string(), "command of kind 8 has bytes after its last field");
}

#[test]
fn an_entry_of_another_partition_is_refused() {
    let mut machine = Machine::new(1, Limits::default());
    let before = machine.digest();
    assert!(machine.apply(&entry_of(&[Command::Tick], 5), &mut Vec::new()).is_err());
    assert_eq!(machine.digest(), before);
}

/// A sound batch of every command, as bytes to be hurt.
fn batch() -> Vec<u8> {
    let mut builder = EntryBuilder::new();
    for (_, command) in samples() {
        builder.push(&command).unwrap();
    }
    builder.push(&puback(4, 1)).unwrap();
    builder.push(&puback(4, 2)).unwrap();
    builder.finish(&HEADER).to_vec()
}

/// Reads and applies; what matters is that this returns.
fn swallow(bytes: Vec<u8>) {
    if let Ok(entry) = Entry::parse(Bytes::from(bytes)) {
        let mut machine = Machine::new(entry.header().partition, Limits::default());
        let result = machine.apply(&entry, &mut Vec::new());
        if result.is_ok() {
            assert_eq!(machine.check_invariants(), Ok(()));
        }
    }
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        swallow(bytes);
    }

    #[test]
    fn a_damaged_entry_never_panics(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = batch();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        swallow(bytes.clone());
        bytes.truncate(cut.index(bytes.len()));
        swallow(bytes);
    }
}

#[test]
fn every_truncation_is_noticed() {
    let bytes = batch();
    for length in 0..bytes.len() {
        let cut = Bytes::copy_from_slice(&bytes[..length]);
        assert_eq!(Entry::parse(cut).map(|_| ()), Err(EntryError::Truncated), "{length}");
    }
}
