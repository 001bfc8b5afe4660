//! Groups on a lying disk, a machine that remembers everything, and what must hold after a crash.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use quantumqtt_journal::{
    Checkpoint, CheckpointWriter, Crash, Disk, Drive, Floors, Group, GroupOptions, Journal,
    JournalError, JournalOptions, NoClock, Refusal, SimDisk, SimEntropy,
};

use super::{keys, lone_spec, silent};

/// A small generator; tests print its seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

/// What one group's user knows.
#[derive(Default, Clone)]
pub struct User {
    /// Everything proposed, in the order it would have in the log.
    pub proposed: Vec<Bytes>,
    /// How much of it was acknowledged.
    pub acknowledged: usize,
}

/// One group and the machine behind it: a list of everything applied.
pub struct Replica {
    pub group: Group,
    pub applied: Vec<Bytes>,
    pub index: u64,
    pub checkpoints: Vec<Checkpoint>,
}

pub struct World {
    pub disk: SimDisk,
    pub options: JournalOptions,
    pub users: BTreeMap<u64, User>,
    pub dice: Dice,
    /// How many payload bytes the largest proposal has.
    pub payload_max: u64,
    /// One in so many steps writes a checkpoint; 0 never.
    pub checkpoint_every: u64,
    next: u64,
    seed: u64,
}

/// Why a life ended before its time.
#[derive(Debug)]
pub enum End {
    Disk(JournalError),
    Refused(Refusal),
}

impl From<JournalError> for End {
    fn from(why: JournalError) -> Self {
        Self::Disk(why)
    }
}

impl From<Refusal> for End {
    fn from(why: Refusal) -> Self {
        Self::Refused(why)
    }
}

pub struct Life {
    pub journal: Journal,
    pub replicas: BTreeMap<u64, Replica>,
}

fn encode(applied: &[Bytes]) -> Vec<u8> {
    let mut out = Vec::new();
    for payload in applied {
        out.put_u32_le(payload.len() as u32);
        out.extend_from_slice(payload);
    }
    out
}

fn decode(mut bytes: Bytes) -> Vec<Bytes> {
    let mut applied = Vec::new();
    while !bytes.is_empty() {
        let length = bytes.split_to(4);
        let length = u32::from_le_bytes(length[..].try_into().unwrap());
        applied.push(bytes.split_to(length as usize));
    }
    applied
}

