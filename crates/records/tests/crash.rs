//! The power goes at every single change to the disk, and the log opens as the list says.

mod support;

use std::sync::Arc;

use quantumqtt_records::{Disk, Manifest, RecordLog, Result, Retention, RewriteJob, SimDisk};
use support::{Owned, append, directory, open, read_all, read_points, seal, shown};

const ROUNDS: u64 = 7;
const PER_ROUND: u64 = 40;
/// Offsets that something refers to all the time.
const REFERENCED: [u64; 3] = [1, 50, 130];

fn record(number: u64) -> Owned {
    Owned::plain(number, &[number as u8; 120])
}

fn all(count: u64) -> Vec<Owned> {
    (0..count).map(record).collect()
}

fn rewrite(log: &mut RecordLog, job: Option<RewriteJob>) -> Result<()> {
    let Some(job) = job else { return Ok(()) };
    match job.execute() {
        Ok(rewritten) => log.publish_rewrite(rewritten),
        Err(error) => {
            log.abandon_rewrite(&error);
            return Err(error);
        }
    }
    Ok(())
}

/// Everything that writes: seals, merges, retention, checkpoints, sweeps. `committed` and `durable`
/// are what the replicated log and the last checkpoint have when the power goes.
fn live(sim: &SimDisk, committed: &mut u64, durable: &mut Manifest) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let referenced: Arc<[u64]> = REFERENCED.into();
    let mut log = open(&disk, durable)?;
    for round in 0..ROUNDS {
        let from = *committed;
        let records = &all(from + PER_ROUND)[from as usize..];
        append(&mut log, from, records)?;
        *committed = from + PER_ROUND;
        seal(&mut log)?;
        if round == 4 {
            let job = log.plan_merge();
            rewrite(&mut log, job)?;
        }
        if round == 5 {
            let much = Retention { bytes: Some(8_000), age_ms: None };
            let job = log.plan_retention(0, &much, &referenced);
            rewrite(&mut log, job)?;
        }
        let manifest = log.manifest();
        manifest.store(&*disk, directory())?;
        *durable = manifest;
        if let Some(sweep) = log.plan_sweep(durable) {
            sweep.execute()?;
        }
    }
    Ok(())
}

fn check_after_cut(sim: &SimDisk, seed: u64, committed: u64, durable: &Manifest) -> u64 {
    let after = sim.after_power_cut(seed);
    let disk: Arc<dyn Disk> = Arc::new(after.clone());
    // A list whose sync was told to succeed is there; one more may be, whose sync was not told.
    let listed = Manifest::load(&*disk, directory()).expect("never half a list");
    let listed = listed.unwrap_or_default();
    assert!(listed.end >= durable.end, "a durable list was lost: {listed:?} {durable:?}");
    let mut log = open(&disk, &listed).expect("the durable list opens");
    append(&mut log, listed.earliest, &all(committed)[listed.earliest as usize..])
        .expect("the tail is rebuilt, what is durable is equal");
    let reader = log.reader();
    let earliest = reader.bounds().earliest;
    let expected = shown(earliest, &all(committed)[earliest as usize..]);
    assert_eq!(read_all(&reader, earliest).expect("readable"), expected);
    let referenced: Vec<u64> = REFERENCED.into_iter().filter(|at| *at < committed).collect();
    let found = read_points(&reader, &referenced).expect("what is referred to is there");
    assert_eq!(found.len(), referenced.len());
    assert!(found.iter().all(|(offset, found)| *found == record(*offset)));
    // Nothing is left over but the chunks of the list and the list.
    assert_eq!(
        after.files().len(),
        listed.chunks.len() + usize::from(listed != Manifest::default())
    );
    seal(&mut log).expect("it goes on");
    earliest
}

#[test]
fn the_power_may_go_at_any_change() {
    let whole = SimDisk::new();
    live(&whole, &mut 0, &mut Manifest::default()).expect("nothing fails");
    let changes = whole.change_count();
    assert!(changes > 60, "{changes} changes are worth cutting");
    let mut retained = 0;
    for cut in 0..=changes {
        for seed in 0..3 {
            let sim = SimDisk::new();
            sim.power_for(cut);
            let (mut committed, mut durable) = (0, Manifest::default());
            let ended = live(&sim, &mut committed, &mut durable);
            assert_eq!(ended.is_ok(), cut == changes, "the cut was noticed");
            let seed = cut * 1_000 + seed;
            retained += u64::from(check_after_cut(&sim, seed, committed, &durable) > 0);
        }
    }
    assert!(retained > 0, "some cuts came after retention");
}

#[test]
fn files_nobody_listed_are_removed_and_unreadable_ones_are_set_aside() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    append(&mut log, 0, &all(40)).expect("dense");
    seal(&mut log).expect("sealed");
    let listed = log.manifest();
    append(&mut log, 40, &all(80)[40..]).expect("dense");
    seal(&mut log).expect("sealed");
    let whole = format!("{}/{}", directory(), "0000000000000002.chunk");
    let mut damaged = sim.bytes(&whole).expect("the second chunk");
    damaged.truncate(700);
    sim.put(&format!("{}/{}", directory(), "0000000000000009.chunk"), &damaged);
    sim.put(&format!("{}/{}", directory(), "000000000000000a.new"), b"half");
    sim.put(&format!("{}/{}", directory(), "notes.txt"), b"not ours");
    drop(log);
    let identity = support::identity();
    let (log, found) = RecordLog::open(
        disk.clone(),
        directory(),
        identity,
        support::keys(),
        support::small(),
        &listed,
    )
    .expect("the list opens");
    assert_eq!(found.removed, ["0000000000000002.chunk", "000000000000000a.new"]);
    assert_eq!(found.quarantined, ["0000000000000009.chunk"]);
    let aside = "log/quarantine/0000000000000009.chunk";
    assert_eq!(sim.bytes(aside).expect("set aside"), damaged);
    assert!(sim.bytes(&format!("{}/{}", directory(), "notes.txt")).is_ok());
    assert_eq!(log.reader().bounds().end, 40);
}
