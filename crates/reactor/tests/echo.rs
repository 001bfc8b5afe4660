//! The reactor on real sockets, with the smallest service that exercises every callback.

#![allow(clippy::unwrap_used)] // a test may fail where it stands

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use quantumqtt_reactor::{
    Accepted, Clock, CloseCause, ConnectionId, Connections, Consumed, Deadline, Limits,
    ListenerSpec, Outlet, Reactor, ReactorSpec, Service, Then, Turn, TurnedAway,
};

/// It ends a hang; it measures nothing, and a busy machine must not meet it.
const PATIENCE: Duration = Duration::from_secs(60);

type Seen = Arc<Watch>;

/// What the service was told, for the test to look at, and a way to hold a shard still.
#[derive(Default)]
struct Watch {
    closed: Mutex<Vec<(u16, CloseCause)>>,
    told: Mutex<Vec<Told>>,
    turns: [AtomicUsize; 2],
    hold: Mutex<Hold>,
    changed: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Hold {
    #[default]
    Free,
    Held,
    Released,
}

/// One call of the service: in which turn of its shard, and about whom.
#[derive(Debug, Clone, Copy)]
struct Told {
    turn: usize,
    what: What,
    id: ConnectionId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Opened,
    Bytes,
    Mail,
    Closed,
}

impl Watch {
    fn tell(&self, shard: u16, what: What, id: ConnectionId) {
        let turn = self.turns[usize::from(shard)].load(Ordering::Relaxed);
        self.told.lock().unwrap().push(Told { turn, what, id });
    }

    fn told(&self, what: What) -> Vec<Told> {
        self.told.lock().unwrap().iter().copied().filter(|told| told.what == what).collect()
    }

    /// Called by a shard: wait here until the test lets it go on.
    fn hold(&self) {
        *self.hold.lock().unwrap() = Hold::Held;
        self.changed.notify_all();
        self.wait_for(&Hold::Released);
    }

    fn wait_for(&self, wanted: &Hold) {
        let hold = self.hold.lock().unwrap();
        drop(self.changed.wait_while(hold, |hold| hold != wanted).unwrap());
    }

    fn release(&self) {
        *self.hold.lock().unwrap() = Hold::Released;
        self.changed.notify_all();
    }
}

/// Lines of text. `bye` closes, `done` is the peer's last word, `pause` stops reading, `wake` lets
/// every paused one go on, `hold` holds its shard still until the test goes on, anything else is
/// echoed — by the next shard, to exercise writes from foreign threads.
struct Echo {
    closed: Seen,
    shards: u16,
    idle_ms: Option<u64>,
    owed: Vec<(Arc<Outlet<()>>, Vec<u8>)>,
    rooms: Arc<AtomicUsize>,
}

struct Line {
    id: ConnectionId,
    outlet: Arc<Outlet<()>>,
}

enum Mail {
    Say(ConnectionId, Arc<Outlet<()>>, Vec<u8>),
    Wake,
}

impl Service for Echo {
    type Connection = Line;
    type Outbound = ();
    type Mail = Mail;

    fn on_open(&mut self, turn: &mut Turn<Self>, accepted: Accepted<()>) -> Line {
        if let Some(idle_ms) = self.idle_ms {
            turn.set_deadline(accepted.id, turn.now_ms() + idle_ms);
        }
        assert_eq!(accepted.id.shard(), turn.shard());
        self.closed.tell(turn.shard(), What::Opened, accepted.id);
        Line { id: accepted.id, outlet: accepted.outlet }
    }

    fn on_bytes(&mut self, turn: &mut Turn<Self>, line: &mut Line, bytes: &[u8]) -> Consumed {
        assert_eq!(line.id.shard(), turn.shard(), "only its owner reads a connection");
        self.closed.tell(turn.shard(), What::Bytes, line.id);
        let mut used = 0;
        while let Some(end) = bytes[used..].iter().position(|&byte| byte == b'\n') {
            let text = &bytes[used..=used + end];
            used += end + 1;
            match text {
                b"bye\n" => {
                    turn.write(&line.outlet, |out| out.push(b"bye\n")).unwrap();
                    return Consumed { bytes: used, then: Then::Close(CloseCause::Service(7)) };
                }
                b"done\n" => {
                    return Consumed { bytes: used, then: Then::Close(CloseCause::PeerDone(6)) };
                }
                b"hold\n" => self.closed.hold(),
                b"pause\n" => {
                    return Consumed { bytes: used, then: Then::Pause };
                }
                b"wake\n" => (0..self.shards).for_each(|shard| turn.post(shard, Mail::Wake)),
                _ => {
                    let next = (turn.shard() + 1) % self.shards;
                    let outlet = Arc::clone(&line.outlet);
                    turn.post(next, Mail::Say(line.id, outlet, text.to_vec()));
                }
            }
        }
        Consumed { bytes: used, then: Then::Continue }
    }

