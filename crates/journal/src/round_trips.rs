//! What is written is read back, and what was never written is refused without a panic.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use raft::eraftpb::{ConfState, Entry, EntryType};

use crate::body::{
    CheckpointMark, GroupRow, Reader, decode_entries, decode_hard_state, entry_bytes, put_entry,
    put_u64,
};
use crate::crypto::EpochKeys;
use crate::format::{BatchMark, RecordHead, RecordKind, Sealed, SegmentHeader, Trailer};
use crate::keys::FixedKeys;
use crate::manifest::{Manifest, Signer};
use crate::members::Members;
use crate::reader::find_header;
use crate::writer::{put_hard_state, read_table};

fn keys() -> EpochKeys {
    EpochKeys::load(&FixedKeys::new([1; 32]), 1).unwrap()
}

fn sealed() -> impl Strategy<Value = Sealed> {
    (any::<u64>(), any::<u32>(), any::<u64>(), any::<[u8; 32]>())
        .prop_map(|(sequence, records, end, mac)| Sealed { sequence, records, end, mac })
}

fn members() -> impl Strategy<Value = Members> {
    let ids = || vec(1..u64::MAX, 0..5);
    (ids(), ids(), ids(), ids(), any::<bool>()).prop_map(
        |(voters, learners, voters_outgoing, learners_next, auto_leave)| Members {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
        },
    )
}

fn row() -> impl Strategy<Value = GroupRow> {
    (any::<u32>(), any::<[u64; 9]>(), members()).prop_map(|(key_domain, values, members)| {
        let [term, vote, commit, compacted_index, compacted_term, last_index, last_term, at, of] =
            values;
        GroupRow {
            key_domain,
            term,
            vote,
            commit,
            compacted_index,
            compacted_term,
            last_index,
            last_term,
            checkpoint_index: at,
            checkpoint_term: of,
            members,
        }
    })
}

fn kind() -> impl Strategy<Value = RecordKind> {
    (1..=9_u8).prop_map(|byte| RecordKind::from_byte(byte).unwrap())
}

fn entry() -> impl Strategy<Value = Entry> {
    (0..3, vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..200)).prop_map(|(kind, context, data)| {
        let entry_type = match kind {
            0 => EntryType::EntryNormal,
            1 => EntryType::EntryConfChange,
            _ => EntryType::EntryConfChangeV2,
        };
        Entry { entry_type, context: context.into(), data: data.into(), ..Entry::default() }
    })
}

proptest! {
    #[test]
    fn headers_come_back(
        numbers in any::<[u64; 4]>(), salt in any::<[u8; 16]>(), epoch in any::<u32>(),
        previous in proptest::option::of(sealed()), broken in 0..2_usize,
    ) {
        let keys = keys();
        let header = SegmentHeader {
            node_id: numbers[0],
            sequence: numbers[1],
            salt,
            first_lsn: numbers[2],
            segment_bytes: numbers[3],
            alignment: 512,
            key_epoch: epoch,
            key_id: keys.id,
            previous,
        };
        let copy = header.encode(&keys);
        prop_assert!(SegmentHeader::is_authentic(&copy, &keys));
        let mut file = vec![0; 4096];
        for at in [0, 2048] {
            file[at..at + copy.len()].copy_from_slice(&copy);
        }
        file[broken * 2048 + 77] ^= 1;
        prop_assert_eq!(find_header(&file).unwrap().0, header);
    }

    #[test]
    fn heads_come_back_under_their_own_salt_alone(
        kind in kind(), small in any::<[u32; 4]>(), wide in any::<[u64; 4]>(),
        count in any::<u16>(), seed in any::<u32>(), other in any::<u32>(),
    ) {
        let head = RecordHead {
            length: small[0],
            kind,
            count,
            key_epoch: small[1],
            key_domain: small[2],
            group: wide[0],
            first_index: wide[1],
            term: wide[2],
            lsn: wide[3],
            counter: small[3],
        };
        let bytes = head.encode(seed);
        prop_assert_eq!(RecordHead::decode(&bytes, seed), Some(head));
        if other != seed {
            prop_assert_eq!(RecordHead::decode(&bytes, other), None);
        }
    }

    #[test]
    fn trailers_and_marks_come_back(sealed in sealed(), lsns in any::<[u64; 2]>(), size: u32) {
        let trailer = Trailer { first_lsn: lsns[0], last_lsn: lsns[1], sealed };
        prop_assert_eq!(Trailer::decode(&trailer.encode()), Some(trailer));
        let mark = BatchMark { durable_lsn: lsns[0], bytes: size, records: size / 3 };
        prop_assert_eq!(BatchMark::decode(&mark.encode()), Some(mark));
    }

    #[test]
    fn tables_come_back(rows in vec((any::<u64>(), row()), 0..6)) {
        let mut body = Vec::new();
        for (group, row) in &rows {
            row.encode(*group, &mut body);
        }
        prop_assert_eq!(read_table(&body).unwrap(), rows);
    }

    #[test]
    fn bodies_come_back(
        entries in vec(entry(), 1..8), first in 1..u64::MAX / 2, term: u64, vote: u64, row in row(),
    ) {
        let mut body = Vec::new();
        put_u64(&mut body, 7);
        let before = body.len();
        for entry in &entries {
            put_entry(&mut body, entry);
        }
        prop_assert_eq!(entries.iter().map(entry_bytes).sum::<usize>(), body.len() - before);
        let read = decode_entries(&Bytes::from(body), first, term, entries.len() as u16).unwrap();
        for (at, (read, written)) in read.iter().zip(&entries).enumerate() {
            let index = first + at as u64;
            prop_assert_eq!(read, &Entry { index, term, ..written.clone() });
        }
        let mut body = Vec::new();
        put_hard_state(&mut body, vote, term);
        prop_assert_eq!(decode_hard_state(&body).unwrap(), (vote, term));
        let mark = CheckpointMark {
            index: first,
            term,
            compacted_index: vote,
            compacted_term: term,
            members: row.members.clone(),
        };
        let mut body = Vec::new();
        mark.encode(&mut body);
        prop_assert_eq!(CheckpointMark::decode(&body, first, term).unwrap(), mark);
        prop_assert_eq!(Members::from(&ConfState::from(&row.members)), row.members);
    }

    // hardening: stored-lengths
    #[test]
    fn any_bytes_are_refused_or_read_and_never_panic(bytes in vec(any::<u8>(), 0..400), n: u16) {
        let _ = find_header(&bytes);
        let _ = RecordHead::decode(&bytes, 1);
        let _ = Trailer::decode(&bytes);
        let _ = BatchMark::decode(&bytes);
        let _ = read_table(&bytes);
        let _ = decode_hard_state(&bytes);
        let _ = CheckpointMark::decode(&bytes, 1, 1);
        let _ = GroupRow::decode(&mut Reader::new(&bytes));
        let _ = decode_entries(&Bytes::from(bytes.clone()), 1, 1, n);
        let signer = Signer::new(&crate::keys::Secret::new([2; 32]));
        prop_assert!(Manifest::decode(&bytes, &signer).is_err());
    }
}
