//! The beginning and the end of clients: connect, subscribe, settle, leave.

use std::io;

use mio::{Interest, Token};
use quantumqtt_wire::{
    Connect, Disconnect, EncodeError, PacketId, PacketType, Properties, Property, PropertyBlock,
    ReasonCode, Subscribe, SubscribeBlock, SubscribeOptions, Version,
};

use crate::client::{Phase, Role};
use crate::error::Fault;
use crate::farewell;
use crate::link::Link;
use crate::spec::Scenario;
use crate::worker::Worker;

/// Connections being opened at once, where the window does not say: below the backlog of every
/// listener we know.
const OPEN_AT_ONCE: usize = 64;

impl Worker {
    /// How many connections may be on their way at once.
    pub(crate) fn open_at_once(&self) -> usize {
        match (self.plan.spec.scenario, self.plan.spec.window) {
            (Scenario::Connect | Scenario::Idle, window @ 1..) => window as usize,
            _ => OPEN_AT_ONCE,
        }
    }

    /// Begins to connect the next clients, as many as may be on their way and are due.
    pub(crate) fn open_more(&mut self) {
        if self.is_measuring && self.now_ns >= self.stop_ns {
            self.to_open.clear();
        }
        let interval_ns =
            u64::try_from(self.plan.spec.connect_interval.as_nanos()).unwrap_or(u64::MAX);
        while self.busy < self.open_at_once() && self.next_open_ns <= self.now_ns {
            let Some(index) = self.to_open.pop_front() else { return };
            self.open(index);
            if interval_ns > 0 {
                self.next_open_ns += interval_ns;
            }
        }
    }