    fn on_room(&mut self, _: &mut Turn<Self>, _: &mut Line) {
        self.rooms.fetch_add(1, Ordering::Relaxed);
    }

    fn on_deadline(&mut self, _: &mut Turn<Self>, _: &mut Line) -> Deadline {
        Deadline::Close(CloseCause::Service(9))
    }

    fn on_mail(&mut self, turn: &mut Turn<Self>, lines: &mut Connections<Self>, mail: Mail) {
        match mail {
            Mail::Say(id, outlet, text) => {
                self.closed.tell(turn.shard(), What::Mail, id);
                self.owed.push((outlet, text));
            }
            Mail::Wake => lines.iter_mut().for_each(|(id, _)| turn.resume_reads(id)),
        }
    }

    fn on_turn_end(&mut self, turn: &mut Turn<Self>, _: &mut Connections<Self>) {
        for (outlet, text) in self.owed.drain(..) {
            turn.write(&outlet, |out| out.push(&text)).unwrap();
        }
        self.closed.turns[usize::from(turn.shard())].fetch_add(1, Ordering::Relaxed);
    }

    fn on_drain(&mut self, turn: &mut Turn<Self>, lines: &mut Connections<Self>) {
        for (id, line) in lines.iter_mut() {
            turn.write(&line.outlet, |out| out.push(b"leaving\n")).unwrap();
            turn.close(id, CloseCause::Service(8));
        }
    }

    fn on_closed(&mut self, turn: &mut Turn<Self>, line: Line, cause: CloseCause) {
        assert_eq!(line.id.shard(), turn.shard(), "a connection dies where it lived");
        self.closed.tell(turn.shard(), What::Closed, line.id);
        self.closed.closed.lock().unwrap().push((turn.shard(), cause));
    }

    fn on_revoked(&mut self, turn: &mut Turn<Self>, connection: &mut Self::Connection) {
        let _ = (turn, connection); // no listener here asks for certificates
    }

    fn on_fault(&mut self, _: &mut Turn<Self>, turned_away: TurnedAway) {
        panic!("a bare listener turns nobody away: {turned_away:?}");
    }

    fn next_wake_ms(&self) -> Option<u64> {
        (!self.owed.is_empty()).then_some(0)
    }
}

struct World {
    reactor: Reactor<Echo>,
    closed: Seen,
    rooms: Arc<AtomicUsize>,
}

fn limits(connections_max: usize) -> Limits {
    Limits {
        connections_max,
        connections_per_address_max: None,
        handshake_timeout_ms: 60_000,
        out_bytes_soft: 1 << 20,
        out_bytes_max: 1 << 24,
    }
}

fn start(shards: u16, connections_max: usize, idle_ms: Option<u64>) -> World {
    let closed = Seen::default();
    let rooms = Arc::new(AtomicUsize::new(0));
    let all_rooms = Arc::clone(&rooms);
    let spec = ReactorSpec {
        shards,
        listeners: vec![ListenerSpec::tcp("127.0.0.1", 0)],
        limits: limits(connections_max),
        clock: Clock::start(),
    };
    let seen = Arc::clone(&closed);
    let make = move |_| Echo {
        closed: Arc::clone(&seen),
        shards,
        idle_ms,
        owed: Vec::new(),
        rooms: Arc::clone(&all_rooms),
    };
    let on_failure: quantumqtt_reactor::OnFailure = Arc::new(|words| panic!("{words}"));
    World { reactor: Reactor::start(&spec, make, &on_failure).unwrap(), closed, rooms }
}

impl World {
    fn address(&self) -> SocketAddr {
        self.reactor.listeners()[0].address().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

fn expect(stream: &mut TcpStream, text: &[u8]) {
    let mut heard = vec![0; text.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, text);
}

fn expect_end(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "the other side has closed");
}

/// Waits for what other threads are about to do; the suite's time-out ends a wait in vain.
fn wait_until(condition: impl Fn() -> bool) {
    let ends_at = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < ends_at, "it never happened");
        std::thread::yield_now();
    }
}

