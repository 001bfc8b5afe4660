//! A machine on the bench: plain commands to start from, and effects as one line of text each.

use bytes::Bytes;
use quantumqtt_machine::{
    AckKind, ClientAck, Command, ConnectionLost, Deliver, EXPIRY_NEVER_S, Effect, Entry,
    EntryBuilder, EntryHeader, Limits, Machine, OpenSession, Origin, PubRel, Publish, Source,
    Subscribe, SubscribeFilter, SubscriptionOptions, Unsubscribe, Will,
};
use quantumqtt_wire::{QoS, ReasonCode};

pub(crate) const PARTITION: u32 = 7;

/// A connection as a client sees it after CONNACK.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) client_id: &'static str,
    pub(crate) origin: Origin,
    pub(crate) epoch: u64,
    pub(crate) incarnation: u64,
}

/// A machine, and the time its leader's clock shows.
pub(crate) struct Rig {
    pub(crate) machine: Machine,
    pub(crate) now_ms: u64,
    connections: u64,
}

pub(crate) fn origin(connection: u64) -> Origin {
    Origin { node: 1, shard: 0, connection }
}

pub(crate) fn entry_of(commands: &[Command<'_>], now_ms: u64) -> Entry {
    let mut builder = EntryBuilder::new();
    for command in commands {
        builder.push(command).unwrap();
    }
    let header = EntryHeader { partition: PARTITION, now_ms, ..EntryHeader::default() };
    Entry::parse(builder.finish(&header)).unwrap()
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self { machine: Machine::new(PARTITION, limits), now_ms: 1_000_000, connections: 0 }
    }

    pub(crate) fn apply(&mut self, command: Command<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.machine.apply(&entry_of(&[command], self.now_ms), &mut effects).unwrap();
        effects
    }

    /// The same, as lines.
    pub(crate) fn run(&mut self, command: Command<'_>) -> Vec<String> {
        lines(&self.apply(command))
    }

    pub(crate) fn open(&mut self, open: OpenSession<'static>) -> (Link, Vec<String>) {
        self.connections += 1;
        let open = OpenSession { origin: origin(self.connections), ..open };
        let effects = self.apply(Command::OpenSession(open));
        let opened = effects.iter().find_map(|effect| match effect {
            Effect::SessionOpened(opened) => Some(opened),
            _ => None,
        });
        let opened = opened.expect("the session was refused");
        let link = Link {
            client_id: open.client_id,
            origin: open.origin,
            epoch: opened.session_epoch,
            incarnation: opened.incarnation,
        };
        (link, lines(&effects))
    }

    /// A persistent session, whatever it is sent on the way.
    pub(crate) fn connect(&mut self, client_id: &'static str) -> Link {
        self.open(opening(client_id)).0
    }

    /// A persistent session with one subscription.
    pub(crate) fn connect_to(&mut self, client_id: &'static str, filter: &str, qos: QoS) -> Link {
        let link = self.connect(client_id);
        self.run(link.subscribe(filter, SubscriptionOptions::with_qos(qos)));
        link
    }

    pub(crate) fn lose(&mut self, link: Link) -> Vec<String> {
        self.run(link.lost(true))
    }

    /// A tick `later_ms` from now.
    pub(crate) fn tick(&mut self, later_ms: u64) -> Vec<String> {
        self.now_ms += later_ms;
        self.run(Command::Tick)
    }
}

impl Link {
    pub(crate) fn subscribe<'a>(&self, filter: &'a str, options: SubscriptionOptions) -> Command<'a>
    where
        'static: 'a,
    {
        Command::Subscribe(Subscribe {
            origin: self.origin,
            client_id: self.client_id,
            session_epoch: self.epoch,
            packet_id: 1,
            subscription_id: None,
            filters: vec![SubscribeFilter { filter, options, refused: None }],
        })
    }

    pub(crate) fn unsubscribe<'a>(&self, filters: &[&'a str]) -> Command<'a> {
        Command::Unsubscribe(Unsubscribe {
            origin: self.origin,
            client_id: self.client_id,
            session_epoch: self.epoch,
            packet_id: 2,
            filters: filters.to_vec(),
        })
    }

    pub(crate) fn publish<'a>(
        &self,
        packet_id: u16,
        qos: QoS,
        topic: &'a str,
        payload: &'a str,
    ) -> Publish<'a> {
        Publish {
            origin: self.origin,
            client_id: self.client_id,
            session_epoch: self.epoch,
            incarnation: self.incarnation,
            ..publishing(packet_id, qos, topic, payload)
        }
    }

    pub(crate) fn release(&self, packet_id: u16) -> Command<'static> {
        Command::PubRel(PubRel {
            origin: self.origin,
            client_id: self.client_id,
            session_epoch: self.epoch,
            packet_id,
        })
    }

    pub(crate) fn ack(&self, kind: AckKind, packet_id: u16) -> Command<'static> {
        Command::ClientAck(ClientAck {
            client_id: self.client_id,
            session_epoch: self.epoch,
            packet_id,
            kind,
            reason: ReasonCode::SUCCESS,
        })
    }

    pub(crate) fn lost(&self, fire_will: bool) -> Command<'static> {
        Command::ConnectionLost(ConnectionLost {
            client_id: self.client_id,
            session_epoch: self.epoch,
            fire_will,
            expiry_s: None,
            will_grace_s: 0,
        })
    }

    /// The server itself has ended the connection.
    pub(crate) fn cut_off(&self, will_grace_s: u32) -> Command<'static> {
        Command::ConnectionLost(ConnectionLost {
            client_id: self.client_id,
            session_epoch: self.epoch,
            fire_will: true,
            expiry_s: None,
            will_grace_s,
        })
    }
}

