//! The engine around [`quantumqtt_fuzz::segment`]; its invariant stands there.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quantumqtt_fuzz::segment::check(bytes));
