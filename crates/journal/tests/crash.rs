//! Crashes at every instant, on a disk that keeps any part of what was not synced.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use harness::world::World;
use quantumqtt_journal::Crash;

// req: LOG-01, LOG-12, LOG-20
#[test]
fn a_crash_at_every_change_of_the_disk_loses_nothing_acknowledged() {
    for how in [Crash::Process, Crash::Clean, Crash::Prefix, Crash::Subset, Crash::Torn] {
        // The kinder crashes are parts of the crueller ones, which visit every change.
        let stride = if matches!(how, Crash::Subset | Crash::Torn) { 1 } else { 5 };
        let mut operation = 1;
        loop {
            let mut world = World::new(11, 2);
            world.disk.power_off_at(operation);
            let finished = world.live(60);
            world.disk.crash(how);
            // A second life goes on where the first ended, a third finds what the second left.
            world.live(10);
            world.disk.crash(Crash::Clean);
            assert!(world.live(0), "{how:?} at {operation}");
            if finished {
                assert!(operation > 100, "the walk is long enough to be worth it");
                break;
            }
            operation += stride;
        }
    }
}

// req: LOG-20, LOG-30
#[test]
fn lives_of_any_length_end_in_crashes_of_any_kind() {
    for seed in 0..40 {
        let mut world = World::new(seed, 3);
        for _ in 0..6 {
            let changes = 20 + world.dice.below(400);
            world.disk.power_off_at(world.disk.operations() + changes);
            world.live(200);
            world.crash();
        }
        assert!(world.live(20), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "acknowledged")]
fn a_disk_that_only_says_it_synced_is_found_out() {
    let mut world = World::new(1, 2);
    world.checkpoint_every = 0;
    let mut life = world.open().unwrap();
    world.disk.set_lying(true);
    for _ in 0..20 {
        world.step(&mut life).unwrap();
    }
    world.settle(&mut life).unwrap();
    drop(life);
    world.disk.crash(Crash::Clean);
    let _ = world.open();
}