pub(crate) fn opening(client_id: &'static str) -> OpenSession<'static> {
    OpenSession {
        origin: origin(0),
        client_id,
        identity: "",
        level: 5,
        clean_start: false,
        expiry_s: EXPIRY_NEVER_S,
        receive_maximum: u16::MAX,
        maximum_packet_bytes: u32::MAX,
        will: None,
    }
}

pub(crate) fn will(delay_s: u32) -> Will<'static> {
    Will {
        topic: "will",
        properties: b"",
        payload: b"gone",
        qos: QoS::AtLeastOnce,
        retain: false,
        delay_s,
        expiry_s: None,
    }
}

/// A publish of a transient session.
pub(crate) fn publishing<'a>(
    packet_id: u16,
    qos: QoS,
    topic: &'a str,
    payload: &'a str,
) -> Publish<'a> {
    Publish {
        origin: origin(99),
        client_id: "transient",
        session_epoch: 0,
        incarnation: 0,
        packet_id,
        qos,
        retain: false,
        dup: false,
        captured: false,
        dedupe: None,
        source: Source::Mqtt,
        expiry_s: None,
        topic,
        properties: b"",
        payload: payload.as_bytes(),
    }
}

pub(crate) fn lines(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(line).collect()
}

/// The lines that begin with `word`.
pub(crate) fn only(lines: &[String], word: &str) -> Vec<String> {
    lines.iter().filter(|line| line.starts_with(word)).cloned().collect()
}

/// One effect as a line; `c3` is connection 3, `#5` packet id 5, `q1` `QoS` 1.
fn line(effect: &Effect) -> String {
    match effect {
        Effect::SessionOpened(opened) => {
            let filters: Vec<&str> = opened.subscriptions.iter().map(|s| &*s.filter).collect();
            let previous = opened.previous.map_or(String::new(), |o| format!(" closes {}", at(o)));
            let words = if opened.session_present { "resumed" } else { "opened" };
            format!(
                "{words} {} {} epoch {} incarnation {} {filters:?}{previous}",
                at(opened.origin),
                opened.client_id,
                opened.session_epoch,
                opened.incarnation
            )
        }
        Effect::OpenRefused { origin, reason } => format!("refused {} {reason:?}", at(*origin)),
        Effect::Subscribed(subscribed) => {
            format!("suback {} {:x?}", at(subscribed.origin), bytes_of(&subscribed.codes))
        }
        Effect::Unsubscribed(gone) => {
            format!("unsuback {} {:x?}", at(gone.origin), bytes_of(&gone.codes))
        }
        Effect::Acknowledge { origin, kind, packet_id, reason } => {
            format!("{kind:?} {} #{packet_id}{}", at(*origin), word_of(*reason)).to_lowercase()
        }
        Effect::Release { origin, packet_id, reason } => {
            format!("pubrel {} #{packet_id}{}", at(*origin), word_of(*reason))
        }
        Effect::Deliver(deliver) => deliver_line(deliver),
        Effect::Append(record) => {
            let message = &record.message;
            let retain = if record.retain { " retain" } else { "" };
            let captured = if record.captured { " captured" } else { "" };
            format!(
                "append @{} {}={} q{} {:?} of {}/{} seq {}{retain}{captured}",
                record.offset,
                message.topic,
                text(&message.payload),
                message.qos.bits(),
                record.source,
                record.client_id,
                record.incarnation,
                record.publish_seq
            )
        }
        Effect::SessionEnded(ended) => {
            let closes = ended.origin.map_or(String::new(), |o| format!(" closes {}", at(o)));
            format!(
                "ended {} epoch {} {:?}{closes}",
                ended.client_id, ended.session_epoch, ended.reason
            )
        }
    }
}

fn deliver_line(deliver: &Deliver) -> String {
    let packet_id = deliver.packet_id.map_or(String::new(), |packet_id| format!(" #{packet_id}"));
    let expiry = deliver.expiry_s.map_or(String::new(), |expiry_s| format!(" expires {expiry_s}"));
    let ids = match deliver.subscription_ids.as_slice() {
        [] => String::new(),
        ids => format!(" ids {ids:?}"),
    };
    format!(
        "publish {}{packet_id} {}={} q{}{}{}{expiry}{ids}",
        at(deliver.origin),
        deliver.message.topic,
        text(&deliver.message.payload),
        deliver.qos.bits(),
        if deliver.dup { " dup" } else { "" },
        if deliver.retain { " retain" } else { "" },
    )
}

fn at(origin: Origin) -> String {
    format!("c{}", origin.connection)
}

fn text(payload: &Bytes) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

fn word_of(reason: ReasonCode) -> String {
    if reason == ReasonCode::SUCCESS { String::new() } else { format!(" {:#04x}", reason.0) }
}

fn bytes_of(codes: &[ReasonCode]) -> Vec<u8> {
    codes.iter().map(|code| code.0).collect()
}
