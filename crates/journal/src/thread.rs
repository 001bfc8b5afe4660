//! The writer's threads and the system's clock: with `file_disk`, the only modules of this crate
//! that the outside world can make run differently twice.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the seam to threads and time"
)]

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::JournalError;
use crate::limits::FULL_RETRY_MS;
use crate::options::Clock;
use crate::shared::Shared;
use crate::shelf::Shelf;
use crate::writer::Writer;

/// The system's monotone clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// The two threads of a journal.
pub(crate) struct Threads {
    writer: JoinHandle<()>,
    shelf: JoinHandle<()>,
}

impl Threads {
    pub(crate) fn start(
        writer: Writer,
        shared: Arc<Shared>,
        shelf: &Arc<Shelf>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let stocked = Arc::clone(shelf);
        let keeper = std::thread::Builder::new()
            .name("journal-shelf".to_owned())
            .spawn(move || stocked.run())?;
        let started = std::thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || run_writer(writer, &shared, &*clock));
        match started {
            Ok(writer) => Ok(Self { writer, shelf: keeper }),
            Err(why) => {
                shelf.stop();
                // The keeper only stops; what it returns says nothing.
                let _ = keeper.join();
                Err(why)
            }
        }
    }

    /// Waits until both are gone; they were asked to stop before.
    pub(crate) fn join(self) {
        for thread in [self.writer, self.shelf] {
            if let Err(panicked) = thread.join() {
                std::panic::resume_unwind(panicked);
            }
        }
    }
}

/// A writer that panics acknowledges nothing more: whoever waits is told (rule 10 of the design).
struct Watch<'a> {
    shared: &'a Shared,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = io::Error::other("the writer panicked");
            self.shared.fail(JournalError::disk("writing", "wal", why));
        }
    }
}

fn run_writer(mut writer: Writer, shared: &Shared, clock: &dyn Clock) {
    let _watch = Watch { shared };
    loop {
        {
            let mut staging = shared.staging.lock();
            while !staging.urgent && !staging.stopping {
                let wait_us = match (writer.is_stuck(), writer.sync_due_us()) {
                    (true, _) => FULL_RETRY_MS * 1000,
                    (false, Some(due)) => due.saturating_sub(clock.now_us()),
                    (false, None) => {
                        shared.work.wait(&mut staging);
                        continue;
                    }
                };
                let slept = shared.work.wait_for(&mut staging, Duration::from_micros(wait_us));
                if slept.timed_out() {
                    break;
                }
            }
            if staging.stopping {
                drop(staging);
                if let Err(why) = writer.finish() {
                    shared.fail(why);
                }
                return;
            }
        }
        if let Err(why) = writer.pump() {
            shared.fail(why);
            return;
        }
        if writer.is_stuck() {
            // Staged records keep `urgent` meaningless while there is no room: wait in any case.
            let mut staging = shared.staging.lock();
            if !staging.stopping {
                shared.work.wait_for(&mut staging, Duration::from_millis(FULL_RETRY_MS));
            }
        }
    }
}
