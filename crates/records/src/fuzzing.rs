//! For `fuzz/` and nobody else: the decoder behind the seals, which no search for bytes would pass.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;

use crate::block::{Block, Identity, Row};
use crate::builder::BlockBuilder;
use crate::schema::Columns;

/// Opens bytes as the body of a block, which they may or may not be.
pub fn open_body(bytes: &[u8]) -> Option<(RecordBatch, Vec<Row>)> {
    let block = Arc::new(Block::parse(Buffer::from(bytes)).ok()?);
    let identity = Identity { tenant: "t".into(), partition: 0 };
    let columns = Columns::ALL;
    let batch = block.batch(&identity, columns, &columns.schema(), 0..block.rows);
    let rows = (0..block.rows).map(|row| Row::new(block.clone(), row)).collect();
    Some((batch, rows))
}

/// Writes rows as one body.
pub fn write_body(rows: &[Row]) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    for row in rows {
        row.with(|record| builder.push(record, record.varying_bytes()));
    }
    builder.body().to_vec()
}