impl World {
    pub fn new(seed: u64, groups: u64) -> Self {
        let options = JournalOptions {
            segment_bytes: 64 << 10,
            drive: Drive::Pump,
            entropy: Arc::new(SimEntropy::new(seed)),
            clock: Arc::new(NoClock),
            ..JournalOptions::new(1)
        };
        Self {
            disk: SimDisk::new(seed),
            options,
            users: (1..=groups).map(|id| (id, User::default())).collect(),
            dice: Dice(seed | 1),
            payload_max: 3000,
            checkpoint_every: 12,
            next: 0,
            seed,
        }
    }

    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.clone())
    }

    /// Opens the journal, restores every machine, and checks what came back.
    pub fn open(&mut self) -> Result<Life, End> {
        let opened = Journal::open(self.disk(), self.options.clone(), &keys(), silent());
        let (journal, recovered) = opened?;
        let mut recovered: BTreeMap<_, _> =
            recovered.into_iter().map(|group| (group.id(), group)).collect();
        let mut replicas = BTreeMap::new();
        for &id in self.users.keys() {
            let group = match recovered.remove(&id) {
                Some(group) => group,
                None => journal.create_group(&lone_spec(id))?,
            };
            let mut applied = Vec::new();
            let mut index = 0;
            if let Some(checkpoint) = group.checkpoint() {
                index = checkpoint.index();
                for number in 0..checkpoint.chunks().len() {
                    applied.extend(decode(checkpoint.read(number)?));
                }
            }
            let checkpoints = group.checkpoint().cloned().into_iter().collect();
            let group = Group::start(group, GroupOptions::new(id as usize));
            replicas.insert(id, Replica { group, applied, index, checkpoints });
        }
        let mut life = Life { journal, replicas };
        self.settle(&mut life)?;
        self.check(&life);
        for (id, replica) in &life.replicas {
            let user = self.users.get_mut(id).unwrap();
            user.proposed.clone_from(&replica.applied);
            user.acknowledged = user.proposed.len();
        }
        Ok(life)
    }

    /// Until nothing moves any more.
    pub fn settle(&mut self, life: &mut Life) -> Result<(), End> {
        loop {
            for replica in life.replicas.values_mut() {
                replica.group.advance(&life.journal)?;
            }
            let moved = life.journal.pump()?;
            for replica in life.replicas.values_mut() {
                replica.group.advance(&life.journal)?;
            }
            self.apply(life);
            let quiet = life.replicas.values().all(|replica| replica.group.status().parked == 0);
            if !moved && quiet {
                return Ok(());
            }
            if !moved && life.journal.is_full() {
                return Err(Refusal::Full.into());
            }
        }
    }

    fn apply(&mut self, life: &mut Life) {
        for (id, replica) in &mut life.replicas {
            for entry in replica.group.take_committed() {
                assert!(entry.index > replica.index, "indexes rise");
                replica.index = entry.index;
                replica.applied.push(entry.data);
            }
            replica.group.applied(replica.index.max(replica.group.status().applied));
            let user = self.users.get_mut(id).unwrap();
            user.acknowledged = user.acknowledged.max(replica.applied.len());
        }
    }

    /// All that was acknowledged is there, and nothing that was never proposed.
    fn check(&self, life: &Life) {
        for (id, replica) in &life.replicas {
            let user = &self.users[id];
            let count = replica.applied.len();
            assert!(
                count >= user.acknowledged,
                "group {id}: {} acknowledged, {count} recovered",
                user.acknowledged
            );
            assert!(count <= user.proposed.len(), "group {id}: invented entries");
            assert!(replica.applied == user.proposed[..count], "group {id}: other entries");
        }
    }

    /// One random step of one random group.
    pub fn step(&mut self, life: &mut Life) -> Result<(), End> {
        let id = 1 + self.dice.below(self.users.len() as u64);
        let replica = life.replicas.get_mut(&id).unwrap();
        let choice = self.dice.below(12);
        if self.checkpoint_every > 0 && self.dice.below(self.checkpoint_every) == 0 {
            return self.checkpoint(life, id);
        }
        match choice {
            0..=5 => {
                for _ in 0..=self.dice.below(4) {
                    let payload = self.payload();
                    replica.group.propose(payload.clone())?;
                    self.users.get_mut(&id).unwrap().proposed.push(payload);
                }
            }
            6 | 7 => drop(replica.group.stage(&life.journal)?),
            8 | 9 => drop(life.journal.pump()?),
            10 => {
                replica.group.advance(&life.journal)?;
                self.apply(life);
            }
            _ => self.settle(life)?,
        }
        Ok(())
    }

    fn payload(&mut self) -> Bytes {
        self.next += 1;
        let length = 8 + self.dice.below(self.payload_max);
        let mut payload = self.next.to_le_bytes().to_vec();
        payload.resize(length as usize, self.next as u8);
        Bytes::from(payload)
    }

    fn checkpoint(&mut self, life: &mut Life, id: u64) -> Result<(), End> {
        self.write_checkpoint(life, id)?;
        let replica = life.replicas.get_mut(&id).unwrap();
        if self.dice.below(3) > 0 {
            let checkpoint = replica.checkpoints.last().unwrap();
            let mut floors = Floors::none();
            if self.dice.below(2) == 0 {
                floors = floors.hold("test", self.dice.below(checkpoint.index() + 5));
            }
            replica.group.compact(&life.journal, checkpoint, &floors)?;
        }
        Ok(())
    }

    /// Writes a checkpoint of everything that is committed by now.
    pub fn write_checkpoint(&mut self, life: &mut Life, id: u64) -> Result<(), End> {
        self.settle(life)?;
        let replica = life.replicas.get_mut(&id).unwrap();
        let applied = replica.group.status().applied;
        if replica.checkpoints.last().is_none_or(|last| last.index() < applied) {
            let mut writer = CheckpointWriter::begin(&life.journal, &replica.group, 1)?;
            for part in replica.applied.chunks(40) {
                writer.chunk("entries", &encode(part))?;
            }
            replica.checkpoints.push(writer.publish(b"digest")?);
        }
        Ok(())
    }

    /// Steps until the disk or the count ends; true if it was the count.
    ///
    /// A life may end early only because the power went.
    pub fn live(&mut self, steps: u64) -> bool {
        match self.try_live(steps) {
            Ok(()) => true,
            Err(end) => {
                assert!(self.disk.is_off(), "seed {}: {end:?}", self.seed);
                false
            }
        }
    }

    pub fn try_live(&mut self, steps: u64) -> Result<(), End> {
        let mut life = self.open()?;
        (0..steps).try_for_each(|_| self.step(&mut life))
    }

    /// Any way to crash.
    pub fn crash(&mut self) {
        let ways = [Crash::Process, Crash::Clean, Crash::Prefix, Crash::Subset, Crash::Torn];
        self.disk.crash(ways[self.dice.below(5) as usize]);
    }
}
