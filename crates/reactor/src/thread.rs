//! Starting shard threads inside a process that is not ours.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

/// Called with a description when a thread dies of a panic.
pub type OnFailure = std::sync::Arc<dyn Fn(String) + Send + Sync>;

/// Run `body` on a named thread that takes no signals; report a panic instead of hiding it.
pub(crate) fn spawn(
    name: String,
    on_failure: OnFailure,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.clone()).spawn(move || {
        block_signals();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let words = panic
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            on_failure(format!("thread {name} panicked: {words}"));
        }
    })
}

/// Signals belong to the main thread, where Python's handlers live.
fn block_signals() {
    // SAFETY: both calls only write the set on our stack and this thread's own mask.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
