//! Three replicas on three lying disks, over a wire that loses, doubles and reorders.
//!
//! A safety phase with crashes, then a phase in which everything heals and must move again. One
//! seed is one run: the trace of a second run is the same.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use harness::world::Dice;
use harness::{keys, silent};
use quantumqtt_journal::{
    Crash, Drive, Group, GroupOptions, GroupSpec, Journal, JournalOptions, Members, NoClock,
    PeerMessage, SimDisk, SimEntropy,
};

const NODES: u64 = 3;

struct Alive {
    journal: Journal,
    group: Group,
    /// What the machine was given since the start: index and payload.
    applied: Vec<(u64, Bytes)>,
}

struct Node {
    disk: SimDisk,
    options: JournalOptions,
    alive: Option<Alive>,
}

struct Cluster {
    dice: Dice,
    nodes: Vec<Node>,
    wire: Vec<PeerMessage>,
    /// One in so many messages is lost; 0 never.
    loss: u64,
    /// What any replica ever applied at an index: never another payload.
    agreed: BTreeMap<u64, Bytes>,
    proposed: u64,
    trace: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let nodes = (1..=NODES).map(|id| {
            let options = JournalOptions {
                segment_bytes: 64 << 10,
                drive: Drive::Pump,
                entropy: Arc::new(SimEntropy::new(seed * 10 + id)),
                clock: Arc::new(NoClock),
                ..JournalOptions::new(id)
            };
            Node { disk: SimDisk::new(seed * 100 + id), options, alive: None }
        });
        let mut cluster = Self {
            dice: Dice(seed * 2 + 1),
            nodes: nodes.collect(),
            wire: Vec::new(),
            loss: 8,
            agreed: BTreeMap::new(),
            proposed: 0,
            trace: 0,
        };
        (0..NODES as usize).for_each(|at| cluster.start(at));
        cluster
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x0100_0000_01B3).rotate_left(17);
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let disk = Arc::new(node.disk.clone());
        let opened = Journal::open(disk, node.options.clone(), &keys(), silent());
        let (journal, mut recovered) = opened.unwrap();
        let spec = GroupSpec { id: 1, members: Members::voters(&[1, 2, 3]), key_domain: 0 };
        let group = match recovered.pop() {
            Some(group) => group,
            None => journal.create_group(&spec).unwrap(),
        };
        let group = Group::start(group, GroupOptions { seed: 5, ..GroupOptions::new(at) });
        node.alive = Some(Alive { journal, group, applied: Vec::new() });
    }

    fn crash(&mut self, at: usize) {
        let ways = [Crash::Process, Crash::Clean, Crash::Prefix, Crash::Subset, Crash::Torn];
        let how = ways[self.dice.below(5) as usize];
        self.nodes[at].alive = None;
        self.nodes[at].disk.crash(how);
    }

    fn step(&mut self) {
        let at = self.dice.below(NODES) as usize;
        let choice = self.dice.below(20);
        let Some(alive) = &mut self.nodes[at].alive else {
            if choice < 4 {
                self.start(at);
            }
            return;
        };
        match choice {
            0..=4 => alive.group.tick(),
            5..=7 if alive.group.is_leader() => {
                self.proposed += 1;
                let payload = Bytes::from(format!("{} by {}", self.proposed, at + 1));
                let _ = alive.group.propose(payload);
            }
            8..=13 => self.deliver(),
            14 | 15 => drop(alive.group.stage(&alive.journal).unwrap()),
            16..=18 => drop(alive.journal.pump().unwrap()),
            _ => {}
        }
        self.turn(at);
    }

    fn deliver(&mut self) {
        if self.wire.is_empty() {
            return;
        }
        let pick = self.dice.below(self.wire.len() as u64) as usize;
        let message = self.wire.swap_remove(pick);
        if self.loss > 0 {
            if self.dice.below(self.loss) == 0 {
                return;
            }
            if self.dice.below(self.loss) == 0 {
                self.wire.push(message.clone());
            }
        }
        let to = message.to as usize - 1;
        self.note(message.to ^ (message.index << 8) ^ (message.term << 40));
        if let Some(alive) = &mut self.nodes[to].alive {
            alive.group.step(message);
        }
    }

    /// What a shard does at the end of its turn.
    fn turn(&mut self, at: usize) {
        let Some(alive) = &mut self.nodes[at].alive else { return };
        alive.group.on_durable(&alive.journal);
        let taken: Vec<_> = alive.group.take_committed().collect();
        if let Some(last) = taken.last() {
            alive.group.applied(last.index);
        }
        let messages = alive.group.take_messages();
        for entry in taken {
            let known = self.agreed.entry(entry.index).or_insert_with(|| entry.data.clone());
            assert_eq!(*known, entry.data, "two replicas applied different entries");
            let alive = self.nodes[at].alive.as_mut().unwrap();
            assert!(alive.applied.last().is_none_or(|(index, _)| *index < entry.index));
            alive.applied.push((entry.index, entry.data));
            self.note(entry.index << 3 | at as u64);
        }
        self.wire.extend(messages);
        let excess = self.wire.len().saturating_sub(200);
        self.wire.drain(..excess);
    }

    fn leaders(&self) -> usize {
        let alive = self.nodes.iter().filter_map(|node| node.alive.as_ref());
        alive.filter(|alive| alive.group.is_leader()).count()
    }

    /// Everything works again: every replica must get everything that was ever applied, and more.
    fn heal(&mut self) {
        self.loss = 0;
        for at in 0..NODES as usize {
            if self.nodes[at].alive.is_none() {
                self.start(at);
            }
        }
        let before = self.agreed.len();
        for round in 0..4000 {
            for at in 0..NODES as usize {
                let alive = self.nodes[at].alive.as_mut().unwrap();
                if round % 3 == 0 {
                    alive.group.tick();
                }
                if alive.group.is_leader() && round % 50 == 0 {
                    let _ = alive.group.propose(Bytes::from(format!("healed {round}")));
                }
                alive.group.advance(&alive.journal).unwrap();
                alive.journal.pump().unwrap();
                alive.group.advance(&alive.journal).unwrap();
                self.turn(at);
                for _ in 0..6 {
                    self.deliver();
                }
            }
            let whole = self.agreed.len() > before + 3
                && self.nodes.iter().all(|node| {
                    let applied = &node.alive.as_ref().unwrap().applied;
                    applied.len() >= before + 3
                });
            if whole {
                return;
            }
        }
        panic!("it does not move: {} leaders", self.leaders());
    }
}

fn run(seed: u64, steps: u64) -> u64 {
    let mut cluster = Cluster::new(seed);
    for _ in 0..steps {
        cluster.step();
        if cluster.dice.below(150) == 0 {
            let at = cluster.dice.below(NODES) as usize;
            cluster.crash(at);
        }
    }
    cluster.heal();
    for at in 0..NODES as usize {
        let disk = cluster.nodes[at].disk.trace_hash();
        cluster.note(disk);
        let applied = &cluster.nodes[at].alive.as_ref().unwrap().applied;
        for ((index, payload), (known, agreed)) in applied.iter().zip(&cluster.agreed) {
            assert_eq!((index, payload), (known, agreed), "a replica has a hole");
        }
    }
    cluster.trace
}

// req: LOG-01, LOG-02, LOG-03
#[test]
fn three_replicas_agree_whatever_the_wire_and_the_disks_do() {
    for seed in 1..=12 {
        run(seed, 6000);
    }
}

// req: DET-11
#[test]
fn one_seed_is_one_run() {
    assert_eq!(run(3, 4000), run(3, 4000));
    assert_ne!(run(3, 4000), run(4, 4000));
}
