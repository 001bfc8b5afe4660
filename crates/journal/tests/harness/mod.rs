//! What the tests of this crate share.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, unreachable_pub, reason = "each test program uses its own part")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests make directories")]

pub mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use quantumqtt_journal::{
    Disk, FixedKeys, Group, GroupOptions, GroupSpec, Journal, JournalOptions, Members,
    RecoveredGroup, Wake, WakeToken,
};

/// A directory that goes away with the test.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unique = format!("qmq-journal-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub fn set_permissions(path: &Path, permissions: std::fs::Permissions) {
    std::fs::set_permissions(path, permissions).unwrap();
}

pub fn keys() -> FixedKeys {
    FixedKeys::new([7; 32])
}

/// A wake that tells the test's thread.
pub fn telling() -> (Wake, Receiver<WakeToken>) {
    let (sender, receiver) = channel();
    let wake: Wake = Arc::new(move |token| {
        let _ = sender.send(token);
    });
    (wake, receiver)
}

pub fn silent() -> Wake {
    Arc::new(|_| {})
}

pub fn lone_spec(id: u64) -> GroupSpec {
    GroupSpec { id, members: Members::voters(&[1]), key_domain: 0 }
}

pub fn open(disk: Arc<dyn Disk>, options: JournalOptions) -> (Journal, Vec<RecoveredGroup>) {
    Journal::open(disk, options, &keys(), silent()).unwrap()
}

/// The group of that id, recovered or new.
pub fn group(journal: &Journal, recovered: &mut Vec<RecoveredGroup>, id: u64) -> Group {
    let found = recovered.iter().position(|group| group.id() == id);
    let group = match found {
        Some(at) => recovered.remove(at),
        None => journal.create_group(&lone_spec(id)).unwrap(),
    };
    Group::start(group, GroupOptions::new(id as usize))
}

/// Takes what is committed, and says it is applied.
pub fn apply(group: &mut Group) -> Vec<Bytes> {
    let taken: Vec<_> = group.take_committed().collect();
    if let Some(last) = taken.last() {
        group.applied(last.index);
    }
    taken.into_iter().map(|entry| entry.data).collect()
}
