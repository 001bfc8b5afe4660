//! What the owner and the readers of one log share.
//!
//! One lock, `Shared::state`, guards the list of chunks, the tail and the ends of the log. The
//! owner holds it while it appends a batch; readers hold it to look up one block, and at the live
//! edge while the open block is made into a finished one for them (some ten microseconds for a
//! full one, remembered until the next append). Nobody reads, writes or decrypts under it. Files
//! and cached blocks have locks of their own, taken alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::block::Block;
use crate::builder::BlockBuilder;
use crate::cache::{BlockCache, Files};
use crate::chunk::{Chunk, ChunkInfo, Place};
use crate::error::Result;
use crate::record::Record;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: Place,
    pub(crate) state: Mutex<State>,
    pub(crate) files: Files,
    pub(crate) cache: BlockCache,
    pub(crate) blocks_read: AtomicU64,
}

/// Guarded by the lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Chunks of the log, in order, without a gap.
    pub(crate) log: Vec<Arc<Chunk>>,
    /// Kept chunks, in order.
    pub(crate) kept: Vec<Arc<Chunk>>,
    /// Finished blocks that are in no chunk yet.
    pub(crate) tail: VecDeque<Arc<Block>>,
    pub(crate) tail_bytes: u64,
    builder: BlockBuilder,
    /// The open block as readers see it; made when one asks, gone with the next append.
    open: Option<Arc<Block>>,
    /// The first offset that readers of the log may ask for.
    pub(crate) earliest: u64,
    /// Where the tail begins.
    pub(crate) durable_end: u64,
    /// The offset that comes next.
    pub(crate) end: u64,
}

/// Where an offset is.
#[derive(Debug)]
pub(crate) enum Located {
    Chunk(Arc<Chunk>, usize),
    Tail(Arc<Block>),
    /// The log begins later.
    Expired(u64),
    /// The log ends before.
    Beyond,
}

impl State {
    /// A log as a manifest says it is, without a tail yet.
    pub(crate) fn new(
        log: Vec<Arc<Chunk>>,
        kept: Vec<Arc<Chunk>>,
        earliest: u64,
        end: u64,
    ) -> Self {
        Self { log, kept, earliest, durable_end: end, end, ..Self::default() }
    }

    /// Adds a record whose offset is the next.
    pub(crate) fn push(&mut self, record: &Record<'_>, varying_bytes: usize) {
        if !self.builder.has_room(varying_bytes) {
            self.close_block();
        }
        self.builder.push(record, varying_bytes);
        self.open = None;
        self.end += 1;
    }

    /// Ends the open block, if it has anything.
    pub(crate) fn close_block(&mut self) {
        if let Some(block) = self.open_block() {
            self.tail_bytes += block.body().len() as u64;
            self.tail.push_back(block);
            self.builder.clear();
            self.open = None;
        }
    }

    fn open_block(&mut self) -> Option<Arc<Block>> {
        if self.open.is_none() && self.builder.rows() > 0 {
            let block = Block::parse(self.builder.body());
            self.open = Some(Arc::new(block.expect("what the builder writes is a block")));
        }
        self.open.clone()
    }

    /// The tail and the open block.
    pub(crate) fn unsealed_bytes(&self) -> u64 {
        self.tail_bytes + self.builder.bytes() as u64
    }

    /// Where a reader of the log finds `offset`.
    pub(crate) fn locate(&mut self, offset: u64) -> Located {
        if offset >= self.end {
            return Located::Beyond;
        }
        if offset < self.earliest {
            return Located::Expired(self.earliest);
        }
        if offset >= self.durable_end {
            let place = self.tail.partition_point(|block| block.last_offset < offset);
            let block = self.tail.get(place).cloned().or_else(|| self.open_block());
            return Located::Tail(block.expect("the tail reaches to the end"));
        }
        let place = self.log.partition_point(|chunk| chunk.info.last_offset < offset);
        let chunk = self.log[place].clone();
        let number = chunk.block_from(offset);
        Located::Chunk(chunk, number)
    }

    /// Where a reference to `offset` leads: the log, or what retention kept.
    pub(crate) fn locate_reference(&mut self, offset: u64) -> Located {
        let expired = match self.locate(offset) {
            Located::Expired(earliest) => Located::Expired(earliest),
            found => return found,
        };
        let place = self.kept.partition_point(|chunk| chunk.info.last_offset < offset);
        let Some(chunk) = self.kept.get(place) else { return expired };
        let number = chunk.block_from(offset);
        if chunk.index[number].first_offset <= offset {
            Located::Chunk(chunk.clone(), number)
        } else {
            expired
        }
    }

    /// The first block that may hold something not older than this.
    pub(crate) fn locate_time(&mut self, ts_us: i64) -> Located {
        for chunk in &self.log {
            if chunk.info.ts_max_us >= ts_us {
                let number = chunk.index.iter().position(|entry| entry.ts_max_us >= ts_us);
                return Located::Chunk(chunk.clone(), number.unwrap_or(0));
            }
        }
        let open = self.open_block();
        let block = self.tail.iter().chain(&open).find(|block| block.ts_max_us >= ts_us);
        block.map_or(Located::Beyond, |block| Located::Tail(block.clone()))
    }

    pub(crate) fn infos(&self) -> impl Iterator<Item = &ChunkInfo> {
        self.log.iter().chain(&self.kept).map(|chunk| &chunk.info)
    }
}

impl Shared {
    /// A block of a chunk, from memory or from disk; `keep` it if others may want it soon.
    pub(crate) fn block(&self, chunk: &Chunk, number: usize, keep: bool) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.get(chunk.info.id, number) {
            return Ok(block);
        }
        let file = self.files.of(chunk)?;
        let block = Arc::new(chunk.read_block(&*file, number)?);
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        if keep {
            self.cache.insert(chunk.info.id, number, &block);
        }
        Ok(block)
    }
}
