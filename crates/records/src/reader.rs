//! Reading the log: ranges for readers, points for whoever holds references.
//!
//! - A reader sees what was there at each step, and holds nothing between steps: retention, merges
//!   and sweeps never wait for a reader that has stopped.
//! - A range that retention has reached into is `OffsetExpired`, a block that does not open is
//!   `DamagedBlock`; both name the offsets. What lies before such a place is still served, and the
//!   answer ends there; the next step, which begins at the place, gets the error. There is no way
//!   to step over it but to ask for a later offset.
//! - These calls read the disk. Shards go through [`crate::ReaderPool`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use crate::block::{Block, Identity, Row};
use crate::builder::BlockBuilder;
use crate::error::{Error, Result};
use crate::schema::Columns;
use crate::shared::{Located, Shared};

/// Which topics a reader wants.
pub type TopicChoice = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A stretch of the log, and what of it is wanted.
#[derive(Clone)]
pub struct Range {
    /// The first offset.
    pub start: u64,
    /// The offset before which to end; `u64::MAX` for all there is.
    pub end: u64,
    /// Which columns.
    pub columns: Columns,
    /// Records of which topics; all without it.
    pub topics: Option<TopicChoice>,
}

impl Range {
    /// All columns of all records from `start` on.
    pub fn from(start: u64) -> Self {
        Self { start, end: u64::MAX, columns: Columns::ALL, topics: None }
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Range")
            .field("start", &self.start)
            .field("end", &self.end)
            .field("columns", &self.columns)
            .field("chooses_topics", &self.topics.is_some())
            .finish()
    }
}

/// Some batches, and where to go on.
#[derive(Debug, Clone)]
pub struct Batches {
    /// In order; rows of topics nobody asked for are left out.
    pub batches: Vec<RecordBatch>,
    /// The first offset that was not looked at.
    pub next: u64,
    /// What the blocks behind the batches weigh.
    pub bytes: usize,
}

/// Some records, and how many of those asked for they are.
#[derive(Debug, Clone)]
pub struct Rows {
    /// One for each of the first offsets asked for, in their order.
    pub rows: Vec<Row>,
    /// What the blocks behind them weigh, each counted once.
    pub bytes: usize,
}

/// Where whoever streams the log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With what is there when it is read, whatever that is.
    Earliest,
    /// At this offset; it is an error if that has expired.
    At(u64),
    /// With the first record there is that is not older than this, in milliseconds.
    Since(u64),
}

/// A stretch of the log for whoever passes records on one by one.
#[derive(Clone)]
pub struct Stretch {
    /// Where it begins.
    pub start: Start,
    /// The offset before which it ends.
    pub end: u64,
    /// Records of which topics.
    pub topics: TopicChoice,
    /// Records in one step.
    pub rows_max: usize,
}

impl fmt::Debug for Stretch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, rows_max, topics: _ } = self;
        formatter
            .debug_struct("Stretch")
            .field("start", start)
            .field("end", end)
            .field("rows_max", rows_max)
            .finish()
    }
}

/// Some records of a stretch, and where to go on.
#[derive(Debug, Clone)]
pub struct Passage {
    /// In order; those of topics nobody asked for are left out.
    pub rows: Vec<Row>,
    /// The first offset that was not looked at.
    pub next: u64,
    /// What the blocks behind the rows weigh, each counted once.
    pub bytes: usize,
}

/// The ends of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that can be read.
    pub earliest: u64,
    /// The offset that comes next.
    pub end: u64,
}

