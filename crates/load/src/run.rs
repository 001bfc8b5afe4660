//! One run from spec to report: connect, measure, leave, each on all threads at once.
//!
//! The calling thread does none of the work. It waits, reports progress, and between the stages
//! reads what the broker's process has used, so that connecting and leaving never count as load.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::LoadError;
use crate::pace::Pace;
use crate::plan::Plan;
use crate::process::ProcessSample;
use crate::report::{BrokerUsage, Report};
use crate::spec::{Scenario, Spec};
use crate::tally::{Board, Tally};
use crate::worker::Worker;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Descriptors beside one per client: pollers, timers, libraries, what the caller has open.
const DESCRIPTORS_SPARE: u64 = 64;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Which part of it.
    pub stage: Stage,
    /// Since this part began.
    pub elapsed: Duration,
    /// Connections that got a CONNACK.
    pub connected: u64,
    /// Messages handed to sockets.
    pub sent: u64,
    /// Of those, answered.
    pub acknowledged: u64,
    /// Messages received.
    pub received: u64,
}

/// The part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Clients connect and subscribe.
    Connecting,
    /// The scenario runs.
    Measuring,
}

/// Makes a run. `on_progress` is called a few times per second and ends the run by breaking.
pub fn run(
    spec: &Spec,
    mut on_progress: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, LoadError> {
    spec.check()?;
    let plan = Arc::new(make_plan(spec)?);
    plan.check_topics()?;
    raise_descriptor_limit(u64::from(spec.publishers) + u64::from(spec.subscribers))?;
    let shares = plan.share_out();
    let mut workers = Vec::with_capacity(shares.len());
    for share in shares {
        workers.push(Worker::new(Arc::clone(&plan), share, Arc::default())?);
    }

    let before = sample(spec.broker_pid)?;
    let connect_from_ns = plan.now_ns();
    if spec.scenario != Scenario::Connect {
        let stage = Stage::Connecting;
        workers = on_threads(workers, stage, &mut on_progress, Worker::connect)?;
        refuse_incomplete(spec, &workers)?;
    }
    let start_ns = plan.now_ns();
    let ready = sample(spec.broker_pid)?;
    let own_before = sample_own();
    let measure = move |worker: &mut Worker| worker.measure(start_ns);
    workers = on_threads(workers, Stage::Measuring, &mut on_progress, measure)?;
    let end_ns = plan.now_ns();
    let generator = sample_own().since(&own_before);
    let after = sample(spec.broker_pid)?;

    let broker = before.zip(ready).zip(after).map(|((before, ready), after)| BrokerUsage {
        before,
        connecting: ready.since(&before),
        measuring: after.since(&ready),
    });
    for worker in &mut workers {
        worker.leave();
    }
    let connect_seconds = seconds_between(connect_from_ns, start_ns);
    Ok(Report { connect_seconds, broker, generator, ..summarise(&plan, workers, end_ns) })
}

fn make_plan(spec: &Spec) -> Result<Plan, LoadError> {
    let address = resolve(&spec.host, spec.port)?;
    let pace = spec.rate.map(|rate| Pace::new(rate, spec.publishers));
    // Two runs must not share a number: clock and process id are enough for that.
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run = clock.as_secs() as u32 ^ clock.subsec_nanos() ^ std::process::id().rotate_left(16);
    Ok(Plan { spec: spec.clone(), address, run, epoch: Instant::now(), pace })
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, LoadError> {
    let failed = |source| LoadError::Resolve { host: host.to_owned(), source };
    let mut addresses = (host, port).to_socket_addrs().map_err(failed)?;
    addresses.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
}

/// Raises the soft limit of open files as far as this run needs and the hard limit allows.
fn raise_descriptor_limit(clients: u64) -> Result<(), LoadError> {
    let needed = clients + DESCRIPTORS_SPARE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        let why = format!("needs {needed} open files, and the hard limit (ulimit -Hn) is lower");
        return Err(LoadError::Spec { field: "publishers", why });
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    let setup = |error: rustix::io::Errno| LoadError::Setup {
        what: "enough file descriptors",
        source: error.into(),
    };
    setrlimit(Resource::Nofile, raised).map_err(setup)
}

fn sample(pid: Option<u32>) -> Result<Option<ProcessSample>, LoadError> {
    let read = |pid| ProcessSample::read(pid).map_err(|source| LoadError::Process { pid, source });
    pid.map(read).transpose()
}

/// Our own figures are a courtesy: where `/proc` is not mounted they are zero.
fn sample_own() -> ProcessSample {
    ProcessSample::read(std::process::id()).unwrap_or_default()
}

/// Runs one stage on all workers at once and returns them when the last one is through.
fn on_threads(
    workers: Vec<Worker>,
    stage: Stage,
    on_progress: &mut impl FnMut(&Progress) -> ControlFlow<()>,
    work: impl Fn(&mut Worker) -> std::io::Result<()> + Sync,
) -> Result<Vec<Worker>, LoadError> {
    let boards: Vec<_> = workers.iter().map(|worker| Arc::clone(&worker.board)).collect();
    let began = Instant::now();
    let caller = thread::current();
    thread::scope(|scope| {
        let work = &work;
        let spawn = |mut worker: Worker| {
            let caller = caller.clone();
            thread::Builder::new().name("load".to_owned()).spawn_scoped(scope, move || {
                let ended = work(&mut worker);
                caller.unpark();
                ended.map(|()| worker)
            })
        };
        let setup = |what| move |source| LoadError::Setup { what, source };
        let mut threads = Vec::with_capacity(boards.len());
        for worker in workers {
            threads.push(spawn(worker).map_err(setup("a thread"))?);
        }
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::park_timeout(PROGRESS_INTERVAL);
            if on_progress(&add_up(stage, began.elapsed(), &boards)).is_break() {
                for board in &boards {
                    board.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(ended) => ended.map_err(setup("waiting for sockets")),
                Err(panic) => Err(LoadError::Panicked { words: last_words(panic.as_ref()) }),
            })
            .collect()
    })
}

fn last_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(ToString::to_string);
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn add_up(stage: Stage, elapsed: Duration, boards: &[Arc<Board>]) -> Progress {
    let sum = |of: fn(&Board) -> &std::sync::atomic::AtomicU64| {
        boards.iter().map(|board| of(board).load(Ordering::Relaxed)).sum()
    };
    Progress {
        stage,
        elapsed,
        connected: sum(|board| &board.connected),
        sent: sum(|board| &board.sent),
        acknowledged: sum(|board| &board.acknowledged),
        received: sum(|board| &board.received),
    }
}

/// Traffic among some of the clients would measure something nobody asked for.
fn refuse_incomplete(spec: &Spec, workers: &[Worker]) -> Result<(), LoadError> {
    let clients: u64 = workers.iter().map(|worker| worker.clients.len() as u64).sum();
    let failed: u64 =
        workers.iter().flat_map(|one| one.tally.faults()).map(|(_, count)| count).sum();
    if failed == 0 || spec.scenario == Scenario::Idle {
        return Ok(());
    }
    let first = workers.iter().find_map(|worker| worker.tally.first_fault.clone());
    Err(LoadError::Connect {
        failed,
        clients,
        host: spec.host.clone(),
        port: spec.port,
        first: first.unwrap_or_default(),
    })
}

fn summarise(plan: &Plan, workers: Vec<Worker>, end_ns: u64) -> Report {
    let spec = &plan.spec;
    let first_ns = workers.iter().map(|worker| worker.first_activity_ns).min().unwrap_or(0);
    let last_ns = workers.iter().map(|worker| worker.last_activity_ns).max().unwrap_or(0);
    let was_cut_short = workers.iter().any(|worker| worker.was_cut_short);
    let start_ns = workers.iter().map(|worker| worker.start_ns).min().unwrap_or(0);
    let seconds = match spec.scenario {
        Scenario::Idle => seconds_between(start_ns, end_ns),
        // Others began when they liked.
        Scenario::Subscribe => seconds_between(first_ns, last_ns),
        _ => seconds_between(start_ns, last_ns),
    };
    let lost = workers.iter().map(Worker::lost).sum();
    let mut tally = Tally::default();
    for worker in workers {
        tally.merge(worker.tally);
    }
    Report {
        scenario: spec.scenario,
        qos: spec.qos,
        connected: tally.connected,
        connect_seconds: 0.0,
        seconds,
        sent: tally.sent,
        acknowledged: tally.acknowledged,
        expected: tally.sent * u64::from(plan.hearers()),
        received: tally.received,
        lost,
        duplicated: tally.duplicated,
        out_of_order: tally.out_of_order,
        foreign: tally.foreign,
        written_off: tally.written_off,
        faults: tally.faults().map(|(fault, count)| (fault.label(), count)).collect(),
        first_fault: tally.first_fault,
        latency: tally.latency,
        acknowledge_latency: tally.acknowledge_latency,
        connect_latency: tally.connect_latency,
        was_cut_short,
        broker: None,
        generator: ProcessSample::default(),
    }
}

#[allow(clippy::cast_precision_loss)] // nanoseconds of a run fit
fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}