// req: DP-01
#[test]
fn sockets_rotate_over_shards() {
    let world = start(2, 100, None);
    for _ in 0..10 {
        let mut stream = world.connect();
        stream.write_all(b"bye\n").unwrap();
        expect(&mut stream, b"bye\n");
        expect_end(&mut stream);
    }
    let closed_on = |shard| {
        let closed = world.closed.closed.lock().unwrap();
        closed.iter().filter(|(at, _)| *at == shard).count()
    };
    // The peer sees the end a moment before the service hears of it.
    wait_until(|| closed_on(0) + closed_on(1) == 10);
    assert_eq!((closed_on(0), closed_on(1)), (5, 5));
}

// req: DP-01
//
#[test]
fn a_flood_of_newcomers_does_not_starve_a_client_that_speaks() {
    let world = start(1, 1_000, None);
    let (mut holder, mut steady) = (world.connect(), world.connect());
    holder.write_all(b"hold\n").unwrap();
    world.closed.wait_for(&Hold::Held);
    // All of this is there before the shard looks again.
    let flood: Vec<TcpStream> = (0..100).map(|_| world.connect()).collect();
    steady.write_all(b"here\n").unwrap();
    world.closed.release();
    expect(&mut steady, b"here\n");
    wait_until(|| world.closed.told(What::Opened).len() == 2 + flood.len());
    let speaker = world.closed.told(What::Bytes)[1];
    let at_once = |told: &&Told| told.turn == speaker.turn;
    let came_first = world.closed.told(What::Opened).iter().filter(at_once).count();
    assert!(0 < came_first && came_first < flood.len(), "{came_first} newcomers in one turn");
}

// req: DP-02
// req: DP-03
// req: DP-04
//
#[test]
fn a_turn_serves_everything_that_is_due() {
    let world = start(1, 1_000, None);
    let mut holder = world.connect();
    let mut speakers: Vec<TcpStream> = (0..20).map(|_| world.connect()).collect();
    let leaver = world.connect();
    wait_until(|| world.closed.told(What::Opened).len() == 22);
    holder.write_all(b"mail\nhold\n").unwrap();
    world.closed.wait_for(&Hold::Held);
    for speaker in &mut speakers {
        speaker.write_all(b"hello\n").unwrap();
    }
    drop(leaver);
    let newcomers: Vec<TcpStream> = (0..5).map(|_| world.connect()).collect();
    world.closed.release();
    expect(&mut holder, b"mail\n");
    for speaker in &mut speakers {
        expect(speaker, b"hello\n");
    }
    wait_until(|| world.closed.told(What::Opened).len() == 22 + newcomers.len());
    let held = world.closed.told(What::Bytes)[0].turn;
    let in_turn =
        |turn, what| world.closed.told(what).iter().filter(|told| told.turn == turn).count();
    assert_eq!(in_turn(held + 1, What::Opened), newcomers.len());
    assert_eq!(in_turn(held + 1, What::Mail), 1);
    assert_eq!(in_turn(held + 1, What::Bytes), speakers.len());
    // What is over is let go behind the service's turn end, where turns are counted.
    assert_eq!(in_turn(held + 2, What::Closed), 1);
}

// req: DP-16
#[test]
fn no_two_connections_of_a_process_share_an_id() {
    let world = start(2, 1_000, None);
    for _ in 0..20 {
        // Slots are used again and again; some of them while their neighbours live on.
        let mut streams: Vec<TcpStream> = (0..10).map(|_| world.connect()).collect();
        for stream in streams.iter_mut().take(7) {
            stream.write_all(b"bye\n").unwrap();
            expect(stream, b"bye\n");
            expect_end(stream);
        }
    }
    wait_until(|| world.closed.told(What::Opened).len() == 200);
    let ids: HashSet<u64> =
        world.closed.told(What::Opened).iter().map(|told| told.id.to_bits()).collect();
    assert_eq!(ids.len(), 200);
}

// req: DP-05
#[test]
fn split_and_joined_lines_come_back_through_another_shard() {
    let world = start(2, 100, None);
    let mut streams: Vec<TcpStream> = (0..4).map(|_| world.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"one\ntw").unwrap();
        expect(stream, b"one\n");
        stream.write_all(b"o\nthree\n").unwrap();
        expect(stream, b"two\nthree\n");
    }
}

#[test]
fn megabytes_pass_unharmed() {
    let world = start(2, 100, None);
    let mut stream = world.connect();
    let mut text = vec![b'x'; 3_000_000];
    text.push(b'\n');
    let mut reader = stream.try_clone().unwrap();
    let expected = text.clone();
    let reading = std::thread::spawn(move || expect(&mut reader, &expected));
    stream.write_all(&text).unwrap();
    reading.join().unwrap();
}