/// Reads one log, from any thread; cheap to clone.
#[derive(Debug, Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Whose log it is.
    pub fn identity(&self) -> &Identity {
        &self.shared.place.identity
    }

    /// Where the log begins and ends now.
    pub fn bounds(&self) -> Bounds {
        let state = self.shared.state.lock();
        Bounds { earliest: state.earliest, end: state.end }
    }

    /// Whether both read the same log; requests for one log are served together.
    pub fn is_same_log(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Reads from the start of `range` until it ends or `bytes_max` are gathered; always at least
    /// one block, so that every step gets on.
    pub fn read(&self, range: &Range, bytes_max: usize) -> Result<Batches> {
        let schema = range.columns.schema();
        let mut answer = Batches { batches: Vec::new(), next: range.start, bytes: 0 };
        while answer.next < range.end && answer.bytes < bytes_max {
            let block = match self.block_at(answer.next) {
                Ok(Some(block)) => block,
                Err(error) if answer.bytes == 0 => return Err(error),
                // The end; or an error, and the next step begins here and says so.
                Ok(None) | Err(_) => break,
            };
            answer.bytes += block.weight_bytes();
            let rows = block.find_from(answer.next)..block.find_from(range.end);
            answer.next = range.end.min(block.last_offset + 1);
            let identity = self.identity();
            match &range.topics {
                None => {
                    answer.batches.push(block.batch(identity, range.columns, &schema, rows));
                }
                Some(topics) => {
                    let chosen = choose(&block, rows, &**topics);
                    answer.batches.extend(
                        chosen.map(|block| {
                            block.batch(identity, range.columns, &schema, 0..block.rows)
                        }),
                    );
                }
            }
        }
        Ok(answer)
    }

    /// Reads records from the start of a stretch until it ends, `bytes_max` are gathered or there
    /// are as many as wanted; what is looked at is always at least one block's, so that every step
    /// gets on, even where no topic is wanted.
    pub fn read_stretch(&self, stretch: &Stretch, bytes_max: usize) -> Result<Passage> {
        let start = match stretch.start {
            Start::At(offset) => offset,
            Start::Earliest => self.bounds().earliest,
            Start::Since(ts_ms) => self.offset_for_time(ts_ms)?,
        };
        let mut answer = Passage { rows: Vec::new(), next: start, bytes: 0 };
        while answer.next < stretch.end && answer.bytes < bytes_max {
            let block = match self.block_at(answer.next) {
                Ok(Some(block)) => block,
                // Retention was faster than we were, and nobody has seen anything yet.
                Err(Error::OffsetExpired { until, .. })
                    if answer.bytes == 0 && !matches!(stretch.start, Start::At(_)) =>
                {
                    answer.next = until;
                    continue;
                }
                Err(error) if answer.bytes == 0 => return Err(error),
                Ok(None) | Err(_) => break,
            };
            answer.bytes += block.weight_bytes();
            for row in block.find_from(answer.next)..block.find_from(stretch.end) {
                if answer.rows.len() >= stretch.rows_max {
                    answer.next = block.offset(row);
                    return Ok(answer);
                }
                if (stretch.topics)(block.topic(row)) {
                    answer.rows.push(Row::new(block.clone(), row));
                }
            }
            answer.next = stretch.end.min(block.last_offset + 1);
        }
        Ok(answer)
    }

    fn block_at(&self, offset: u64) -> Result<Option<Arc<Block>>> {
        let located = self.shared.state.lock().locate(offset);
        match located {
            Located::Chunk(chunk, number) => self.shared.block(&chunk, number, false).map(Some),
            Located::Tail(block) => Ok(Some(block)),
            Located::Expired(until) => Err(Error::OffsetExpired { from: offset, until }),
            Located::Beyond => Ok(None),
        }
    }

    /// The records at these rising offsets, in the log or kept, as far as `bytes_max` of blocks
    /// allow; at least one. Offsets of one block cost one read.
    pub fn read_points(&self, offsets: &[u64], bytes_max: usize) -> Result<Rows> {
        debug_assert!(offsets.is_sorted(), "sorted offsets are what makes it one sweep");
        let mut answer = Rows { rows: Vec::with_capacity(offsets.len()), bytes: 0 };
        let mut current: Option<Arc<Block>> = None;
        for &offset in offsets {
            let here = current.as_ref().filter(|block| block.last_offset >= offset);
            let block = match here {
                Some(block) => block.clone(),
                None if !answer.rows.is_empty() && answer.bytes >= bytes_max => break,
                None => match self.referenced_block(offset) {
                    Ok(block) => {
                        answer.bytes += block.weight_bytes();
                        block
                    }
                    Err(error) if answer.rows.is_empty() => return Err(error),
                    Err(_) => break,
                },
            };
            match block.find(offset) {
                Some(row) => answer.rows.push(Row::new(block.clone(), row)),
                None if answer.rows.is_empty() => {
                    return Err(Error::OffsetExpired { from: offset, until: offset + 1 });
                }
                None => break,
            }
            current = Some(block);
        }
        Ok(answer)
    }

    pub(crate) fn referenced_block(&self, offset: u64) -> Result<Arc<Block>> {
        let located = self.shared.state.lock().locate_reference(offset);
        match located {
            Located::Chunk(chunk, number) => self.shared.block(&chunk, number, true),
            Located::Tail(block) => Ok(block),
            Located::Expired(_) => Err(Error::OffsetExpired { from: offset, until: offset + 1 }),
            Located::Beyond => Err(Error::NotYet { offset, end: self.bounds().end }),
        }
    }

    /// The first offset whose time is not before `ts_ms`; the end if there is none. Times need not
    /// rise (clocks jump): it is the first by offset, not the nearest by time.
    pub fn offset_for_time(&self, ts_ms: u64) -> Result<u64> {
        let wanted_us = i64::try_from(ts_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let located = self.shared.state.lock().locate_time(wanted_us);
        let block = match located {
            Located::Chunk(chunk, number) => self.shared.block(&chunk, number, true)?,
            Located::Tail(block) => block,
            Located::Expired(_) | Located::Beyond => return Ok(self.bounds().end),
        };
        Ok(block.find_time(wanted_us).map_or(block.last_offset + 1, |row| block.offset(row)))
    }

    /// Reads every block of a chunk, as a scrub does; how many there were.
    pub fn verify_chunk(&self, id: u64) -> Result<usize> {
        let chunk = {
            let state = self.shared.state.lock();
            state.log.iter().chain(&state.kept).find(|chunk| chunk.info.id == id).cloned()
        };
        let Some(chunk) = chunk else { return Ok(0) };
        let file = self.shared.files.of(&chunk)?;
        for number in 0..chunk.index.len() {
            chunk.read_block(&*file, number)?;
        }
        Ok(chunk.index.len())
    }

    /// What opened blocks take in memory for this log.
    pub fn cached_bytes(&self) -> usize {
        self.shared.cache.bytes()
    }

    /// Blocks read from disk so far.
    pub fn blocks_read(&self) -> u64 {
        self.shared.blocks_read.load(Ordering::Relaxed)
    }

    /// The range as a stream of batches; ends at the end of the log as it is then.
    pub fn stream(&self, range: Range) -> Stream {
        let schema = range.columns.schema();
        Stream { reader: self.clone(), range, schema, failed: false }
    }
}

/// The rows of some topics, as a block of their own; none if no row is wanted.
fn choose(
    block: &Arc<Block>,
    rows: std::ops::Range<usize>,
    topics: &dyn Fn(&str) -> bool,
) -> Option<Arc<Block>> {
    let wanted: Vec<usize> = rows.filter(|row| topics(block.topic(*row))).collect();
    if wanted.is_empty() || wanted.len() == block.rows {
        return (!wanted.is_empty()).then(|| block.clone());
    }
    let mut builder = BlockBuilder::default();
    for row in wanted {
        let mut pairs = Vec::new();
        let record = block.record(row, &mut pairs);
        builder.push(&record, record.varying_bytes());
    }
    let chosen = Block::parse(builder.body());
    Some(Arc::new(chosen.expect("rows of a block are a block")))
}

/// An iterator over batches, as Arrow's C stream interface wants one.
#[derive(Debug)]
pub struct Stream {
    reader: LogReader,
    range: Range,
    schema: SchemaRef,
    failed: bool,
}

impl Iterator for Stream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed && self.range.start < self.range.end {
            match self.reader.read(&self.range, 1) {
                Ok(step) if step.next == self.range.start => return None,
                Ok(step) => {
                    self.range.start = step.next;
                    if let Some(batch) = step.batches.into_iter().next() {
                        return Some(Ok(batch));
                    }
                }
                Err(error) => {
                    self.failed = true;
                    return Some(Err(ArrowError::ExternalError(Box::new(error))));
                }
            }
        }
        None
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
