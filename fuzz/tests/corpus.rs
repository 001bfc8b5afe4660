//! Everything the engine found worth keeping, run once without an engine; the gate does this.

use std::fs;
use std::path::Path;

use quantumqtt_fuzz::TARGETS;

/// One inflating input would pass this; the search runs under the same limit.
const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// One input per line, in hexadecimal; see docs/internals/fuzzing.md.
fn corpus_of(target: &str) -> Vec<Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{target}.txt"));
    let text = fs::read_to_string(&file).expect("every target has a corpus");
    text.lines().filter(|line| !line.starts_with('#')).map(unhex).collect()
}

fn unhex(line: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&line[at..at + 2], 16).expect("pairs of digits");
    (0..line.len()).step_by(2).map(pair).collect()
}

/// The most memory this process ever held, as the kernel counts it.
fn memory_peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let digits = peak.split_whitespace().next().expect("a number");
    digits.parse().expect("a number")
}

// hardening: stored-lengths
// hardening: inflation
// req: WIRE-21
#[test]
fn every_kept_input_keeps_every_invariant() {
    for (name, check) in TARGETS {
        let inputs = corpus_of(name);
        assert!(inputs.len() > 20, "{name} has a corpus worth the name: {}", inputs.len());
        for input in inputs {
            check(&input);
        }
    }
    assert!(memory_peak_kib() < MEMORY_KIB_MAX, "{} KiB", memory_peak_kib());
}
