//! One thread of the generator: its clients, and the loop that serves them.
//!
//! A *turn* is: wait for sockets, read what came, send what may be sent. Reading opens windows
//! (acknowledgements, and at QoS 0 deliveries), and publishers whose window opened send at the end
//! of the turn, in one write each: the busier the loop, the larger its batches.
//!
//! Sockets are watched by edges. A client that had more to read than its part of a turn is put on
//! the list `unread` and served again in the next one; a publisher that could send more is put on
//! `eager`. While either list holds somebody, the loop does not sleep.
//!
//! This file holds the state and the loop; what happens to single clients stands in `opening.rs`
//! (connect, subscribe, leave), `inbound.rs` (packets that came) and `outbound.rs` (publishing).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::block::filler;
use crate::client::{Client, Phase, Publisher, Role, Subscriber};
use crate::error::LoadError;
use crate::plan::{Plan, Share};
use crate::spec::Scenario;
use crate::tally::{Board, Tally};

const EVENTS_MAX: usize = 1024;
/// What all connections of a thread read into; it grows when packets are larger than half of it.
const BUFFER_BYTES: usize = 256 * 1024;
/// How often slow things are looked at: timeouts, stalls, pings, the board.
const HOUSEKEEPING_NS: u64 = 50_000_000;
/// The finest step of the timetable: at higher rates messages leave in small groups, late by this
/// at most, and stamped with the time at which they were due.
const TIMER_STEP_NS: u64 = 20_000;
/// Socket buffers hold megabytes of small messages per publisher, and a slow broker reads on long
/// after the last was written.
const FENCE_PATIENCE: Duration = Duration::from_secs(60);
const TIMER: Token = Token(usize::MAX);

/// A thread's clients and figures.
pub(crate) struct Worker {
    pub(crate) plan: Arc<Plan>,
    pub(crate) share: Share,
    pub(crate) board: Arc<Board>,
    pub(crate) poll: Poll,
    timer: OwnedFd,
    pub(crate) clients: Vec<Client>,
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) subscribers: Vec<Subscriber>,
    pub(crate) buffer: Vec<u8>,
    /// What every payload of this run looks like, but for its stamp.
    pub(crate) filler: Vec<u8>,
    pub(crate) tally: Tally,

    /// Clients to open, in order.
    pub(crate) to_open: VecDeque<usize>,
    pub(crate) busy: usize,
    pub(crate) settled: usize,
    pub(crate) next_open_ns: u64,

    pub(crate) unread: Vec<usize>,
    pub(crate) eager: Vec<usize>,

    pub(crate) now_ns: u64,
    pub(crate) start_ns: u64,
    /// When publishing ends, or never.
    pub(crate) stop_ns: u64,
    pub(crate) first_activity_ns: u64,
    pub(crate) last_activity_ns: u64,
    /// Publishes at QoS 1 and 2 without their last answer.
    pub(crate) unanswered: u64,
    /// Messages of the timetable that were handed to their publishers.
    pub(crate) released: u64,
    next_housekeeping_ns: u64,
    pub(crate) pings: u64,
    /// Publishing is allowed; false while clients connect.
    pub(crate) is_measuring: bool,
    pub(crate) was_cut_short: bool,
}

