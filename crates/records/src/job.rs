//! Work on the disk that the owner of a log does not wait for.
//!
//! The owner plans a job from what it knows, any thread executes it, the owner publishes the
//! outcome. A job holds all it needs and touches no state of the log, so the order in which jobs
//! end does not matter, and one that fails has changed nothing: its half-written file is removed,
//! or found and removed at the next start.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::block::Block;
use crate::builder::BlockBuilder;
use crate::chunk::{Chunk, ChunkKind, ChunkWriter, Place, file_name, unfinished_name};
use crate::error::{Error, Result};
use crate::limits::{BLOCK_BYTES_MAX, CHUNK_BLOCKS_MAX};
use crate::log::ChunkIds;

/// Writes the tail, or the older part of it, as chunks.
#[derive(Debug)]
pub struct SealJob {
    pub(crate) place: Place,
    pub(crate) ids: ChunkIds,
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) chunk_bytes_max: u64,
}

/// What a [`SealJob`] has made; give it to [`crate::RecordLog::publish_seal`].
#[derive(Debug)]
pub struct Sealed {
    pub(crate) chunks: Vec<Arc<Chunk>>,
    pub(crate) block_count: usize,
}

impl SealJob {
    /// Writes, syncs, names. Durable when it returns.
    pub fn execute(&self) -> Result<Sealed> {
        let mut output = Output::new(self, ChunkKind::Log);
        for block in &self.blocks {
            output.push_block(block)?;
        }
        let chunks = output.finish()?;
        Ok(Sealed { chunks, block_count: self.blocks.len() })
    }
}

/// What a rewrite is for, and so where its outcome goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Neighbours of the log become one.
    Merge,
    /// The oldest chunks of the log go; what is referred to is kept.
    Retain,
    /// Kept chunks lose what is not referred to any more.
    Thin,
}

/// Reads some chunks and writes what is to stay of them.
#[derive(Debug)]
pub struct RewriteJob {
    pub(crate) place: Place,
    pub(crate) ids: ChunkIds,
    pub(crate) purpose: Purpose,
    pub(crate) sources: Vec<Arc<Chunk>>,
    /// Which offsets stay, rising; all without it.
    pub(crate) referenced: Option<Arc<[u64]>>,
    pub(crate) chunk_bytes_max: u64,
}

/// What a [`RewriteJob`] has made; give it to [`crate::RecordLog::publish_rewrite`].
#[derive(Debug)]
pub struct Rewritten {
    pub(crate) purpose: Purpose,
    pub(crate) sources: Vec<u64>,
    pub(crate) chunks: Vec<Arc<Chunk>>,
}

impl RewriteJob {
    /// Reads, writes, syncs, names. Durable when it returns; the sources are still there.
    pub fn execute(&self) -> Result<Rewritten> {
        let kind = match self.purpose {
            Purpose::Merge => ChunkKind::Log,
            Purpose::Retain | Purpose::Thin => ChunkKind::Kept,
        };
        let mut output = Output::new(self, kind);
        for chunk in &self.sources {
            let file = self
                .place
                .disk
                .open(&chunk.path)
                .map_err(|source| Error::disk("open", &chunk.path, source))?;
            for (number, entry) in chunk.index.iter().enumerate() {
                let wanted = self.referenced.as_ref().map(|all| {
                    let from = all.partition_point(|offset| *offset < entry.first_offset);
                    let until = all.partition_point(|offset| *offset <= entry.last_offset);
                    &all[from..until]
                });
                match wanted {
                    Some([]) => {}
                    Some(offsets) => {
                        output.push_rows(&chunk.read_block(&*file, number)?, offsets)?;
                    }
                    None => output.push_block(&chunk.read_block(&*file, number)?)?,
                }
            }
        }
        let sources = self.sources.iter().map(|chunk| chunk.info.id).collect();
        Ok(Rewritten { purpose: self.purpose, sources, chunks: output.finish()? })
    }
}

/// Where an [`Output`] writes.
trait Target {
    fn place(&self) -> &Place;
    fn ids(&self) -> &ChunkIds;
    fn chunk_bytes_max(&self) -> u64;
}

impl Target for SealJob {
    fn place(&self) -> &Place {
        &self.place
    }

