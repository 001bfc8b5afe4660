//! Invariant: a checkpoint is refused, or a sound machine comes out of it and goes on.
//!
//! Input: a choice, then bytes. They are taken for chunks as they would lie on a disk; or for the
//! items of a checkpoint, which are then cut, counted and sealed as the machine does it, so that no
//! wrong sum stops them at the door. Restoring never panics. What is restored keeps every invariant
//! of the machine, stores again to the same chunks, and a week later still does.

use bytes::Bytes;
use quantumqtt_machine::{
    CHUNK_BYTES_MIN, ChunkHeader, Command, Entry, EntryBuilder, EntryHeader, Machine, Restored,
    Restorer,
};
use xxhash_rust::xxh3::xxh3_128;

const PARTITION: u32 = 7;
const INDEX: u64 = 1;
const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;
/// The kind of the last item, and the kinds before it, which it counts.
const END: u8 = 12;
const KINDS: usize = 11;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    if choice == 0 {
        let _refused = restore(&[Bytes::copy_from_slice(rest)]);
        return;
    }
    let Some(restored) = restore(&chunks_of(rest, usize::from(choice))) else { return };
    let mut machine = restored.machine;
    assert_eq!(machine.check_invariants(), Ok(()));
    stores_again(&mut machine);
    let week = tick_after(machine.statistics().now_ms);
    assert_eq!(machine.apply(&week, &mut Vec::new()), Ok(()));
    assert_eq!(machine.check_invariants(), Ok(()));
    stores_again(&mut machine);
}

fn restore(chunks: &[Bytes]) -> Option<Restored> {
    let mut restorer = Restorer::new();
    for chunk in chunks {
        restorer.push(chunk).ok()?;
    }
    restorer.finish().ok()
}

/// Items as chunks: cut every so many bytes, the last item made anew with its counts and digest.
fn chunks_of(items: &[u8], size: usize) -> Vec<Bytes> {
    let mut pieces: Vec<&[u8]> = items.chunks(size).collect();
    let end = end_of(items);
    pieces.push(&end);
    let last = pieces.len() - 1;
    let seal = |(number, piece): (usize, &&[u8])| {
        let header = ChunkHeader {
            partition: PARTITION,
            index: INDEX,
            number: u32::try_from(number).unwrap_or(u32::MAX),
            is_last: number == last,
        };
        header.seal(piece)
    };
    pieces.iter().enumerate().map(seal).collect()
}

fn end_of(items: &[u8]) -> Vec<u8> {
    let mut counts = [0_u8; KINDS];
    let mut rest = items;
    while let Some((kind, behind)) = next_item(rest) {
        if let Some(count) = counts.get_mut(usize::from(kind).wrapping_sub(1)) {
            *count = count.saturating_add(1).min(127);
        }
        rest = behind;
    }
    let mut end = vec![END, (KINDS + 17) as u8];
    end.extend_from_slice(&counts);
    end.push(16);
    end.extend_from_slice(&xxh3_128(items).to_le_bytes());
    end
}

/// The kind of the first item and what stands behind it.
fn next_item(items: &[u8]) -> Option<(u8, &[u8])> {
    let (&kind, mut rest) = items.split_first()?;
    let mut length = 0_usize;
    for shift in [0, 7, 14] {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        length |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some((kind, rest.get(length..)?))
}

fn stores_again(machine: &mut Machine) {
    machine.begin_checkpoint(INDEX);
    let chunks: Vec<Bytes> = std::iter::from_fn(|| machine.next_chunk(CHUNK_BYTES_MIN)).collect();
    let again = restore(&chunks).expect("our own chunks");
    assert_eq!(again.machine.digest(), machine.digest());
    assert_eq!(again.machine.next_deadline_ms(), machine.next_deadline_ms());
}

fn tick_after(now_ms: u64) -> Entry {
    let mut builder = EntryBuilder::new();
    builder.push(&Command::Tick).expect("room for one");
    let header = EntryHeader {
        partition: PARTITION,
        now_ms: now_ms.saturating_add(WEEK_MS),
        ..EntryHeader::default()
    };
    Entry::parse(builder.finish(&header)).expect("our own entry")
}
