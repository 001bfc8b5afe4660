//! The only crate that knows Python; builds quantumqtt._core.
