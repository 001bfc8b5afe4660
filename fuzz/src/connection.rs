//! Invariant: whatever bytes a client sends, the node lives and nobody else hears nonsense.
//!
//! Input: what one client writes to a real node in this process, over loopback, before it shuts its
//! writing side. The node closes that connection and nothing else; a bystander subscribed to
//! everything receives only packets that decode, and the node still answers its ping. No shard
//! dies.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use quantumqtt_node::{EventKind, ListenerConfig, Node, NodeConfig, NodeLimits};
use quantumqtt_wire::{Packet, Version, decode, frame};
use socket2::SockRef;

const PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_V5: &[u8] = b"\x10\x16\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x09bystander";
const SUBSCRIBE_ALL: &[u8] = b"\x82\x07\x00\x01\x00\x00\x01#\x00";
const PINGREQ: &[u8] = b"\xc0\x00";

/// The node all inputs of this process meet, and who watches it.
struct Stage {
    node: Node,
    address: SocketAddr,
    bystander: Bystander,
}

struct Bystander {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();
    let stage = STAGE.get_or_init(|| Mutex::new(Stage::set_up()));
    let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
    send_and_leave(stage.address, bytes);
    stage.bystander.ping();
    for event in stage.node.poll_events(4096) {
        assert_ne!(event.kind, EventKind::ShardFailed, "{:?}", event.reason);
    }
}

fn send_and_leave(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the node accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a plain socket");
    // A reset at the end leaves no port waiting; millions of inputs would use all of them up.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a plain socket");
    // The node may close in the middle of it, which is its right.
    if stream.write_all(bytes).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
        let mut answers = Vec::new();
        match stream.read_to_end(&mut answers) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("not closed although nothing more can come: {error}"),
        }
    }
}

impl Stage {
    fn set_up() -> Self {
        let node = Node::start(&config()).expect("a node on a free port");
        let address = node.listeners()[0].address().expect("it is TCP");
        let stream = TcpStream::connect(address).expect("the node accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a plain socket");
        let mut bystander = Bystander { stream, unread: Vec::new() };
        bystander.stream.write_all(CONNECT_V5).expect("connected");
        bystander.stream.write_all(SUBSCRIBE_ALL).expect("connected");
        bystander.ping();
        Self { node, address, bystander }
    }
}

impl Bystander {
    /// Read until the answer to a ping; everything before it must be a packet.
    fn ping(&mut self) {
        self.stream.write_all(PINGREQ).expect("the bystander stays connected");
        let mut buffer = [0; 16 * 1024];
        while !self.take_packets() {
            let read = self.stream.read(&mut buffer).expect("the node answers in time");
            assert!(read > 0, "the bystander was cut off");
            self.unread.extend_from_slice(&buffer[..read]);
        }
    }

    /// Whether the answer was among what could be read.
    fn take_packets(&mut self) -> bool {
        let (mut used, mut answered) = (0, false);
        loop {
            let rest = &self.unread[used..];
            let frame = frame::peek(rest, usize::MAX).expect("well-formed headers");
            let Some((frame, body)) = frame.and_then(|frame| Some((frame, frame.body(rest)?)))
            else {
                break;
            };
            let packet = decode(Version::V5, &frame, body).expect("well-formed packets");
            assert!(!matches!(packet, Packet::Disconnect(_)), "the bystander did nothing wrong");
            answered |= packet == Packet::PingResp;
            used += frame.total();
        }
        self.unread.drain(..used);
        answered
    }
}

fn config() -> NodeConfig {
    NodeConfig {
        node_id: 1,
        tenant: "default".to_owned(),
        partitions: 1,
        shards: 1,
        listeners: vec![ListenerConfig::open_tcp("127.0.0.1")],
        limits: NodeLimits {
            packet_bytes_max: 64 * 1024,
            connect_timeout_ms: 2_000,
            keep_alive_s_max: 65_535,
            receive_maximum: 16,
            session_expiry_s_max: 1,
            topic_alias_max: 8,
            will_grace_s: 1,
            subscriptions_max: 64,
            offline_bytes_max: 256 * 1024,
            offline_count_max: 256,
            out_buffer_bytes_soft: 64 * 1024,
            out_buffer_bytes_max: 256 * 1024,
            connections_max: 100,
            connections_per_address_max: None,
            event_queue_count_max: 4096,
            admission_timeout_ms: 1_000,
            log_pending_bytes_max: 64 << 20,
        },
        ask_admission: false,
        rules: None,
        disconnect_denied: true,
        client_id_is_user: false,
        auth_methods: Vec::new(),
        tolerates_excess: false,
        log: None,
    }
}
