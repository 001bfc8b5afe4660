//! A node without Python, for tools that count: instructions, system calls, allocations.
//!
//! `host [SHARDS]` prints its port and runs until standard input ends.

#![allow(clippy::print_stdout)] // it talks to the tool that started it

#[path = "../tests/support/embedded.rs"]
mod embedded;

use std::io::Read;

use quantumqtt_node::Node;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shards = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let node = Node::start(&embedded::config(shards))?;
    println!("{}", node.listeners()[0].address().expect("it is TCP").port());
    // Nobody wants the events; the queue merges them when it is full.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    node.stop();
    Ok(())
}