#[test]
fn paused_connection_keeps_its_bytes_and_goes_on() {
    let world = start(1, 100, None);
    let (mut quiet, mut other) = (world.connect(), world.connect());
    quiet.write_all(b"pause\nlater\n").unwrap();
    quiet.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silence = quiet.read(&mut [0; 16]).unwrap_err().kind();
    assert!(matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut));
    quiet.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(b"wake\n").unwrap();
    expect(&mut quiet, b"later\n");
}

// req: DP-33
#[test]
fn drain_says_goodbye_and_ends_in_time() {
    let world = start(2, 100, None);
    let mut streams: Vec<TcpStream> = (0..6).map(|_| world.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"hello\n").unwrap();
        expect(stream, b"hello\n");
    }
    let reading = std::thread::spawn(move || {
        for mut stream in streams {
            expect(&mut stream, b"leaving\n");
            expect_end(&mut stream);
        }
    });
    assert!(world.reactor.drain(PATIENCE));
    reading.join().unwrap();
    assert!(TcpStream::connect(world.address()).is_err(), "nobody listens any more");
    world.reactor.stop();
    assert_eq!(world.reactor.totals().connections, 0);
    assert_eq!(world.closed.closed.lock().unwrap().len(), 6);
}

#[test]
fn connection_over_the_limit_is_closed_at_once() {
    let world = start(1, 1, None);
    let mut first = world.connect();
    first.write_all(b"here\n").unwrap();
    expect(&mut first, b"here\n");
    let mut second = world.connect();
    expect_end(&mut second);
    first.write_all(b"still\n").unwrap();
    expect(&mut first, b"still\n");
    assert_eq!(world.reactor.totals().refused_full, 1);
}

#[test]
fn deadline_closes_a_silent_connection() {
    let world = start(1, 10, Some(200));
    let mut silent = world.connect();
    expect_end(&mut silent);
    wait_until(|| !world.closed.closed.lock().unwrap().is_empty());
    assert_eq!(*world.closed.closed.lock().unwrap(), [(0, CloseCause::Service(9))]);
}

#[test]
fn a_peer_that_is_done_is_let_go_at_once() {
    let world = start(1, 100, None);
    let mut done = world.connect();
    done.write_all(b"done\n").unwrap();
    expect_end(&mut done);
    // Its slot was free before it heard the end: nobody waits for its side, which is still open.
    assert_eq!(world.reactor.totals().connections, 0);
    wait_until(|| !world.closed.closed.lock().unwrap().is_empty());
    assert_eq!(*world.closed.closed.lock().unwrap(), [(0, CloseCause::PeerDone(6))]);
}

#[test]
fn last_words_survive_unread_bytes() {
    let world = start(1, 10, None);
    let mut stream = world.connect();
    let mut text = b"bye\n".to_vec();
    text.resize(200_000, b'z'); // unread by the service: an abrupt close would send a reset
    stream.write_all(&text).unwrap();
    expect(&mut stream, b"bye\n");
    expect_end(&mut stream);
}

#[test]
fn taken_port_is_named() {
    let world = start(1, 10, None);
    let spec = ReactorSpec {
        shards: 1,
        listeners: vec![ListenerSpec::tcp("127.0.0.1", world.address().port())],
        limits: limits(1),
        clock: Clock::start(),
    };
    let all_rooms = Arc::new(AtomicUsize::new(0));
    let make = |_| Echo {
        closed: Seen::default(),
        shards: 1,
        idle_ms: None,
        owed: Vec::new(),
        rooms: Arc::clone(&all_rooms),
    };
    let on_failure: quantumqtt_reactor::OnFailure = Arc::new(|words| panic!("{words}"));
    let refused = Reactor::start(&spec, make, &on_failure).unwrap_err();
    assert_eq!(refused.to_string(), format!("cannot listen on {}", world.address()));
}

#[test]
fn room_is_told_after_a_full_socket_was_read() {
    let world = start(1, 10, None);
    let mut stream = world.connect();
    let mut text = vec![b'y'; 12_000_000];
    text.push(b'\n');
    let mut writer = stream.try_clone().unwrap();
    let sent = text.clone();
    // Nothing is read until all is sent: the echo must fill every buffer on its way back.
    writer.write_all(&sent).unwrap();
    expect(&mut stream, &text);
    assert!(world.rooms.load(Ordering::Relaxed) > 0);
}
