//! The life of a node: start, watch, drain, stop.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quantumqtt_machine::{EntryHeader, Limits as MachineLimits, Machine, SessionView};
use quantumqtt_reactor::{
    BoundListener, Clock, ConnectionId, Limits as ReactorLimits, ListenerSpec, OnFailure, Poster,
    Reactor, ReactorSpec, TlsContext,
};
use quantumqtt_topics::RuleTable;
use quantumqtt_wire::ReasonCode;

use crate::admission::Doors;
use crate::authentication::Answer;
use crate::caretaker::{Caretaker, Finding, Tell};
use crate::config::{ConfigError, NodeConfig};
use crate::disk_use::DiskLevel;
use crate::events::{Event, EventKind, EventQueue};
use crate::index::{Index, Router};
use crate::limits::{ANSWER_WITHIN_MS, SETTLE_MIN};
use crate::log::Log;
use crate::message_log::MessageLog;
use crate::open_log::{self, Beginning, LogError, Opened};
use crate::partition::Partition;
use crate::pressure::Pressure;
use crate::questions::{Question, StateDigest};
use crate::registry::Registry;
use crate::rights::{Policy, Rights};
use crate::settling::Settled;
use crate::shard::{Mail, ShardService, Shared};
use crate::statistics::{ShardCells, Statistics};
use crate::system::SystemMessage;
use crate::verdicts::Verdicts;

/// The tenant every embedded node has; a cluster numbers its tenants in the control plane's log.
const DEFAULT_TENANT: u32 = 0;
/// The only partition so far, and the shard that owns it.
const PARTITION: u32 = 0;
const PARTITION_OWNER: u16 = 0;

