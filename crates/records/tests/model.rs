//! Everything an owner may do, in any order, beside a vector that never forgets.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use quantumqtt_records::{Disk, Error, Manifest, Range, RecordLog, Retention, RewriteJob, SimDisk};
use support::{Owned, any_record, append, expired, open, read_all, read_points, seal, shown};

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Owned>),
    /// Something begins to refer to the newest record, or to one so far back.
    Refer(usize),
    /// The reference at this place among all ends.
    Forget(usize),
    Seal,
    Merge,
    RetainBytes(u64),
    RetainAge(u64),
    Thin,
    Hold(u64),
    Release,
    /// A checkpoint becomes durable, then what is out of use is removed.
    Checkpoint,
    /// The process ends without a word; the last durable list and the replicated log remain.
    Crash(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(any_record(), 1..30).prop_map(Step::Append),
        3 => (0..40_usize).prop_map(Step::Refer),
        1 => any::<usize>().prop_map(Step::Forget),
        4 => Just(Step::Seal),
        3 => Just(Step::Merge),
        2 => (0..20_000_u64).prop_map(Step::RetainBytes),
        1 => (0..4_000_000_000_000_u64).prop_map(Step::RetainAge),
        2 => Just(Step::Thin),
        1 => any::<u64>().prop_map(Step::Hold),
        1 => Just(Step::Release),
        3 => Just(Step::Checkpoint),
        2 => any::<u64>().prop_map(Step::Crash),
    ]
}

struct World {
    sim: SimDisk,
    log: RecordLog,
    /// What the replicated log has had; it is never compacted here.
    all: Vec<Owned>,
    referenced: BTreeSet<u64>,
    durable: Manifest,
}

impl World {
    fn new() -> Self {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let log = open(&disk, &Manifest::default()).expect("a new log");
        let (all, referenced, durable) = Default::default();
        Self { sim, log, all, referenced, durable }
    }

    fn referenced(&self) -> Arc<[u64]> {
        self.referenced.iter().copied().collect()
    }

    fn rewrite(&mut self, job: Option<RewriteJob>) {
        if let Some(job) = job {
            self.log.publish_rewrite(job.execute().expect("nothing fails here"));
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(records) => {
                append(&mut self.log, self.all.len() as u64, &records).expect("dense");
                self.all.extend(records);
            }
            Step::Refer(back) => {
                let offset = (self.all.len() as u64).checked_sub(1 + back as u64);
                let earliest = self.log.reader().bounds().earliest;
                self.referenced.extend(offset.filter(|offset| *offset >= earliest));
            }
            Step::Forget(place) => {
                let count = self.referenced.len().max(1);
                let offset = self.referenced.iter().nth(place % count).copied();
                offset.map(|offset| self.referenced.remove(&offset));
            }
            Step::Seal => seal(&mut self.log).expect("nothing fails here"),
            Step::Merge => {
                let job = self.log.plan_merge();
                self.rewrite(job);
            }
            Step::RetainBytes(bytes) => {
                let much = Retention { bytes: Some(bytes), age_ms: None };
                let job = self.log.plan_retention(0, &much, &self.referenced());
                self.rewrite(job);
            }
            Step::RetainAge(age_ms) => {
                let old = Retention { bytes: None, age_ms: Some(age_ms) };
                let job = self.log.plan_retention(4_000_000_000_000, &old, &self.referenced());
                self.rewrite(job);
            }
            Step::Thin => {
                let job = self.log.plan_thinning(&self.referenced());
                self.rewrite(job);
            }
            Step::Hold(at) => {
                let offset = at % (self.all.len() as u64 + 1);
                let _ = self.log.hold("one", offset); // what has expired cannot be held
            }
            Step::Release => drop(self.log.release("one")),
            Step::Checkpoint => self.checkpoint(),
            Step::Crash(seed) => self.crash(seed),
        }
    }

    fn checkpoint(&mut self) {
        let manifest = self.log.manifest();
        self.durable = Manifest::decode(&manifest.encode()).expect("our own");
        if let Some(sweep) = self.log.plan_sweep(&self.durable) {
            sweep.execute().expect("nothing fails here");
        }
    }

    fn crash(&mut self, seed: u64) {
        self.sim = self.sim.after_power_cut(seed);
        let disk: Arc<dyn Disk> = Arc::new(self.sim.clone());
        self.log = open(&disk, &self.durable).expect("the durable list opens");
        // The replicated log begins anywhere before the durable end.
        let from = seed % (self.durable.end + 1);
        append(&mut self.log, from, &self.all[from as usize..]).expect("repeats are equal");
    }

    fn check(&self) {
        let reader = self.log.reader();
        let bounds = reader.bounds();
        assert_eq!(bounds.end, self.all.len() as u64);
        let expected = shown(bounds.earliest, &self.all[bounds.earliest as usize..]);
        assert_eq!(read_all(&reader, bounds.earliest).expect("readable"), expected);
        if let Some(before) = bounds.earliest.checked_sub(1) {
            let refused = expired(reader.read(&Range::from(before), 1));
            assert_eq!(refused, (before, bounds.earliest));
        }
        let referenced = self.referenced();
        let found = read_points(&reader, &referenced).expect("what is referred to is there");
        let expected: Vec<_> =
            referenced.iter().map(|at| (*at, self.all[*at as usize].clone())).collect();
        assert_eq!(found, expected);
        for hold in self.log.holds() {
            assert!(bounds.earliest <= hold.offset, "{hold:?} was passed");
        }
        assert_eq!(self.log.manifest().encode().len() % 8, 0);
        for chunk in self.log.chunks() {
            assert!(reader.verify_chunk(chunk.id).expect("undamaged") > 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_a_vector_with_a_moving_start(
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}

#[test]
fn references_outlive_retention_over_any_number_of_rounds() {
    let mut world = World::new();
    for round in 0..20_u64 {
        let records: Vec<Owned> =
            (0..40).map(|at| Owned::plain(round * 40 + at, &[round as u8; 100])).collect();
        world.take(Step::Append(records));
        world.take(Step::Refer(round as usize));
        world.take(Step::Seal);
        world.take(Step::RetainBytes(1));
        world.take(Step::Thin);
        world.take(Step::Checkpoint);
        world.check();
    }
    assert_eq!(world.referenced.len(), 20);
    assert!(world.log.statistics().kept_records >= 19);
    let missing = world.log.reader().read_points(&[0], 1);
    assert!(matches!(missing, Err(Error::OffsetExpired { from: 0, until: 1 })), "{missing:?}");
}
