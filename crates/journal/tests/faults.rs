//! Disks that fail, fill up, or sync slowly.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::sync::Arc;

use harness::world::{End, World};
use harness::{keys, lone_spec, telling};
use quantumqtt_journal::{
    Clock, Crash, Durability, Fault, Group, GroupOptions, Journal, JournalError, Refusal,
};

// req: LOG-16
#[test]
fn after_any_failure_of_the_disk_nothing_is_acknowledged_and_nothing_is_lost() {
    for fault in [Fault::SyncError, Fault::WriteError, Fault::ShortWrite] {
        for after in 0..25 {
            let mut world = World::new(after + 1, 2);
            world.disk.inject(fault, after);
            let ended = world.try_live(300);
            // The third write is the boot record's, which has no say in anything.
            let told = matches!(ended, Err(End::Disk(_) | End::Refused(Refusal::Failed)));
            let boot_record = fault != Fault::SyncError && after == 2 && ended.is_ok();
            assert!(told || boot_record, "{fault:?} {after}: {ended:?}");
            world.disk.crash(Crash::Clean);
            assert!(world.live(5), "{fault:?} {after}");
        }
    }
}

// req: LOG-16
#[test]
fn a_failed_sync_is_final_and_told_to_everybody() {
    let world = World::new(3, 1);
    let (wake, woken) = telling();
    let opened = Journal::open(world.disk(), world.options.clone(), &keys(), wake);
    let (journal, _) = opened.unwrap();
    let mut group =
        Group::start(journal.create_group(&lone_spec(1)).unwrap(), GroupOptions::new(7));
    group.stage(&journal).unwrap();
    journal.pump().unwrap();
    assert_eq!(woken.try_iter().collect::<Vec<_>>(), [7]);
    group.advance(&journal).unwrap();
    let durable = journal.durable_lsn();
    world.disk.inject(Fault::SyncError, 0);
    group.propose(vec![1].into()).unwrap();
    group.stage(&journal).unwrap();
    let why = journal.pump().unwrap_err();
    assert!(matches!(why, JournalError::Disk { what: "syncing records", .. }), "{why}");
    assert_eq!(woken.try_iter().collect::<Vec<_>>(), [7]);
    assert_eq!(journal.durable_lsn(), durable);
    // The disk is well again; the journal is not.
    assert!(journal.pump().is_err());
    group.on_durable(&journal);
    assert_eq!(group.take_committed().count(), 0);
    group.propose(vec![2].into()).unwrap();
    assert_eq!(group.stage(&journal), Err(Refusal::Failed));
    assert!(journal.failure().unwrap().to_string().contains("syncing"));
    assert!(journal.stop().is_err());
}

// req: LOG-37
#[test]
fn a_full_disk_refuses_in_order_and_goes_on_without_loss() {
    for seed in 1..12 {
        let mut world = World::new(seed, 2);
        world.checkpoint_every = 0;
        let mut life = world.open().unwrap();
        world.disk.set_capacity(Some(world.disk.used_bytes() + seed * 20_000));
        let mut refused = false;
        for _ in 0..2000 {
            match world.step(&mut life) {
                Ok(()) | Err(End::Refused(Refusal::Busy { .. })) => {}
                Err(End::Refused(Refusal::Full)) => {
                    refused = true;
                    break;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(refused && life.journal.is_full() && life.journal.failure().is_none());
        life.journal.pump().unwrap();
        assert!(life.journal.is_full());
        // A crash while it is full loses nothing either.
        if seed % 2 == 0 {
            drop(life);
            world.disk.crash(Crash::Torn);
            world.disk.set_capacity(None);
            world.live(20);
            continue;
        }
        world.disk.set_capacity(None);
        life.journal.pump().unwrap();
        assert!(!life.journal.is_full());
        world.settle(&mut life).unwrap();
        for (id, replica) in &life.replicas {
            assert_eq!(replica.applied, world.users[id].proposed, "all that waited got through");
        }
    }
}

// req: LOG-13
#[test]
fn group_durability_is_bounded_and_survives_the_process() {
    let mut world = World::new(9, 1);
    world.checkpoint_every = 0;
    world.options.durability = Durability::Group { delay_ms: 5, bytes: 1 << 20 };
    let clock = world.disk.clock();
    world.options.clock = Arc::new(clock.clone());
    let mut life = world.open().unwrap();
    let synced = life.journal.synced_lsn();
    life.replicas.get_mut(&1).unwrap().group.propose(vec![1].into()).unwrap();
    world.users.get_mut(&1).unwrap().proposed.push(vec![1].into());
    world.settle(&mut life).unwrap();
    assert_eq!(world.users[&1].acknowledged, 1, "acknowledged before the sync");
    assert!(life.journal.synced_lsn() < life.journal.durable_lsn());
    clock.advance_us(5000);
    life.journal.pump().unwrap();
    assert_eq!(life.journal.synced_lsn(), life.journal.durable_lsn());
    assert!(life.journal.synced_lsn() > synced);
    for _ in 0..40 {
        world.step(&mut life).unwrap();
    }
    world.settle(&mut life).unwrap();
    drop(life);
    world.disk.crash(Crash::Process);
    let life = world.open().unwrap();
    drop(life);
    // A cut of power takes some of the end, and nothing else.
    world.disk.crash(Crash::Clean);
    world.users.get_mut(&1).unwrap().acknowledged = 1;
    world.open().unwrap();
    let beyond = Durability::Group { delay_ms: 6, bytes: 1 };
    world.options.durability = beyond;
    assert!(matches!(world.open(), Err(End::Disk(JournalError::Option { .. }))));
    assert!(clock.now_us() >= 5000);
}

#[test]
fn proposals_that_cannot_be_taken_are_values() {
    let world = World::new(4, 1);
    let opened = Journal::open(world.disk(), world.options.clone(), &keys(), telling().0);
    let (journal, _) = opened.unwrap();
    let mut options = GroupOptions::new(1);
    options.uncommitted_bytes_max = 1000;
    let mut group = Group::start(journal.create_group(&lone_spec(1)).unwrap(), options);
    let large = group.propose(vec![0; 20_000].into());
    assert!(matches!(large, Err(Refusal::TooLarge { bytes: 20_000, max: 16_384 })), "{large:?}");
    group.propose(vec![0; 900].into()).unwrap();
    assert_eq!(group.propose(vec![0; 200].into()), Err(Refusal::Busy { group: 1 }));
    group.advance(&journal).unwrap();
    journal.pump().unwrap();
    group.advance(&journal).unwrap();
    assert_eq!(harness::apply(&mut group).len(), 1);
    group.propose(vec![0; 200].into()).unwrap();
    let mut spec = lone_spec(2);
    spec.members.voters = vec![2, 3];
    let mut follower = Group::start(journal.create_group(&spec).unwrap(), GroupOptions::new(1));
    let refused = follower.propose(vec![1].into());
    assert_eq!(refused, Err(Refusal::NotLeader { group: 2, leader: None }));
    assert!(matches!(journal.create_group(&spec), Err(JournalError::Group { .. })));
}
