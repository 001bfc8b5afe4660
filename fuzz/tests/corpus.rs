//! Everything the engine found worth keeping, run once without an engine; the gate does this.

use std::fs;
use std::path::Path;

use quantumqtt_fuzz::TARGETS;

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

#[test]
fn every_kept_input_keeps_every_invariant() {
    for (name, check) in TARGETS {
        let inputs = corpus_of(name);
        assert!(inputs.len() > 20, "{name} has a corpus worth the name: {}", inputs.len());
        for input in inputs {
            check(&input);
        }
    }
}