/// A node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It was told something impossible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kernel said no.
    #[error(transparent)]
    Reactor(#[from] quantumqtt_reactor::Error),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No thread to look after the log.
    #[error("cannot start the threads that look after the log")]
    Caretaker(#[source] std::io::Error),
    /// No descriptor for the event bell.
    #[error("cannot make an eventfd")]
    Bell(#[source] std::io::Error),
}

/// One running broker node. Dropping it stops it.
#[derive(Debug)]
pub struct Node {
    reactor: Reactor<ShardService>,
    shared: Arc<Shared>,
    clock: Clock,
    shards: u16,
    policies: AtomicU64,
    caretaker: Mutex<Option<Caretaker>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("node_id", &self.node_id).finish_non_exhaustive()
    }
}

impl Node {
    /// Bind every listener and start every shard; either all of it or nothing.
    pub fn start(config: &NodeConfig) -> Result<Self, StartError> {
        config.validate()?;
        let clock = Clock::start();
        let limits = config.limits;
        let (partition, log, opened, message_log) = match &config.log {
            None => (memory_partition(beginning(config, clock)), None, None, None),
            Some(log) => {
                let Opened { mut partition, view, bell, checkpointer, keys, message_log } =
                    open_log::open(log, &beginning(config, clock))?;
                partition.keep_checkpoints(checkpointer);
                (partition, Some(view), Some((bell, keys)), Some(Arc::new(message_log)))
            }
        };
        let shared = Arc::new(Shared {
            node_id: config.node_id,
            durability: config.durability(),
            started_ms: clock.now_ms(),
            limits,
            registry: Registry::default(),
            verdicts: Verdicts::default(),
            disconnect_denied: config.disconnect_denied,
            client_id_is_user: config.client_id_is_user,
            auth_methods: config.auth_methods.iter().map(|method| method.as_str().into()).collect(),
            tolerates_excess: config.tolerates_excess,
            index: Arc::new(Index::default()),
            events: EventQueue::new(limits.event_queue_count_max).map_err(StartError::Bell)?,
            cells: (0..config.shards).map(|_| ShardCells::default()).collect(),
            pressure: Pressure::new(limits.log_pending_bytes_max),
            settled: Settled::default(),
            log,
            message_log,
            stored_subscriptions: AtomicU64::new(0),
            next_offset: AtomicU64::new(0),
            playbacks: Arc::default(),
            poster: OnceLock::new(),
        });
        let spec = ReactorSpec {
            shards: config.shards,
            listeners: config.listeners.iter().map(listener_spec).collect(),
            limits: ReactorLimits {
                connections_max: limits.connections_max,
                connections_per_address_max: limits.connections_per_address_max,
                handshake_timeout_ms: limits.connect_timeout_ms,
                out_bytes_soft: limits.out_buffer_bytes_soft,
                out_bytes_max: limits.out_buffer_bytes_max,
            },
            clock,
        };
        let doors = Doors {
            allow_anonymous: config.listeners.iter().map(|door| door.allow_anonymous).collect(),
            allow_passwords: config.listeners.iter().map(|door| door.allow_passwords).collect(),
            packet_bytes_max: config
                .listeners
                .iter()
                .map(|door| door.packet_bytes_max.min(limits.packet_bytes_max))
                .collect(),
            ask_python: config.ask_admission,
        };
        for client_id in partition.machine().client_ids() {
            shared.registry.set_stored(client_id, true);
        }
        let stored = partition.machine().statistics();
        shared.stored_subscriptions.store(stored.subscriptions, Ordering::Release);
        shared.next_offset.store(stored.next_offset, Ordering::Release);
        let mut partition = Some(partition);
        let make = |shard| {
            let partition = partition.take_if(|_| shard == PARTITION_OWNER);
            let router = Router::new(Arc::clone(&shared.index), config.rules.clone());
            let rights = Rights::new(config.rules.clone());
            let (shared, doors) = (Arc::clone(&shared), doors.clone());
            ShardService::new(shard, config.shards, shared, doors, rights, router, partition)
        };
        let on_failure = failure_event(&shared, clock);
        let reactor = Reactor::start(&spec, make, &on_failure)?;
        // Nobody else sets it; and nobody replays anything before there are connections.
        let _ = shared.poster.set(Arc::new(reactor.poster()));
        let mut caretaker = None;
        if let Some((bell, keys)) = opened {
            bell.hand_to(reactor.poster());
            // Whatever the disk did between the last look and now.
            reactor.post(PARTITION_OWNER, Mail::LogMoved);
            if let (Some(log), Some(view)) = (&config.log, &shared.log) {
                let tell = tell_findings(&shared, reactor.poster(), clock);
                let started = Caretaker::start(log, keys, view, &tell);
                caretaker = Some(started.map_err(StartError::Caretaker)?);
            }
        }
        let policies = AtomicU64::new(0);
        let caretaker = Mutex::new(caretaker);
        Ok(Self { reactor, shared, clock, shards: config.shards, policies, caretaker })
    }

    /// Where it really listens, in the order of the configuration.
    pub fn listeners(&self) -> &[BoundListener] {
        self.reactor.listeners()
    }

    /// A descriptor that is readable while events wait; the node owns it.
    pub fn event_fd(&self) -> RawFd {
        self.shared.events.fd()
    }

    /// What happened since the last call, oldest first, without waiting.
    pub fn poll_events(&self, count_max: usize) -> Vec<Event> {
        self.shared.events.take(count_max)
    }

    /// Whether who comes and goes is always told (as it is at first), or only while some client
    /// subscribes to topics of the broker that are about clients.
    pub fn set_tells_sessions(&self, always: bool) {
        self.shared.events.set_tells_sessions(always);
    }

    /// Answers to `AdmissionWanted`, by ticket; good ones may be remembered, or not.
    pub fn answer_admissions(&self, verdicts: &[(u64, u8)], may_be_remembered: bool) {
        for &(ticket, code) in verdicts {
            let connection = ConnectionId::from_bits(ticket);
            if connection.shard() < self.shards {
                let verdict =
                    Mail::Verdict { connection, code: ReasonCode(code), may_be_remembered };
                self.reactor.post(connection.shard(), verdict);
            }
        }
    }

    /// Answers to `AuthenticationWanted`, by ticket.
    pub fn answer_authentications(&self, answers: Vec<(u64, Answer)>) {
        for (ticket, answer) in answers {
            let connection = ConnectionId::from_bits(ticket);
            if connection.shard() < self.shards {
                let answer = Box::new(answer);
                self.reactor.post(connection.shard(), Mail::Answer { connection, answer });
            }
        }
    }

    /// Have the broker say something of itself; what is kept is for later subscribers too.
    pub fn say(&self, messages: Vec<SystemMessage>) {
        self.reactor.post(PARTITION_OWNER, Mail::System(messages));
    }

    /// From now on these rules; clients of `revoked` users are ended, and no credentials are
    /// remembered from before. Every shard follows in its next turn.
    pub fn set_policy(&self, rules: Option<Arc<RuleTable>>, revoked: Vec<String>) {
        self.shared.verdicts.forget_all();
        let generation = self.policies.fetch_add(1, Ordering::Relaxed) + 1;
        let revoked = revoked.into_iter().map(Into::into).collect();
        let policy = Arc::new(Policy { generation, rules, revoked });
        for shard in 0..self.shards {
            self.reactor.post(shard, Mail::Policy(Arc::clone(&policy)));
        }
    }

    /// From now on the listener at this position shows and demands this; connections stay.
    pub fn set_tls(&self, listener: usize, context: &Arc<TlsContext>) {
        self.reactor.set_tls(listener, context);
    }

    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        let totals = self.reactor.totals();
        let mut statistics = Statistics {
            uptime_ms: self.clock.uptime_ms(),
            connections: totals.connections,
            connections_total: totals.accepted,
            connections_refused_full_total: totals.refused_full,
            bytes_received_total: totals.bytes_received,
            bytes_sent_total: totals.bytes_sent,
            tls_handshakes_total: totals.tls_handshakes,
            tls_resumptions_total: totals.tls_resumptions,
            subscriptions: self.shared.index.len(),
            events_merged_total: self.shared.events.merged(),
            shards: self.shards,
            log: self.shared.log.as_ref().map(|log| log.statistics(self.shared.pressure.bytes())),
            ..Statistics::default()
        };
        for cells in &self.shared.cells {
            statistics.add_shard(cells);
        }
        statistics
    }

    /// The message log of a partition; None where there is no such partition, or no log.
    pub fn message_log(&self, partition: u32) -> Option<Arc<MessageLog>> {
        self.shared.message_log.clone().filter(|_| partition == PARTITION)
    }

    /// Stop accepting, say goodbye, wait for the connections to close; true when all did in time.
    ///
    /// What they leave behind is in the log by then.
    pub fn drain(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let all_left = self.reactor.drain(within);
        for shard in 0..self.shards {
            self.reactor.post(shard, Mail::Settle);
        }
        self.shared.settled.wait(until.max(Instant::now() + SETTLE_MIN)) && all_left
    }

    /// The digest of the whole state. Walks all of it; None when the node ends meanwhile.
    pub fn digest(&self) -> Option<StateDigest> {
        self.ask(Question::Digest)
    }

    /// The stored session of a client. The outer None says that the node ends meanwhile.
    pub fn session(&self, client_id: &str) -> Option<Option<SessionView>> {
        self.ask(|answer| Question::Session { client_id: client_id.to_owned(), answer })
    }

    fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Question) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.reactor.post(PARTITION_OWNER, Mail::Asked(question(answer)));
        answered.recv_timeout(Duration::from_millis(ANSWER_WITHIN_MS)).ok()
    }

    /// Cut what is left and end every thread.
    pub fn stop(&self) {
        drop(self.caretaker.lock().take());
        self.reactor.stop();
        self.shared.settled.tell(); // nothing more can be
    }
}

