//! What a node counts. Each shard writes its own cells; a snapshot sums them.

use std::sync::atomic::{AtomicU64, Ordering};

use quantumqtt_machine::{Counters, Statistics as Stored};
use quantumqtt_wire::QoS;

use crate::reasons::{CloseReason, DenialReason, DropReason, RefusalReason};

/// The cells of one shard: written by its thread only, so a plain add is enough.
#[derive(Debug)]
pub(crate) struct ShardCells {
    received: [AtomicU64; 3],
    sent: [AtomicU64; 3],
    entries: AtomicU64,
    commands: AtomicU64,
    drops: Vec<AtomicU64>,
    closes: Vec<AtomicU64>,
    refusals: Vec<AtomicU64>,
    denials: Vec<AtomicU64>,
    sessions_stored: AtomicU64,
    sessions_attached: AtomicU64,
    sessions_expired: AtomicU64,
    retained: AtomicU64,
    retained_bytes: AtomicU64,
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    dedupe_keys: AtomicU64,
    publishes_deduplicated: AtomicU64,
    dedupe_keys_pressed_out: AtomicU64,
}

fn cells(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn add(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl Default for ShardCells {
    fn default() -> Self {
        Self {
            received: Default::default(),
            sent: Default::default(),
            entries: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            drops: cells(DropReason::ALL.len()),
            closes: cells(CloseReason::ALL.len()),
            refusals: cells(RefusalReason::ALL.len()),
            denials: cells(DenialReason::ALL.len()),
            sessions_stored: AtomicU64::new(0),
            sessions_attached: AtomicU64::new(0),
            sessions_expired: AtomicU64::new(0),
            retained: AtomicU64::new(0),
            retained_bytes: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            dedupe_keys: AtomicU64::new(0),
            publishes_deduplicated: AtomicU64::new(0),
            dedupe_keys_pressed_out: AtomicU64::new(0),
        }
    }
}

impl ShardCells {
    pub(crate) fn count_received(&self, qos: QoS, messages: u64) {
        add(&self.received[qos as usize], messages);
    }

    pub(crate) fn count_sent(&self, qos: QoS, messages: u64) {
        add(&self.sent[qos as usize], messages);
    }

    pub(crate) fn count_entry(&self, commands: u64) {
        add(&self.entries, 1);
        add(&self.commands, commands);
    }

    pub(crate) fn count_drop(&self, reason: DropReason, messages: u64) {
        add(&self.drops[reason as usize], messages);
    }

    pub(crate) fn count_close(&self, reason: CloseReason) {
        add(&self.closes[reason as usize], 1);
    }

    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        add(&self.refusals[reason as usize], 1);
    }

    pub(crate) fn count_denial(&self, reason: DenialReason) {
        add(&self.denials[reason as usize], 1);
    }

    /// Gauges of the partitions this shard owns.
    pub(crate) fn set_stored(&self, stored: &Stored) {
        let set = |cell: &AtomicU64, now: u64| cell.store(now, Ordering::Relaxed);
        set(&self.sessions_stored, stored.sessions);
        set(&self.sessions_attached, stored.sessions_attached.saturating_sub(stored.guests));
        set(&self.retained, stored.retained);
        set(&self.retained_bytes, stored.retained_bytes);
        set(&self.queued, stored.queued);
        set(&self.queued_bytes, stored.queued_bytes);
        set(&self.dedupe_keys, stored.dedupe_keys);
        set(&self.publishes_deduplicated, stored.counters.deduplicated_publishes);
        set(&self.dedupe_keys_pressed_out, stored.counters.dedupe_keys_pressed_out);
    }

    /// What a machine has counted since it was looked at last.
    pub(crate) fn count_machine(&self, before: &Counters, now: &Counters) {
        add(&self.sessions_expired, now.sessions_expired - before.sessions_expired);
        for (reason, before, now) in [
            (DropReason::PacketTooLarge, before.oversized_dropped, now.oversized_dropped),
            (DropReason::Expired, before.expired_messages, now.expired_messages),
            (DropReason::QueueFull, before.overflow_dropped, now.overflow_dropped),
            (DropReason::ShareUnserved, before.share_unserved, now.share_unserved),
        ] {
            self.count_drop(reason, now - before);
        }
    }
}

/// What the log says of itself.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names are the metrics; documented in _core.pyi")]
pub struct LogStatistics {
    /// `ok`, `full` or `failed`.
    pub state: &'static str,
    /// Why it is not `ok`.
    pub reason: Option<String>,
    pub pending_bytes: u64,
    pub written_bytes_total: u64,
    pub syncs_total: u64,
    pub sync_ns_total: u64,
    pub segments: u64,
    pub applied_index: u64,
    pub checkpoint_index: u64,
    pub checkpoints_total: u64,
    pub checkpoint_failures_total: u64,
    /// Why the latest attempt failed, if it did.
    pub checkpoint_error: Option<String>,
    /// `roomy`, `tight` or `full`.
    pub disk_level: &'static str,
    pub disk_used_bytes: u64,
    pub disk_capacity_bytes: u64,
    pub scrub: ScrubStatistics,
}

/// What the background scrub says of itself.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names are the metrics; documented in _core.pyi")]
pub struct ScrubStatistics {
    pub bytes_total: u64,
    pub passes_total: u64,
    pub findings_total: u64,
    pub coverage_age_ms: u64,
    /// What does not check out, until a pass finds everything whole.
    pub damage: Option<String>,
}

/// A frozen snapshot of the whole node; the only thing exporters read.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names are the metrics; documented in _core.pyi")]
pub struct Statistics {
    pub uptime_ms: u64,
    pub connections: u64,
    pub connections_total: u64,
    pub connections_refused_full_total: u64,
    pub sessions_stored: u64,
    pub sessions_attached: u64,
    pub sessions_expired_total: u64,
    pub retained: u64,
    pub retained_bytes: u64,
    pub queued: u64,
    pub queued_bytes: u64,
    pub dedupe_keys: u64,
    pub publishes_deduplicated_total: u64,
    pub dedupe_keys_pressed_out_total: u64,
    pub subscriptions: u64,
    pub publishes_received_total: [u64; 3],
    pub publishes_sent_total: [u64; 3],
    pub bytes_received_total: u64,
    pub bytes_sent_total: u64,
    pub tls_handshakes_total: u64,
    pub tls_resumptions_total: u64,
    pub entries_applied_total: u64,
    pub commands_applied_total: u64,
    pub drops_total: Vec<(&'static str, u64)>,
    pub closes_total: Vec<(&'static str, u64)>,
    pub refusals_total: Vec<(&'static str, u64)>,
    pub denials_total: Vec<(&'static str, u64)>,
    pub events_merged_total: u64,
    pub shards: u16,
    /// None under durability `memory`.
    pub log: Option<LogStatistics>,
}

impl Statistics {
    pub(crate) fn add_shard(&mut self, shard: &ShardCells) {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        for qos in 0..3 {
            self.publishes_received_total[qos] += load(&shard.received[qos]);
            self.publishes_sent_total[qos] += load(&shard.sent[qos]);
        }
        self.entries_applied_total += load(&shard.entries);
        self.commands_applied_total += load(&shard.commands);
        self.sessions_stored += load(&shard.sessions_stored);
        self.sessions_attached += load(&shard.sessions_attached);
        self.sessions_expired_total += load(&shard.sessions_expired);
        self.retained += load(&shard.retained);
        self.retained_bytes += load(&shard.retained_bytes);
        self.queued += load(&shard.queued);
        self.queued_bytes += load(&shard.queued_bytes);
        self.dedupe_keys += load(&shard.dedupe_keys);
        self.publishes_deduplicated_total += load(&shard.publishes_deduplicated);
        self.dedupe_keys_pressed_out_total += load(&shard.dedupe_keys_pressed_out);
        let sum = |into: &mut Vec<(&'static str, u64)>, labels: &[&'static str], from: &[_]| {
            into.resize_with(labels.len(), || ("", 0));
            for ((slot, &label), cell) in into.iter_mut().zip(labels).zip(from) {
                *slot = (label, slot.1 + load(cell));
            }
        };
        let drops: Vec<_> = DropReason::ALL.iter().map(|reason| reason.label()).collect();
        let closes: Vec<_> = CloseReason::ALL.iter().map(|reason| reason.label()).collect();
        let refusals: Vec<_> = RefusalReason::ALL.iter().map(|reason| reason.label()).collect();
        let denials: Vec<_> = DenialReason::ALL.iter().map(|reason| reason.label()).collect();
        sum(&mut self.drops_total, &drops, &shard.drops);
        sum(&mut self.closes_total, &closes, &shard.closes);
        sum(&mut self.refusals_total, &refusals, &shard.refusals);
        sum(&mut self.denials_total, &denials, &shard.denials);
    }
}
