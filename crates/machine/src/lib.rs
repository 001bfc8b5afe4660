//! The deterministic state of one partition: apply(entry) gives effects.

#![forbid(unsafe_code)]
