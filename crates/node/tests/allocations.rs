//! A message whose route is cached costs no heap allocation, from socket to sockets.
//!
//! Every allocation of the process is counted but those of the test's own thread. The traffic goes
//! in lock-step, so buffers find their size while warming up and have no reason to grow afterwards.

#![allow(unsafe_code)] // an allocator that counts is an allocator

#[path = "support/embedded.rs"]
mod embedded;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use quantumqtt_node::Node;
use quantumqtt_wire::{
    Connect, PacketId, Properties, Publish, QoS, Subscribe, SubscribeBlock, SubscribeOptions,
    Version,
};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count() {
    // A thread that is being torn down has no such cell any more; nothing is measured then.
    if !IS_OURS.try_with(Cell::get).unwrap_or(true) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as our caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as our caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as our caller promised.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VERSION: Version = Version::V311;
const TOPICS: usize = 4;
const WARM_UP_ROUNDS: usize = 200;
const ROUNDS: usize = 500;
const CONNACK_BYTES: usize = 4;
const SUBACK_BYTES: usize = 5;

fn connect(address: SocketAddr, client_id: &str) -> TcpStream {
    let connect = Connect {
        version: VERSION,
        clean_start: true,
        keep_alive_s: 60,
        client_id,
        will: None,
        user_name: None,
        password: None,
        properties: Properties::EMPTY,
    };
    let mut packet = Vec::new();
    connect.encode(VERSION, &mut packet).expect("a small CONNECT");
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_nodelay(true).expect("TCP");
    stream.write_all(&packet).expect("the node reads");
    let mut connack = [0; CONNACK_BYTES];
    stream.read_exact(&mut connack).expect("a CONNACK");
    assert_eq!(connack, [0x20, 2, 0, 0]);
    stream
}

fn subscriber(address: SocketAddr, client_id: &str) -> TcpStream {
    let mut stream = connect(address, client_id);
    let mut filters = SubscribeBlock::new();
    filters.push("plant/+", SubscribeOptions::with_qos(QoS::AtMostOnce)).expect("a filter");
    let subscribe = Subscribe {
        packet_id: PacketId::MIN,
        properties: Properties::EMPTY,
        filters: filters.as_filters(),
    };
    let mut packet = Vec::new();
    subscribe.encode(VERSION, &mut packet).expect("a small SUBSCRIBE");
    stream.write_all(&packet).expect("the node reads");
    stream.read_exact(&mut [0; SUBACK_BYTES]).expect("a SUBACK");
    stream
}

/// One publish to each topic; what subscribers of QoS 0 get is the same bytes.
fn batch() -> Vec<u8> {
    let mut bytes = Vec::new();
    for topic in 0..TOPICS {
        let publish = Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic: &format!("plant/{topic}"),
            packet_id: None,
            properties: Properties::EMPTY,
            payload: &[b'.'; 64],
        };
        publish.encode(VERSION, &mut bytes).expect("a small PUBLISH");
    }
    bytes
}

fn allocations_while_routing(subscribers: usize) -> u64 {
    let node = Node::start(&embedded::config(1)).expect("a free port of loopback");
    let address = node.listeners()[0].address().expect("it is TCP");
    let mut readers: Vec<_> =
        (0..subscribers).map(|number| subscriber(address, &format!("s{number}"))).collect();
    let mut writer = connect(address, "p");
    let batch = batch();
    let mut got = vec![0; batch.len()];
    let mut before = 0;
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        if round == WARM_UP_ROUNDS {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        writer.write_all(&batch).expect("the node reads");
        for reader in &mut readers {
            reader.read_exact(&mut got).expect("every subscriber hears every message");
            assert_eq!(got, batch);
        }
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

// req: DP-22
#[test]
fn a_route_cache_hit_allocates_nothing() {
    IS_OURS.set(true);
    assert!(allocations_while_starting() > 0, "the counter sees what shards allocate");
    for subscribers in [1, 50] {
        let allocations = allocations_while_routing(subscribers);
        assert_eq!(allocations, 0, "{ROUNDS} rounds of {TOPICS} messages to {subscribers}");
    }
}

/// Taking in a client allocates on its shard; so a zero elsewhere is not a blind counter.
fn allocations_while_starting() -> u64 {
    let node = Node::start(&embedded::config(1)).expect("a free port of loopback");
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drop(connect(node.listeners()[0].address().expect("it is TCP"), "first"));
    ALLOCATIONS.load(Ordering::Relaxed) - before
}
