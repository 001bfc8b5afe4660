//! Publishing: how many messages may leave, and sending them.

use quantumqtt_wire::{PacketType, QoS};

use crate::client::{Phase, Publisher};
use crate::inflight::Awaited;
use crate::stamp::Stamp;
use crate::worker::Worker;

/// Blocks one publisher may send per turn, so that none keeps the others waiting.
const ROUNDS_PER_TURN: usize = 4;
/// A window whose deliveries have stopped for this long is opened again; what is missing is lost,
/// or will still be counted when it comes.
const STALL_NS: u64 = 1_000_000_000;

impl Worker {
    /// Puts a publisher on the list of those that may send.
    #[inline]
    pub(crate) fn make_eager(&mut self, index: usize) {
        let publisher = &mut self.publishers[index];
        if !publisher.is_queued {
            publisher.is_queued = true;
            self.eager.push(index);
        }
    }

    /// Sends what may be sent; comes back when the socket is writable, the window opens, or the
    /// timetable says so.
    pub(crate) fn pump(&mut self, index: usize) {
        let one_packet = self.plan.spec.one_message_per_write;
        for _ in 0..ROUNDS_PER_TURN {
            if self.clients[index].phase != Phase::Running {
                return;
            }
            if !self.flush(index, one_packet) {
                return;
            }
            let room = self.publishers[index].block.capacity();
            let count = self.allowance(&self.publishers[index]).min(room as u64);
            if count == 0 {
                return;
            }
            self.fill(index, count);
        }
        if self.flush(index, one_packet) && self.allowance(&self.publishers[index]) > 0 {
            self.make_eager(index);
        }
    }

    /// Writes what waits on a client's connection; false when some of it still does.
    pub(crate) fn flush(&mut self, index: usize, one_packet: bool) -> bool {
        let block = self.publishers.get_mut(index).map(|publisher| &mut publisher.block);
        let Some(link) = &mut self.clients[index].link else { return false };
        match link.flush(block, one_packet) {
            Ok(all) => all,
            Err(error) => {
                self.lose(index, &error);
                false
            }
        }
    }

    /// How many messages a publisher may send now.
    fn allowance(&self, publisher: &Publisher) -> u64 {
        let spec = &self.plan.spec;
        if !self.is_measuring {
            return 0;
        }
        let mut count = u64::MAX;
        if spec.messages > 0 {
            count = spec.messages.saturating_sub(publisher.sent);
        }
        match self.plan.pace {
            None if self.now_ns >= self.stop_ns => return 0,
            None => {}
            Some(pace) => {
                let until_ns = self.now_ns.min(self.stop_ns.saturating_sub(1));
                let due_total = pace.due_total(until_ns.saturating_sub(self.start_ns));
                let due = pace.due_of(publisher.number, due_total);
                count = count.min(due.saturating_sub(publisher.sent));
            }
        }
        let hearers = u64::from(self.plan.hearers());
        match &publisher.inflight {
            Some(inflight) => count.min(inflight.room() as u64),
            None if spec.window == 0 || hearers == 0 || self.plan.pace.is_some() => count,
            None => {
                let under_way = (publisher.sent * hearers).saturating_sub(publisher.delivered);
                let room = (u64::from(spec.window) * hearers).saturating_sub(under_way);
                count.min(room / hearers)
            }
        }
    }

    fn fill(&mut self, index: usize, count: u64) {
        let plan = &self.plan;
        let (run, topics) = (plan.run, u64::from(plan.spec.topics));
        let publisher = &mut self.publishers[index];
        let first_stream = publisher.number * plan.spec.topics;
        let awaited = match plan.spec.qos {
            QoS::AtMostOnce | QoS::AtLeastOnce => Awaited::Acknowledgement,
            QoS::ExactlyOnce => Awaited::Received,
        };
        publisher.block.begin_round();
        for _ in 0..count {
            let number = publisher.sent;
            let (sequence, topic) =
                if topics == 1 { (number, 0) } else { (number / topics, (number % topics) as u32) };
            let sent_ns = match plan.pace {
                None => self.now_ns,
                Some(pace) => self.start_ns + pace.due_at_of(publisher.number, number),
            };
            let packet_id =
                publisher.inflight.as_mut().map(|inflight| inflight.begin(awaited, sent_ns));
            let stamp = Stamp { run, stream: first_stream + topic, sequence, sent_ns };
            publisher.block.push(stamp, packet_id, topic);
            publisher.sent += 1;
        }
        self.tally.sent += count;
        if publisher.inflight.is_some() {
            self.unanswered += count;
        }
        if plan.hearers() == 0 {
            self.last_activity_ns = self.now_ns;
        }
    }

    /// Opens the windows of publishers whose deliveries have stopped coming.
    pub(crate) fn write_off_stalls(&mut self) {
        let hearers = u64::from(self.plan.hearers());
        let can_stall =
            self.plan.spec.qos == QoS::AtMostOnce && hearers > 0 && self.plan.pace.is_none();
        if !can_stall || self.now_ns >= self.stop_ns {
            return;
        }
        for index in 0..self.publishers.len() {
            let publisher = &mut self.publishers[index];
            let missing = (publisher.sent * hearers).saturating_sub(publisher.delivered);
            let has_left = publisher.block.unwritten(false).is_empty();
            let quiet_ns = self.now_ns.saturating_sub(publisher.progress_ns);
            if missing > 0 && has_left && quiet_ns >= STALL_NS {
                self.tally.written_off += missing;
                publisher.delivered += missing;
                publisher.progress_ns = self.now_ns;
                self.make_eager(index);
            }
        }
    }

    /// Sends a ping, behind whatever waits to leave.
    pub(crate) fn ping(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(link) = &mut client.link {
            link.say(PacketType::PingReq);
            client.pings_unanswered += 1;
        }
        self.flush(index, self.plan.spec.one_message_per_write);
    }

    /// Pings so that each client speaks within three quarters of its keep alive.
    ///
    /// All clients are taken in turn, evenly spread: ten thousand pings at once would be a load of
    /// their own.
    pub(crate) fn ping_due(&mut self) {
        let keep_alive_ns = u64::from(self.plan.spec.keep_alive_s) * 1_000_000_000;
        let clients = self.clients.len() as u64;
        if keep_alive_ns == 0 || clients == 0 {
            return;
        }
        let interval_ns = (keep_alive_ns / 4 * 3 / clients).max(1);
        let due = self.now_ns / interval_ns;
        for ping in self.pings.max(due.saturating_sub(clients))..due {
            let index = (ping % clients) as usize;
            if self.clients[index].phase == Phase::Running {
                self.ping(index);
            }
        }
        self.pings = due;
    }
}