fn listener_spec(listener: &crate::config::ListenerConfig) -> ListenerSpec {
    ListenerSpec {
        endpoint: listener.endpoint.clone(),
        wrapping: listener.wrapping.clone(),
        proxies: listener.proxies.clone(),
        connections_max: listener.connections_max,
    }
}

fn beginning(config: &NodeConfig, clock: Clock) -> Beginning {
    Beginning {
        limits: MachineLimits {
            queue_count_max: config.limits.offline_count_max,
            queue_bytes_max: config.limits.offline_bytes_max,
            subscriptions_max: config.limits.subscriptions_max,
            ..MachineLimits::default()
        },
        will_grace_s: config.limits.will_grace_s,
        header: EntryHeader {
            partition: PARTITION,
            tenant: DEFAULT_TENANT,
            routing_epoch: 1,
            leader: config.node_id,
            ..EntryHeader::default()
        },
        owner: PARTITION_OWNER,
        tenant: config.tenant.as_str().into(),
        now_ms: clock.now_ms(),
        clock,
    }
}

fn memory_partition(Beginning { header, limits, .. }: Beginning) -> Partition {
    Partition::new(Machine::new(PARTITION, limits), header, Log::Memory(VecDeque::new()))
}

/// Damage and a disk that fills concern publishers, the partition's owner, and Python. A checkpoint
/// helps against both: the state in memory is whole, and behind it old files are not needed.
fn tell_findings(shared: &Arc<Shared>, poster: Poster<Mail>, clock: Clock) -> Tell {
    let shared = Arc::clone(shared);
    let told = Mutex::new(DiskLevel::Roomy);
    Arc::new(move |finding| {
        let (kind, reason) = match finding {
            Finding::Damage(said) => {
                poster.post(PARTITION_OWNER, Mail::CheckpointWanted);
                (EventKind::LogDamaged, said)
            }
            Finding::Disk(found) => {
                shared.pressure.set_level(found.level);
                if found.level != DiskLevel::Roomy {
                    poster.post(PARTITION_OWNER, Mail::CheckpointWanted);
                }
                // The owner releases publishers that were held, if there is room now.
                poster.post(PARTITION_OWNER, Mail::LogMoved);
                if std::mem::replace(&mut *told.lock(), found.level) == found.level {
                    return;
                }
                let (used, capacity) = (found.used_bytes, found.capacity_bytes);
                let said = format!("{}: {used} of {capacity} bytes", found.level.label());
                (EventKind::DiskLevelChanged, said)
            }
        };
        let mut event = Event::new(kind, clock.now_ms());
        event.reason = Some(reason.into());
        shared.events.tell(event);
    })
}

/// A dead shard is told to Python, which decides whether the process goes on.
fn failure_event(shared: &Arc<Shared>, clock: Clock) -> OnFailure {
    let shared = Arc::clone(shared);
    Arc::new(move |words| {
        let mut event = Event::new(EventKind::ShardFailed, clock.now_ms());
        event.reason = Some(words.into());
        shared.events.tell(event);
    })
}