    fn ids(&self) -> &ChunkIds {
        &self.ids
    }

    fn chunk_bytes_max(&self) -> u64 {
        self.chunk_bytes_max
    }
}

impl Target for RewriteJob {
    fn place(&self) -> &Place {
        &self.place
    }

    fn ids(&self) -> &ChunkIds {
        &self.ids
    }

    fn chunk_bytes_max(&self) -> u64 {
        self.chunk_bytes_max
    }
}

/// Blocks and rows become as many chunks as they need. Small blocks are joined on the way.
struct Output<'a> {
    target: &'a dyn Target,
    kind: ChunkKind,
    writer: Option<(u64, ChunkWriter<'a>)>,
    builder: BlockBuilder,
    chunks: Vec<Arc<Chunk>>,
}

impl<'a> Output<'a> {
    fn new(target: &'a dyn Target, kind: ChunkKind) -> Self {
        Self { target, kind, writer: None, builder: BlockBuilder::default(), chunks: Vec::new() }
    }

    /// All of a block: as it is when it is worth a block, else row by row.
    fn push_block(&mut self, block: &Block) -> Result<()> {
        if self.builder.rows() == 0 && block.body().len() >= BLOCK_BYTES_MAX / 2 {
            return self.write(block);
        }
        (0..block.rows).try_for_each(|row| self.push_row(block, row))
    }

    fn push_rows(&mut self, block: &Block, offsets: &[u64]) -> Result<()> {
        let mut rows = offsets.iter().filter_map(|offset| block.find(*offset));
        rows.try_for_each(|row| self.push_row(block, row))
    }

    fn push_row(&mut self, block: &Block, row: usize) -> Result<()> {
        let mut pairs = Vec::new();
        let record = block.record(row, &mut pairs);
        let bytes = record.varying_bytes();
        if !self.builder.has_room(bytes) {
            self.close_block()?;
        }
        self.builder.push(&record, bytes);
        Ok(())
    }

    fn close_block(&mut self) -> Result<()> {
        if self.builder.rows() > 0 {
            let block = Block::parse(self.builder.body());
            self.write(&block.expect("what the builder writes is a block"))?;
            self.builder.clear();
        }
        Ok(())
    }

    fn write(&mut self, block: &Block) -> Result<()> {
        if self.writer.is_none() {
            let id = self.target.ids().take();
            let writer = ChunkWriter::create(self.target.place(), id, self.kind)?;
            self.writer = Some((id, writer));
        }
        let (_, writer) = self.writer.as_mut().expect("made just now");
        writer.push(block)?;
        let full = writer.file_bytes() >= self.target.chunk_bytes_max()
            || writer.block_count() == CHUNK_BLOCKS_MAX;
        if full { self.close_chunk() } else { Ok(()) }
    }

    fn close_chunk(&mut self) -> Result<()> {
        if let Some((_, writer)) = self.writer.take() {
            self.chunks.push(Arc::new(writer.finish()?));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Arc<Chunk>>> {
        self.close_block()?;
        self.close_chunk()?;
        self.target.place().sync()?;
        Ok(std::mem::take(&mut self.chunks))
    }
}

impl Drop for Output<'_> {
    /// After a failure: what was written is part of nothing. If removing fails too, the next start
    /// finds the file unlisted.
    fn drop(&mut self) {
        let place = self.target.place();
        if let Some((id, _)) = self.writer.take() {
            let _ = place.disk.remove(&place.path(&unfinished_name(id)));
        }
        for chunk in &self.chunks {
            let _ = place.disk.remove(&chunk.path);
        }
    }
}

/// Removes files that no durable list names any more.
#[derive(Debug)]
pub struct SweepJob {
    pub(crate) place: Place,
    pub(crate) chunks: BTreeSet<u64>,
}

impl SweepJob {
    /// How many files it removes.
    pub fn file_count(&self) -> usize {
        self.chunks.len()
    }

    /// Removes them.
    pub fn execute(&self) -> Result<()> {
        for id in &self.chunks {
            let path = self.place.path(&file_name(*id));
            match self.place.disk.remove(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(Error::disk("remove", &path, source));
                }
            }
        }
        self.place.sync()
    }
}
