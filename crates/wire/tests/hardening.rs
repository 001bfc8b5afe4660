//! What broke other codecs, one test per root cause.
//!
//! Byte-level refusals (five-byte integers, empty topics, cut-off SUBSCRIBE, …) stand as vectors in
//! `tests/golden/wire/rejected.txt`; here is what bytes alone cannot show: memory, stack, growth.
//! The counting allocator needs `unsafe`, which this test file alone may use.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use quantumqtt_wire::{
    Ack, AckKind, DecodeError, Packet, PacketType, Property, PropertyBlock, Publish, QoS, Version,
    decode, frame,
};

/// Counts the allocations of the asking thread, so that tests beside it do not disturb.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<usize> = const { Cell::new(0) });

// SAFETY: every call is passed on to the system allocator unchanged; the counter is a plain
// thread-local cell without a destructor, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises about both are passed on; `alloc` used the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of<T>(task: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.get();
    let result = task();
    (result, ALLOCATIONS.get() - before)
}

fn publish_with(topic: &str, block: &PropertyBlock, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let publish = Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic,
        packet_id: None,
        properties: block.as_properties(),
        payload,
    };
    publish.encode(Version::V5, &mut out).expect("the packet is legal");
    out
}

fn decode_publish(bytes: &[u8]) -> Publish<'_> {
    let header = frame::peek(bytes, usize::MAX).expect("the header is legal");
    let frame = header.expect("the header is whole");
    let body = frame.body(bytes).expect("the body is whole");
    match decode(Version::V5, &frame, body) {
        Ok(Packet::Publish(publish)) => publish,
        other => panic!("a PUBLISH was written, not {other:?}"),
    }
}

#[test]
fn the_counter_sees_allocations() {
    let (grown, count) = allocations_of(|| vec![0_u8; 100]);
    assert_eq!((grown.len(), count), (100, 1));
}

#[test]
fn decoding_publish_and_acks_allocates_nothing() {
    let mut block = PropertyBlock::new();
    block.push(Property::UserProperty("k", "v")).unwrap();
    block.push(Property::ResponseTopic("reply")).unwrap();
    let bytes = publish_with("a/topic/of/some/length", &block, &[7; 1_000]);
    let (properties, count) = allocations_of(|| decode_publish(&bytes).properties.iter().count());
    assert_eq!((properties, count), (2, 0));

    let (ack, count) =
        allocations_of(|| Ack::decode(Version::V5, AckKind::PubAck, &[0, 1, 0x10, 0]));
    assert!(ack.is_ok());
    assert_eq!(count, 0);
}

#[test]
fn topic_and_payload_point_into_the_received_bytes() {
    let bytes = publish_with("a/b", &PropertyBlock::new(), b"payload");
    let publish = decode_publish(&bytes);
    let inside = |part: &[u8]| bytes.as_ptr_range().contains(&part.as_ptr());
    assert!(inside(publish.topic.as_bytes()) && inside(publish.payload));
}

/// CVE-2017-7651 and its kin: a header that announces 256 MiB reserved them.
// hardening: announced-length
#[test]
fn an_announced_length_reserves_nothing() {
    for packet_type in PacketType::ALL {
        let first = (packet_type as u8) << 4 | packet_type.fixed_flags();
        let header = [first, 0xFF, 0xFF, 0xFF, 0x7F];
        let (frame, count) = allocations_of(|| frame::peek(&header, usize::MAX));
        let frame = frame.unwrap().unwrap();
        assert_eq!((frame.body_bytes, count), (268_435_455, 0));
        let (early, count) = allocations_of(|| decode(Version::V5, &frame, &[0, 4]));
        assert_eq!((early, count), (Err(DecodeError::Truncated { field: "body" }), 0));
    }
    // The same lie one layer down: lengths of strings and blocks inside a small body.
    for body in [&b"\xFF\xFFa"[..], b"\0\x01a\xFF\xFF\xFF\x7F", b"\0\x01a\x05\x26\xFF\xFFaa"] {
        let (refused, count) = allocations_of(|| Publish::decode(Version::V5, 0, body));
        assert!(matches!(refused, Err(DecodeError::Truncated { .. })));
        assert_eq!(count, 0);
    }
}

/// CVE-2019-11779: recursion per topic level overflowed the stack.
// hardening: deep-topics
#[test]
fn sixty_five_thousand_levels_fit_a_small_stack() {
    let topic = "/".repeat(65_535);
    let levels = std::thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            let bytes = publish_with(&topic, &PropertyBlock::new(), b"deep");
            decode_publish(&bytes).topic.split('/').count()
        })
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(levels, 65_536);
}

/// CVE-2021-41039, seen from outside; the unit tests of `properties` count the visits.
// hardening: many-properties
#[test]
fn thirty_thousand_user_properties_decode_without_memory() {
    let mut block = PropertyBlock::new();
    for _ in 0..30_000 {
        block.push(Property::UserProperty("name", "value")).unwrap();
    }
    let bytes = publish_with("t", &block, b"");
    let (count, allocations) =
        allocations_of(|| decode_publish(&bytes).properties.user_properties().count());
    assert_eq!((count, allocations), (30_000, 0));
}

/// CVE-2021-34431, CVE-2023-3592: the error paths of CONNECT leaked.
// hardening: refused-connects
#[test]
fn refused_connects_hold_no_memory() {
    let body = b"\0\x04MQTT\x05\x06\0\0\0\0\x01c\x06\x26\0\x01k\0\x00\0\x03w/#\0\0";
    let first = frame::Frame {
        packet_type: PacketType::Connect,
        flags: 0,
        header_bytes: 2,
        body_bytes: body.len(),
    };
    let (refusals, count) = allocations_of(|| {
        (0..20_000).filter(|_| decode(Version::V5, &first, body).is_err()).count()
    });
    assert_eq!((refusals, count), (20_000, 0));
}