    fn open(&mut self, index: usize) {
        let sources = &self.plan.spec.source_addresses;
        let client = &mut self.clients[index];
        let turn = u64::from(client.number) + client.connects;
        let source = sources.get((turn % sources.len().max(1) as u64) as usize).copied();
        client.phase = Phase::Opening;
        // Read anew: a turn may open dozens, and each is to be timed by itself.
        client.opened_ns = self.plan.now_ns();
        client.connects += 1;
        self.busy += 1;
        let registered = Link::open(self.plan.address, source).and_then(|mut link| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut link.stream, Token(index), interest)?;
            Ok(link)
        });
        match registered {
            Ok(link) => self.clients[index].link = Some(link),
            Err(error) => self.lose(index, &error),
        }
    }

    /// A socket takes bytes again, or its connect has an outcome.
    pub(crate) fn on_writable(&mut self, index: usize) {
        let client = &self.clients[index];
        if client.phase != Phase::Opening {
            match client.role {
                Role::Publisher(publisher) if self.is_measuring => self.make_eager(publisher),
                _ if client.link.as_ref().is_some_and(Link::has_small) => {
                    self.flush(index, self.plan.spec.one_message_per_write);
                }
                _ => {}
            }
            return;
        }
        match client.link.as_ref().and_then(Link::connect_outcome) {
            None => {}
            Some(Ok(())) => self.greet(index),
            Some(Err(error)) => self.lose(index, &error),
        }
    }

    fn greet(&mut self, index: usize) {
        match self.connect_packet(index) {
            Ok(packet) => self.advance(index, Phase::Greeting, &packet),
            Err(error) => self.refuse_to_send(index, &error),
        }
    }

    fn connect_packet(&self, index: usize) -> Result<Vec<u8>, EncodeError> {
        let spec = &self.plan.spec;
        let client = &self.clients[index];
        let (letter, keeps_session) = match client.role {
            Role::Publisher(_) => ('p', false),
            Role::Subscriber(_) => ('s', self.plan.is_persistent()),
            Role::Bare => ('c', false),
        };
        let mut properties = PropertyBlock::new();
        if keeps_session && spec.version == Version::V5 {
            properties.push(Property::SessionExpiryInterval(spec.expiry_s))?;
        }
        let connect = Connect {
            version: spec.version,
            clean_start: !keeps_session,
            keep_alive_s: spec.keep_alive_s,
            client_id: &self.plan.client_id(letter, client.number),
            will: None,
            user_name: spec.user_name.as_deref(),
            password: spec.password.as_deref().map(str::as_bytes),
            properties: properties.as_properties(),
        };
        let mut packet = Vec::new();
        connect.encode(spec.version, &mut packet)?;
        Ok(packet)
    }

    /// The broker has taken the client in.
    pub(crate) fn on_admitted(&mut self, index: usize, receive_maximum: Option<u16>) {
        let client = &self.clients[index];
        let took_ns = self.now_ns.saturating_sub(client.opened_ns);
        self.tally.connected += 1;
        self.tally.connect_latency.record(took_ns);
        self.last_activity_ns = self.now_ns;
        match client.role {
            Role::Subscriber(_) => match self.subscribe_packet(client.number) {
                Ok(packet) => self.advance(index, Phase::Subscribing, &packet),
                Err(error) => self.refuse_to_send(index, &error),
            },
            Role::Publisher(publisher) => {
                let inflight = self.publishers[publisher].inflight.as_mut();
                if let (Some(inflight), Some(count)) = (inflight, receive_maximum) {
                    inflight.limit_window(count);
                }
                self.settle(index);
            }
            Role::Bare if self.churns() => {
                let mut packet = Vec::new();
                packet.extend_from_slice(&[(PacketType::Disconnect as u8) << 4, 0]);
                self.advance(index, Phase::Leaving, &packet);
            }
            Role::Bare => self.settle(index),
        }
    }

    fn subscribe_packet(&self, subscriber: u32) -> Result<Vec<u8>, EncodeError> {
        let mut filters = SubscribeBlock::new();
        let options = SubscribeOptions::with_qos(self.plan.spec.qos);
        filters.push(&self.plan.filter(subscriber), options)?;
        let subscribe = Subscribe {
            packet_id: PacketId::MIN,
            properties: Properties::EMPTY,
            filters: filters.as_filters(),
        };
        let mut packet = Vec::new();
        subscribe.encode(self.plan.spec.version, &mut packet)?;
        Ok(packet)
    }

    /// Enters the next phase by saying something.
    fn advance(&mut self, index: usize, phase: Phase, packet: &[u8]) {
        let client = &mut self.clients[index];
        client.phase = phase;
        if let Some(link) = &mut client.link {
            link.small().extend_from_slice(packet);
        }
        self.flush(index, false);
    }

    fn refuse_to_send(&mut self, index: usize, error: &EncodeError) {
        self.tally.fault(Fault::ConnectFailed, || error.to_string());
        self.end(index);
    }

    /// The client is ready for its part.
    pub(crate) fn settle(&mut self, index: usize) {
        self.clients[index].phase = Phase::Running;
        self.busy -= 1;
        self.settled += 1;
    }

    /// Whether clients connect again after they left.
    fn churns(&self) -> bool {
        let spec = &self.plan.spec;
        spec.scenario == Scenario::Connect && (spec.messages > 0 || !spec.duration.is_zero())
    }

    /// The peer has closed its side.
    pub(crate) fn on_end(&mut self, index: usize) {
        if self.clients[index].phase != Phase::Leaving {
            self.tally.fault(Fault::ConnectionLost, || "closed by the broker".to_owned());
        }
        self.end(index);
    }

    /// A connection broke.
    pub(crate) fn lose(&mut self, index: usize, error: &io::Error) {
        match self.clients[index].phase {
            Phase::Leaving => {}
            Phase::Opening => self.tally.fault(Fault::ConnectFailed, || error.to_string()),
            _ => self.tally.fault(Fault::ConnectionLost, || error.to_string()),
        }
        self.end(index);
    }

    /// Closes a connection, and queues the client again if it is to connect again.
    pub(crate) fn end(&mut self, index: usize) {
        let churns = self.churns();
        let client = &mut self.clients[index];
        if client.phase == Phase::Gone {
            return;
        }
        if client.phase.is_busy() {
            self.busy -= 1;
            self.settled += 1;
        }
        client.phase = Phase::Gone;
        client.link = None;
        let wanted = self.plan.spec.messages;
        if churns && self.now_ns < self.stop_ns && (wanted == 0 || client.connects < wanted) {
            client.phase = Phase::Unopened;
            self.settled -= 1;
            self.to_open.push_back(index);
        }
    }

    /// Gives up connections that take longer than our patience.
    pub(crate) fn expire_openings(&mut self) {
        if self.busy == 0 {
            return;
        }
        let patience_ns = u64::try_from(self.plan.spec.patience.as_nanos()).unwrap_or(u64::MAX);
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            let phase = client.phase;
            if phase.is_busy() && self.now_ns.saturating_sub(client.opened_ns) >= patience_ns {
                self.tally.fault(Fault::ConnectTimeout, || format!("while {phase:?}"));
                self.end(index);
            }
        }
    }

    /// Takes leave of the broker and forgets sessions that would outlive us.
    ///
    /// What cannot be written at once is not written: the figures are settled, and the broker
    /// notices closed sockets.
    pub(crate) fn leave(&mut self) {
        let version = self.plan.spec.version;
        let ends_session = self.plan.is_persistent() && version == Version::V5;
        let packet = goodbye(version, ends_session);
        for client in self.clients.iter_mut().filter(|client| client.phase == Phase::Running) {
            if let Some(mut link) = client.link.take() {
                link.small().extend_from_slice(&packet);
                // Nothing depends on it any more.
                let _ = link.flush(None, false);
            }
            client.phase = Phase::Gone;
        }
        if self.plan.is_persistent() && version != Version::V5 {
            farewell::end_sessions(&self.plan, self.share.subscribers.clone());
        }
    }
}

fn goodbye(version: Version, ends_session: bool) -> Vec<u8> {
    let mut properties = PropertyBlock::new();
    let mut packet = Vec::new();
    let ended = ends_session
        && properties.push(Property::SessionExpiryInterval(0)).is_ok()
        && Disconnect { reason: ReasonCode::SUCCESS, properties: properties.as_properties() }
            .encode(version, &mut packet)
            .is_ok();
    if !ended {
        packet = vec![(PacketType::Disconnect as u8) << 4, 0];
    }
    packet
}
