//! Ends sessions that MQTT 3 keeps: only a clean connect under the same id does it.
//!
//! Done one after the other with blocking sockets, after everything was measured. The first
//! failure ends the attempt: a broker that cannot be reached keeps its sessions.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use quantumqtt_wire::{Connect, PacketType, Properties};

use crate::plan::Plan;

const PATIENCE: Duration = Duration::from_secs(1);
const CONNACK_BYTES: usize = 4;

pub(crate) fn end_sessions(plan: &Plan, subscribers: Range<u32>) {
    for number in subscribers {
        if end_session(plan, number).is_err() {
            return;
        }
    }
}

fn end_session(plan: &Plan, number: u32) -> io::Result<()> {
    let spec = &plan.spec;
    let connect = Connect {
        version: spec.version,
        clean_start: true,
        keep_alive_s: spec.keep_alive_s,
        client_id: &plan.client_id('s', number),
        will: None,
        user_name: spec.user_name.as_deref(),
        password: spec.password.as_deref().map(str::as_bytes),
        properties: Properties::EMPTY,
    };
    let mut packet = Vec::new();
    connect.encode(spec.version, &mut packet).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&plan.address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&packet)?;
    stream.read_exact(&mut [0; CONNACK_BYTES])?;
    stream.write_all(&[(PacketType::Disconnect as u8) << 4, 0])
}