impl Worker {
    pub(crate) fn new(plan: Arc<Plan>, share: Share, board: Arc<Board>) -> Result<Self, LoadError> {
        let setup = |what| move |source: io::Error| LoadError::Setup { what, source };
        let poll = Poll::new().map_err(setup("a poller"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| setup("a timer")(error.into()))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(setup("a timer"))?;
        let encode = |error: quantumqtt_wire::EncodeError| LoadError::Spec {
            field: "topic",
            why: error.to_string(),
        };
        let publishers = share
            .publishers
            .clone()
            .map(|number| Publisher::new(&plan, number).map_err(encode))
            .collect::<Result<Vec<_>, _>>()?;
        let subscribers: Vec<_> = share
            .subscribers
            .clone()
            .map(|number| Subscriber::new(plan.heard_streams(number)))
            .collect();
        let clients: Vec<_> = (share.publishers.clone().enumerate())
            .map(|(index, number)| Client::new(Role::Publisher(index), number))
            .chain(
                (share.subscribers.clone().enumerate())
                    .map(|(index, number)| Client::new(Role::Subscriber(index), number)),
            )
            .chain(share.bare.clone().map(|number| Client::new(Role::Bare, number)))
            .collect();
        let filler = filler(plan.spec.payload_bytes);
        Ok(Self {
            to_open: (0..clients.len()).collect(),
            plan,
            share,
            board,
            poll,
            timer,
            clients,
            publishers,
            subscribers,
            buffer: vec![0; BUFFER_BYTES],
            filler,
            tally: Tally::default(),
            busy: 0,
            settled: 0,
            next_open_ns: 0,
            unread: Vec::new(),
            eager: Vec::new(),
            now_ns: 0,
            start_ns: 0,
            stop_ns: u64::MAX,
            first_activity_ns: 0,
            last_activity_ns: 0,
            unanswered: 0,
            released: 0,
            next_housekeeping_ns: 0,
            pings: 0,
            is_measuring: false,
            was_cut_short: false,
        })
    }

    /// Connects and subscribes every client; ends when each of them runs or has failed.
    pub(crate) fn connect(&mut self) -> io::Result<()> {
        self.now_ns = self.plan.now_ns();
        self.next_open_ns = self.now_ns;
        let mut events = Events::with_capacity(EVENTS_MAX);
        while self.settled < self.clients.len() && !self.must_stop() {
            self.open_more();
            self.turn(&mut events)?;
        }
        self.board.show(&self.tally);
        Ok(())
    }

    /// Runs the scenario; ends when it is over and the last messages have come or are given up.
    pub(crate) fn measure(&mut self, start_ns: u64) -> io::Result<()> {
        self.begin(start_ns);
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_over() {
            if self.must_stop() {
                self.was_cut_short = true;
                break;
            }
            if self.reopens() {
                self.open_more();
            }
            self.release_due()?;
            self.turn(&mut events)?;
        }
        if !self.was_cut_short && self.needs_fences() {
            self.judge_fences();
        }
        self.board.show(&self.tally);
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        let spec = &self.plan.spec;
        let duration_ns = u64::try_from(spec.duration.as_nanos()).unwrap_or(u64::MAX);
        self.start_ns = start_ns;
        self.stop_ns =
            if duration_ns == 0 { u64::MAX } else { start_ns.saturating_add(duration_ns) };
        self.now_ns = self.plan.now_ns().max(start_ns);
        self.first_activity_ns = start_ns;
        self.last_activity_ns = start_ns;
        self.next_open_ns = start_ns;
        self.is_measuring = true;
        for index in 0..self.publishers.len() {
            self.publishers[index].progress_ns = start_ns;
            if self.plan.pace.is_none() {
                self.make_eager(index);
            }
        }
    }

    /// Whether clients are opened while measuring.
    pub(crate) fn reopens(&self) -> bool {
        self.plan.spec.scenario == Scenario::Connect
    }

    fn must_stop(&self) -> bool {
        let deadline_ns = u64::try_from(self.plan.spec.deadline.as_nanos()).unwrap_or(u64::MAX);
        self.board.must_stop() || self.now_ns >= deadline_ns
    }

    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = self.timeout();
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
            other => other?,
        }
        self.now_ns = self.plan.now_ns();
        for event in events.iter() {
            if event.token() == TIMER {
                continue;
            }
            let index = event.token().0;
            if event.is_writable() || event.is_error() {
                self.on_writable(index);
            }
            let may_end = event.is_read_closed() || event.is_error();
            if event.is_readable() || may_end {
                self.on_readable(index, may_end);
            }
        }
        self.serve_lists();
        if self.is_measuring && self.needs_fences() && self.publishing_is_over() {
            self.raise_fences();
        }
        if self.now_ns >= self.next_housekeeping_ns {
            self.keep_house();
            self.next_housekeeping_ns = self.now_ns + HOUSEKEEPING_NS;
        }
        Ok(())
    }

    /// Serves those who are on a list now; they may join it again for the next turn.
    fn serve_lists(&mut self) {
        for index in std::mem::take(&mut self.unread) {
            self.clients[index].is_queued = false;
            self.on_readable(index, true);
        }
        let mut eager = std::mem::take(&mut self.eager);
        for index in eager.drain(..) {
            self.publishers[index].is_queued = false;
            self.pump(index);
        }
        // The list keeps its memory: it is as long as the publishers are many, every turn.
        if self.eager.is_empty() {
            self.eager = eager;
        }
    }

    fn timeout(&self) -> Duration {
        let opens_now = !self.to_open.is_empty() && self.next_open_ns <= self.now_ns;
        let can_open = opens_now && self.busy < self.open_at_once();
        if !self.unread.is_empty() || !self.eager.is_empty() || can_open {
            return Duration::ZERO;
        }
        let mut wake_ns = self.next_housekeeping_ns.min(self.stop_ns.max(self.now_ns + 1));
        if !self.to_open.is_empty() && self.busy < self.open_at_once() {
            wake_ns = wake_ns.min(self.next_open_ns);
        }
        Duration::from_nanos(wake_ns.saturating_sub(self.now_ns))
    }

    /// Open loop: makes those publishers eager that have messages due, and sets the timer to the
    /// next one.
    fn release_due(&mut self) -> io::Result<()> {
        let Some(pace) = self.plan.pace else { return Ok(()) };
        self.now_ns = self.plan.now_ns();
        if self.now_ns >= self.stop_ns {
            return Ok(());
        }
        let due = pace.due_total(self.now_ns.saturating_sub(self.start_ns));
        let first = self.released.max(due.saturating_sub(u64::from(self.plan.spec.publishers)));
        for message in first..due {
            let publisher = pace.publisher_of(message) as u32;
            if self.share.publishers.contains(&publisher) {
                self.make_eager((publisher - self.share.publishers.start) as usize);
            }
        }
        self.released = due;
        let next_ns = self.start_ns + pace.due_at(due);
        let wait_ns = next_ns.saturating_sub(self.now_ns).max(TIMER_STEP_NS);
        self.set_timer(Duration::from_nanos(wait_ns))
    }

    /// Arms the timer anew; that also clears an expiry nobody has read, so it need not be read.
    fn set_timer(&self, after: Duration) -> io::Result<()> {
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(after.subsec_nanos()),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn keep_house(&mut self) {
        self.board.show(&self.tally);
        self.expire_openings();
        self.ping_due();
        if self.is_measuring {
            self.write_off_stalls();
        }
    }

    /// Whether the scenario has run its course.
    fn is_over(&self) -> bool {
        let spec = &self.plan.spec;
        let time_is_up = self.now_ns >= self.stop_ns;
        match spec.scenario {
            Scenario::Idle => time_is_up || (self.stop_ns == u64::MAX),
            Scenario::Connect => self.to_open.is_empty() && self.busy == 0,
            Scenario::Subscribe => {
                let wanted = spec.messages.saturating_mul(u64::from(spec.subscribers));
                time_is_up || (wanted > 0 && self.tally.received >= wanted) || self.all_gone()
            }
            _ if !self.publishing_is_over() => self.publishers_gone(),
            _ => {
                let quiet_ns = self.now_ns.saturating_sub(self.last_activity_ns);
                self.have_settled() || quiet_ns >= self.patience_ns() || self.all_gone()
            }
        }
    }

    /// Whether nothing more is to be sent.
    fn publishing_is_over(&self) -> bool {
        self.now_ns >= self.stop_ns || self.have_sent_all()
    }

    /// How long to wait without progress for what is under way.
    fn patience_ns(&self) -> u64 {
        let patience = self.plan.spec.patience;
        let patience = if self.needs_fences() { patience.max(FENCE_PATIENCE) } else { patience };
        u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)
    }

    fn have_sent_all(&self) -> bool {
        let messages = self.plan.spec.messages;
        let wanted = messages.saturating_mul(self.publishers.len() as u64);
        messages > 0 && self.tally.sent >= wanted
    }

    /// Whether everything that was sent has arrived and is answered for.
    fn have_settled(&self) -> bool {
        let expected = self.tally.sent * u64::from(self.plan.hearers());
        self.unanswered == 0
            && self.tally.distinct() >= expected
            && self.publishers.iter().all(|one| one.block.unwritten(false).is_empty())
            && (!self.needs_fences() || self.unread_publishers() == 0)
    }

    fn publishers_gone(&self) -> bool {
        let count = self.publishers.len();
        self.clients[..count].iter().all(|client| client.phase == Phase::Gone)
    }

    fn all_gone(&self) -> bool {
        self.clients.iter().all(|client| client.phase == Phase::Gone)
    }

    /// Messages that were sent and reached a subscriber not at all, once per subscriber.
    pub(crate) fn lost(&self) -> u64 {
        let topics = u64::from(self.plan.spec.topics);
        let first_publisher = self.share.publishers.start;
        let lost_at = |subscriber: &Subscriber| -> u64 {
            let streams = subscriber.first_stream..;
            let pairs = subscriber.checks.iter().zip(streams);
            pairs
                .map(|(check, stream)| {
                    let (number, topic) = (u64::from(stream) / topics, u64::from(stream) % topics);
                    let index = (number - u64::from(first_publisher)) as usize;
                    let sent = self.publishers[index].sent.saturating_sub(topic);
                    check.lost(sent.div_ceil(topics))
                })
                .sum()
        };
        self.subscribers.iter().map(lost_at).sum()
    }
}
