//! The engine around [`quantumqtt_fuzz::block`]; its invariant stands there.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quantumqtt_fuzz::block::check(bytes));
