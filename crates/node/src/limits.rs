//! Bounds that are not the operator's to set, with the reason for each.

use std::time::Duration;

/// Delivered QoS 1 and 2 messages a transient session may have waiting behind its window, and
/// their bytes. Such a session dies with its connection, so a long queue only delays the bad news.
pub(crate) const WAITING_COUNT_MAX: usize = 100_000;
pub(crate) const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Open inbound QoS 2 exchanges of a transient session; the receive maximum we announce is lower
/// or equal, so only a client that breaks the rules gets here.
pub(crate) const RECEIVED_IDS_MAX: usize = 65_535;
/// QoS 0 deliveries of a stored session behind others that wait for room; the rest is bounded by
/// its window.
pub(crate) const DELIVERIES_WAITING_MAX: usize = 2_048;
/// Bytes of the topics behind one client's aliases; as much as 32 of the longest topics.
pub(crate) const ALIAS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// AUTH packets of a client in one exchange; SCRAM needs two.
pub(crate) const AUTHENTICATION_STEPS_MAX: u32 = 16;
/// Topics of `$SYS/…` that are kept; presence of clients is not among them.
pub(crate) const SYSTEM_TOPICS_MAX: usize = 1_024;
/// One page of retained messages for a transient subscriber: so many messages, about so many bytes,
/// and so many topics looked at for them.
pub(crate) const RETAINED_PAGE_MESSAGES: usize = 256;
pub(crate) const RETAINED_PAGE_BYTES: usize = 256 * 1024;
pub(crate) const RETAINED_PAGE_VISITS: usize = 4_096;
/// Live messages that are held back behind retained ones, per connection, and their bytes. More
/// than a page of either goes out at once.
pub(crate) const HELD_COUNT_MAX: usize = 1_024;
pub(crate) const HELD_BYTES_MAX: usize = RETAINED_PAGE_BYTES;
/// The user property under which a publisher names a message so that it counts once.
pub(crate) const DEDUPE_KEY: &str = "qmq-dedupe-key";
/// The user properties by which a replayed message says where it stands in the log.
pub(crate) const REPLAY_OFFSET: &str = "qmq-offset";
pub(crate) const REPLAY_TIMESTAMP: &str = "qmq-timestamp";
/// Replays of one connection at a time; each may hold a block of the log for a moment.
pub(crate) const PLAYBACKS_MAX: usize = 16;
/// One step of a replay: so many messages, of about so many bytes of the log.
pub(crate) const PLAYBACK_ROWS: usize = 1_024;
pub(crate) const PLAYBACK_BYTES: usize = 128 * 1024;
/// When all reader threads have more to do than they may queue.
pub(crate) const PLAYBACK_RETRY_MS: u64 = 10;
/// A subscriber whose socket has taken nothing for this long slows nobody down any more.
pub(crate) const STALL_MS: u64 = 1_000;
/// Bytes of a run of QoS 0 packets; the look at a slow reader's limits comes between runs.
pub(crate) const RUN_BYTES_MAX: usize = 32 * 1024;
/// Names a client id may have in MQTT 3.1 [MQTT 3.1 §3.1].
pub(crate) const V31_CLIENT_ID_CHARS: std::ops::RangeInclusive<usize> = 1..=23;
/// Good credentials that are remembered, over all users; 32 bytes and a little each.
pub(crate) const VERDICTS_MAX: usize = 131_072;
/// Under `group`, as many bytes are written at once at the latest (LOG-13).
pub(crate) const GROUP_SYNC_BYTES: u64 = 64 * 1024;
/// A chunk of a checkpoint: what the owner writes into memory in one turn.
pub(crate) const CHECKPOINT_CHUNK_BYTES: usize = 256 * 1024;
/// Between two attempts at a checkpoint, whatever asks for the second.
pub(crate) const CHECKPOINT_RETRY_MS: u64 = 1_000;
/// Committed records are appended to the message log when so many bytes have gathered, or when
/// somebody asks.
pub(crate) const RECORDS_GATHERED_BYTES: u64 = 256 * 1024;
/// What a record weighs beside topic, properties and payload.
pub(crate) const RECORD_OVERHEAD_BYTES: u64 = 128;
/// Appended at once, while readers of the message log wait.
pub(crate) const RECORDS_PER_APPEND: usize = 1_024;
/// How often the keeper looks whether what it waits for is synced; only under `group`, whose syncs
/// follow within five milliseconds.
pub(crate) const RECORDS_SYNC_LOOK: Duration = Duration::from_millis(1);
/// Between two attempts to write a chunk on a full disk.
pub(crate) const RECORDS_RETRY_MS: u64 = 1_000;
/// Between two looks at the age of chunks when nothing else happens.
pub(crate) const RECORDS_TEND_MS: u64 = 30_000;
/// Threads that read the message log for shards.
pub(crate) const RECORD_READERS: usize = 2;
/// Where chunks of the message log lie, inside the data directory.
pub(crate) const RECORDS_FOLDER: &str = "records";
/// A look at how full the disk is.
pub(crate) const DISK_LOOK_MS: u64 = 1_000;
/// From so much of the disk on credits are halved and the log is cut (LOG-37) …
pub(crate) const DISK_TIGHT_PERCENT: u64 = 80;
/// … and from so much on nothing new is taken.
pub(crate) const DISK_FULL_PERCENT: u64 = 90;
/// Both end so much below, lest they come and go.
pub(crate) const DISK_CLEARING_PERCENT: u64 = 2;
/// The background scrub reads so much at once, and rests as long as its pace wants.
pub(crate) const SCRUB_READ_BYTES: usize = 256 * 1024;
/// Whoever asks for the digest or a session waits no longer: the node may be at its end.
pub(crate) const ANSWER_WITHIN_MS: u64 = 10_000;
/// Where the journal keeps its segments, inside the data directory.
pub(crate) const WAL_FOLDER: &str = "wal";
/// A drain waits at least so long for what clients left behind to be in the log.
pub(crate) const SETTLE_MIN: Duration = Duration::from_millis(500);
/// Partitions until forwarding between partitions exists.
pub(crate) const PARTITIONS_MAX: u32 = 1;
