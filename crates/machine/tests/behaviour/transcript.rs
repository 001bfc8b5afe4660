//! One day of a small house as a transcript: every command, and all that happened.
//!
//! A change of behaviour shows as a diff of `tests/golden/machine/day.txt`, digest included.

use std::fmt::Write;

use quantumqtt_machine::{AckKind, Command, OpenSession, Publish, SubscriptionOptions};
use quantumqtt_wire::QoS;

use crate::golden::check_golden;
use crate::rig::{Rig, lines, opening, origin, publishing, will};

struct Transcript {
    rig: Rig,
    text: String,
}

impl Transcript {
    fn step(&mut self, words: &str, command: Command<'_>) {
        let effects = self.rig.apply(command);
        writeln!(self.text, "{words}").unwrap();
        for line in lines(&effects) {
            writeln!(self.text, "    {line}").unwrap();
        }
    }

    fn open(&mut self, words: &str, connection: u64, open: OpenSession<'static>) {
        let open = OpenSession { origin: origin(connection), ..open };
        self.step(words, Command::OpenSession(open));
    }
}

fn link(
    client_id: &'static str,
    connection: u64,
    epoch: u64,
    incarnation: u64,
) -> crate::rig::Link {
    crate::rig::Link { client_id, origin: origin(connection), epoch, incarnation }
}

// req: DET-01
#[test]
fn a_day_reads_as_it_always_did() {
    let mut day = Transcript { rig: Rig::new(), text: String::new() };
    let two = SubscriptionOptions::with_qos(QoS::ExactlyOnce);
    let state = Publish { retain: true, ..publishing(1, QoS::AtLeastOnce, "lamp/state", "off") };
    day.step("the lamp says that it is off, retained", Command::Publish(state));
    day.open(
        "a panel connects, with a will after 30 s",
        1,
        OpenSession { will: Some(will(30)), expiry_s: 3_600, ..opening("panel") },
    );
    let panel = link("panel", 1, 1, 1);
    day.step("it subscribes to the lamp", panel.subscribe("lamp/#", two));
    day.step("it acknowledges what it was sent", panel.ack(AckKind::PubAck, 1));
    day.open("a logger connects", 2, OpenSession { receive_maximum: 1, ..opening("logger") });
    let logger = link("logger", 2, 2, 2);
    day.step("it subscribes to everything", logger.subscribe("#", two));
    let on = panel.publish(5, QoS::ExactlyOnce, "lamp/set", "on");
    day.step("the panel turns the lamp on, once and only once", Command::Publish(on));
    day.step("its socket breaks", panel.lost(true));
    day.rig.now_ms += 10_000;
    day.open(
        "it returns within its will's delay",
        3,
        OpenSession { will: Some(will(30)), expiry_s: 3_600, ..opening("panel") },
    );
    let panel = link("panel", 3, 3, 1);
    let again = Publish { dup: true, ..panel.publish(5, QoS::ExactlyOnce, "lamp/set", "on") };
    day.step("it repeats itself, as it heard no answer", Command::Publish(again));
    day.step("it releases the id", panel.release(5));
    day.step("it receives its own message", panel.ack(AckKind::PubRec, 2));
    day.step("the logger acknowledges one", logger.ack(AckKind::PubAck, 1));
    day.step("the panel is gone for good", panel.lost(true));
    day.rig.now_ms += 30_000;
    day.step("a tick 30 s later", Command::Tick);
    day.rig.now_ms += 3_570_000;
    day.step("a tick an hour after the loss", Command::Tick);
    writeln!(day.text, "digest {:032x}", day.rig.machine.digest()).unwrap();
    check_golden("day.txt", &day.text);
}
