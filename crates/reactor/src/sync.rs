//! What shards share state with: the real primitives, or loom's models of them.
//!
//! The feature `loom` exists for `races.rs` alone. Nothing else may build with it: its primitives
//! work inside a model and nowhere else.

#[cfg(not(feature = "loom"))]
pub(crate) use mio::Waker;
#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(feature = "loom")]
pub(crate) use model::{Mutex, Waker};

#[cfg(feature = "loom")]
mod model {
    use std::io;

    use loom::sync::{Mutex as LoomMutex, MutexGuard};

    /// Loom's mutex behind the face of ours, which knows no poison.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(LoomMutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(LoomMutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a panic has already ended the model")
        }
    }

    /// An eventfd: rung until somebody looks; the kernel orders all who touch it.
    #[derive(Debug)]
    pub(crate) struct Waker(Mutex<bool>);

    impl Waker {
        pub(crate) fn new(_: &mio::Registry, _: mio::Token) -> io::Result<Self> {
            Ok(Self::silent())
        }

        pub(crate) fn silent() -> Self {
            Self(Mutex::new(false))
        }

        pub(crate) fn wake(&self) -> io::Result<()> {
            *self.0.lock() = true;
            Ok(())
        }

        /// What the owner's poll would return for.
        pub(crate) fn was_rung(&self) -> bool {
            std::mem::take(&mut *self.0.lock())
        }
    }
}
