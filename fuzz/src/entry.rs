//! Invariant: an entry is refused, or it applies and leaves a sound state behind.
//!
//! Input: one entry's bytes, as they would come from the log. Parsing never panics; its commands
//! written again make an entry that reads the same; two machines that apply it, and a clock tick a
//! week later, agree on digest and effects, and every invariant of the machine holds.

use bytes::Bytes;
use quantumqtt_machine::{Command, Effect, Entry, EntryBuilder, EntryHeader, Limits, Machine};

const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Ok(entry) = Entry::parse(Bytes::copy_from_slice(bytes)) else { return };
    rewrites(&entry);
    let partition = entry.header().partition;
    let (mut one, mut other) = (machine(partition), machine(partition));
    let (mut effects, mut others) = (Vec::<Effect>::new(), Vec::new());
    let applied = one.apply(&entry, &mut effects);
    assert_eq!(applied, other.apply(&entry, &mut others));
    if applied.is_err() {
        return; // this build is too old for it, or it is no log of ours
    }
    assert_eq!(effects, others);
    assert_eq!(one.check_invariants(), Ok(()));
    let tick = tick_after(entry.header());
    assert_eq!(one.apply(&tick, &mut effects), Ok(()));
    assert_eq!(other.apply(&tick, &mut others), Ok(()));
    assert_eq!(one.check_invariants(), Ok(()));
    assert_eq!(one.digest(), other.digest());
}

fn machine(partition: u32) -> Machine {
    Machine::new(partition, Limits::default())
}

fn rewrites(entry: &Entry) {
    let Ok(commands) = entry.commands().collect::<Result<Vec<Command<'_>>, _>>() else { return };
    let mut builder = EntryBuilder::new();
    for command in &commands {
        if builder.push(command).is_err() {
            return; // more than one entry of ours holds
        }
    }
    let again = Entry::parse(builder.finish(entry.header())).expect("our own entry");
    let read: Vec<_> = again.commands().collect::<Result<_, _>>().expect("our own commands");
    assert_eq!(read, commands);
}

fn tick_after(header: &EntryHeader) -> Entry {
    let mut builder = EntryBuilder::new();
    builder.push(&Command::Tick).expect("room for one");
    let later = EntryHeader { now_ms: header.now_ms.saturating_add(WEEK_MS), ..*header };
    Entry::parse(builder.finish(&later)).expect("our own entry")
}
