//! What a process has used so far, read from `/proc`.
//!
//! CPU time comes in clock ticks, usually of 10 ms: over seconds of full load that is a fraction of
//! a percent, over a short or idle run it is coarse.

use std::fs;
use std::io;

/// The figures of one process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessSample {
    /// CPU seconds in user mode, over all threads, ended ones included.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Context switches because a thread had to wait, over living threads.
    pub voluntary_switches: u64,
    /// Context switches because its time was up.
    pub involuntary_switches: u64,
    /// Bytes of memory in use, files included.
    pub resident_bytes: u64,
    /// Bytes of memory of its own: heap and stacks.
    pub anonymous_bytes: u64,
}

impl ProcessSample {
    /// Reads the figures of a process.
    pub fn read(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (user, system) = cpu_ticks(&stat).ok_or(io::ErrorKind::InvalidData)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mut sample = Self {
            user_seconds: seconds(user),
            system_seconds: seconds(system),
            resident_bytes: 1024 * status_field(&status, "VmRSS:").unwrap_or(0),
            anonymous_bytes: 1024 * status_field(&status, "RssAnon:").unwrap_or(0),
            ..Self::default()
        };
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread may end while we look.
            let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
            let field = |name| status_field(&status, name).unwrap_or(0);
            sample.voluntary_switches += field("voluntary_ctxt_switches:");
            sample.involuntary_switches += field("nonvoluntary_ctxt_switches:");
        }
        Ok(sample)
    }

    /// CPU seconds, user and kernel together.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// What was used between `earlier` and this one; memory is taken as it is now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let switches = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            user_seconds: self.user_seconds - earlier.user_seconds,
            system_seconds: self.system_seconds - earlier.system_seconds,
            voluntary_switches: switches(self.voluntary_switches, earlier.voluntary_switches),
            involuntary_switches: switches(self.involuntary_switches, earlier.involuntary_switches),
            ..*self
        }
    }
}

#[allow(clippy::cast_precision_loss)] // ticks of a machine's lifetime fit
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// User and system ticks of a `stat` line. The name in parentheses may hold anything, blanks and
/// parentheses included, so fields are counted from the last one.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 999 0";
        assert_eq!(cpu_ticks(stat), Some((250, 50)));
        assert_eq!(cpu_ticks("7 (short) S 1"), None);
    }

    #[test]
    fn our_own_figures_grow() {
        let earlier = ProcessSample::read(std::process::id()).unwrap();
        assert!(earlier.resident_bytes >= earlier.anonymous_bytes);
        assert!(earlier.anonymous_bytes > 0);
        let mut later = earlier;
        let mut burned = 0_u64;
        while later.cpu_seconds() <= earlier.cpu_seconds() {
            burned = (0..1_000_000).fold(burned, |sum, one| std::hint::black_box(sum ^ one));
            later = ProcessSample::read(std::process::id()).unwrap();
        }
        assert!(later.since(&earlier).cpu_seconds() > 0.0);
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        assert!(ProcessSample::read(u32::MAX).is_err());
    }
}
