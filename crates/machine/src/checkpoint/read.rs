//! The bodies of items, read back: the counterpart of `stream.rs`, with every doubt spoken out.
//!
//! A body is borrowed from the chunk. Nothing is reserved because a length says so: lists grow by
//! items that are really there.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use quantumqtt_wire::QoS;

use super::restore::RestoreFault;
use super::stream::{
    DELIVERY_RETAIN, DELIVERY_SHARE_DECLINED, DELIVERY_SHARE_RETAIN, DELIVERY_SHARED,
    MESSAGE_EXPIRES, MESSAGE_QOS, SESSION_ATTACHED, SESSION_DETACHED, SESSION_EXPIRES,
    SESSION_FLAGS, SESSION_WILL, SESSION_WILL_DEFERRED, SESSION_WILL_DUE, STAGE_RELEASED,
    STAGE_SENT, STAGE_UNSENT, kind,
};
use crate::backlog::{Backlog, Delivery, Share};
use crate::codec::{read_limits, read_will};
use crate::command::{Origin, SubscriptionOptions};
use crate::effect::{Subscription, SubscriptionIds};
use crate::fields::{FieldError, FieldReader};
use crate::limits::Limits;
use crate::message::Message;
use crate::replay::Replay;
use crate::session::{Attachment, Received, Session};
use crate::subscription_set::SubscriptionSet;
use crate::will::StoredWill;
use crate::window::{Exchange, Stage, Window};

/// Counters beyond this were never reached by counting; going on from there could overflow.
const COUNTER_MAX: u64 = u64::MAX / 2;

type Read<T> = Result<T, RestoreFault>;

/// The messages read so far, by offset.
pub(super) type Messages = BTreeMap<u64, Arc<Message>>;

/// The first item.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) limits: Limits,
    pub(super) partition: u32,
    pub(super) now_ms: u64,
    pub(super) next_offset: u64,
    pub(super) next_publish_seq: u64,
    pub(super) last_epoch: u64,
    pub(super) last_incarnation: u64,
}

pub(super) fn read_header(reader: &mut FieldReader<'_>) -> Read<Header> {
    let header = Header {
        limits: read_limits(reader)?,
        partition: reader.number_u32()?,
        now_ms: reader.number()?,
        next_offset: reader.number()?,
        next_publish_seq: reader.number()?,
        last_epoch: reader.number()?,
        last_incarnation: reader.number()?,
    };
    for counter in
        [header.next_offset, header.next_publish_seq, header.last_epoch, header.last_incarnation]
    {
        if counter > COUNTER_MAX {
            return Err(FieldError::Range.into());
        }
    }
    Ok(header)
}

pub(super) fn read_message(reader: &mut FieldReader<'_>) -> Read<Message> {
    let offset = reader.number()?;
    let accepted_ms = reader.number()?;
    let flags = read_flags(reader, MESSAGE_QOS | MESSAGE_EXPIRES)?;
    Ok(Message {
        offset,
        accepted_ms,
        expiry_s: reader.number_u32_if(flags & MESSAGE_EXPIRES != 0)?,
        qos: qos_of(flags & MESSAGE_QOS)?,
        topic: reader.text()?.into(),
        properties: Bytes::copy_from_slice(reader.bytes()?),
        payload: Bytes::copy_from_slice(reader.bytes()?),
    })
}

pub(super) fn read_subscription(reader: &mut FieldReader<'_>) -> Read<Subscription> {
    Ok(Subscription {
        filter: reader.text()?.into(),
        options: SubscriptionOptions::from_byte(reader.byte()?).ok_or(FieldError::Range)?,
        subscription_id: Some(reader.number_u32()?).filter(|&id| id != 0),
    })
}

fn read_flags(reader: &mut FieldReader<'_>, known: u8) -> Read<u8> {
    let flags = reader.byte()?;
    if flags & !known == 0 { Ok(flags) } else { Err(FieldError::Range.into()) }
}

fn qos_of(bits: u8) -> Read<QoS> {
    QoS::from_bits(bits).ok_or(FieldError::Range.into())
}

const DELIVERY_SHARE: u8 = DELIVERY_SHARED | DELIVERY_SHARE_RETAIN | DELIVERY_SHARE_DECLINED;
const DELIVERY_FLAGS: u8 = MESSAGE_QOS | DELIVERY_RETAIN | DELIVERY_SHARE;

/// `QoS` 0 neither waits nor is in flight.
fn read_delivery(reader: &mut FieldReader<'_>, messages: &Messages) -> Read<Delivery> {
    let offset = reader.number()?;
    let message = messages.get(&offset).ok_or(RestoreFault::UnknownMessage(offset))?.clone();
    let flags = read_flags(reader, DELIVERY_FLAGS)?;
    let qos = qos_of(flags & MESSAGE_QOS)?;
    if qos == QoS::AtMostOnce {
        return Err(FieldError::Range.into());
    }
    let share = match flags & DELIVERY_SHARE {
        0 => None,
        shared if shared & DELIVERY_SHARED == 0 => return Err(FieldError::Range.into()),
        shared => Some(Share {
            filter: reader.text()?.into(),
            retain: shared & DELIVERY_SHARE_RETAIN != 0,
            declined: match shared & DELIVERY_SHARE_DECLINED {
                0 => 0,
                _ => Some(reader.number_u32()?)
                    .filter(|&count| count > 0)
                    .ok_or(FieldError::Range)?,
            },
        }),
    };
    let mut subscription_ids = SubscriptionIds::new();
    while !reader.is_empty() {
        subscription_ids.push(reader.number_u32()?);
    }
    Ok(Delivery { message, qos, retain: flags & DELIVERY_RETAIN != 0, subscription_ids, share })
}

/// A session whose parts are still to come.
#[derive(Debug)]
pub(super) struct OpenSession {
    session: Session,
    next_id: u16,
    window_maximum: u16,
    exchanges: Vec<Exchange>,
    /// How many of each part are missing, in the order in which parts come.
    missing: [(u8, u64); 5],
}

impl OpenSession {
    pub(super) fn read(reader: &mut FieldReader<'_>, header: &Header) -> Read<Self> {
        let client_id: Arc<str> = reader.text()?.into();
        let identity: Box<str> = reader.text()?.into();
        let incarnation = reader.number()?;
        let epoch = reader.number()?;
        let is_given_out = incarnation <= header.last_incarnation && epoch <= header.last_epoch;
        if incarnation == 0 || !is_given_out {
            return Err(FieldError::Range.into());
        }
        let expiry_s = reader.number_u32()?;
        let flags = read_flags(reader, SESSION_FLAGS)?;
        let has = |flag: u8| flags & flag != 0;
        let attachment = has(SESSION_ATTACHED).then(|| read_attachment(reader)).transpose()?;
        let will = has(SESSION_WILL).then(|| read_will(reader)).transpose()?;
        let mut at_ms = |flag: u8| has(flag).then(|| reader.number()).transpose();
        let session = Session {
            client_id,
            incarnation,
            epoch,
            identity,
            attachment,
            expiry_s,
            expires_at_ms: at_ms(SESSION_EXPIRES)?,
            detached_at_ms: at_ms(SESSION_DETACHED)?,
            will: will.as_ref().map(StoredWill::keep),
            will_due_ms: at_ms(SESSION_WILL_DUE)?,
            will_is_deferred: has(SESSION_WILL_DEFERRED),
            subscriptions: SubscriptionSet::default(),
            window: Window::new(),
            backlog: Backlog::default(),
            received: BTreeMap::new(),
            replays: Vec::new(),
        };
        let next_id = reader.number_u16()?;
        let window_maximum = reader.number_u16()?;
        let mut missing = PART_KINDS.map(|part| (part, 0));
        for (_, count) in &mut missing {
            *count = reader.number()?;
        }
        Ok(Self { session, next_id, window_maximum, exchanges: Vec::new(), missing })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.iter().all(|(_, count)| *count == 0)
    }

    /// Reads one part of the session.
    pub(super) fn read_part(
        &mut self,
        part: u8,
        reader: &mut FieldReader<'_>,
        messages: &Messages,
    ) -> Read<()> {
        let next = self.missing.iter_mut().find(|(_, count)| *count > 0);
        let (_, count) =
            next.filter(|(due, _)| *due == part).ok_or(RestoreFault::OutOfPlace(part))?;
        *count -= 1;
        let session = &mut self.session;
        let is_in_order = match part {
            kind::SUBSCRIPTION => {
                let subscription = read_subscription(reader)?;
                let last = session.subscriptions.last().map(|last| last.filter.clone());
                let is_in_order = last.is_none_or(|last| last < subscription.filter);
                session.subscriptions.insert(subscription);
                is_in_order
            }
            kind::EXCHANGE => {
                self.exchanges.push(read_exchange(reader, messages)?);
                true
            }
            kind::WAITING => {
                session.backlog.push(read_delivery(reader, messages)?);
                true
            }
            kind::RECEIVED => {
                let packet_id = reader.number_u16()?;
                let received =
                    Received { publish_seq: reader.number()?, content_hash: reader.number()? };
                let last = session.received.last_key_value().map(|(&last, _)| last);
                session.received.insert(packet_id, received);
                last.is_none_or(|last| last < packet_id)
            }
            _ => {
                session.replays.push(read_replay(reader)?);
                true
            }
        };
        if is_in_order { Ok(()) } else { Err(RestoreFault::OutOfOrder(part)) }
    }

    /// All parts have been read.
    pub(super) fn finish(self) -> Read<Session> {
        let unsound = RestoreFault::Unsound("an id names one exchange, and counts are true");
        let window = Window::restore(self.next_id, self.window_maximum, self.exchanges);
        let session = Session { window: window.ok_or(unsound)?, ..self.session };
        session.check().map_err(RestoreFault::Unsound)?;
        Ok(session)
    }
}

/// The parts of a session in the order in which they come.
const PART_KINDS: [u8; 5] =
    [kind::SUBSCRIPTION, kind::EXCHANGE, kind::WAITING, kind::RECEIVED, kind::REPLAY];

fn read_attachment(reader: &mut FieldReader<'_>) -> Read<Attachment> {
    Ok(Attachment {
        origin: Origin {
            node: reader.number_u32()?,
            shard: reader.number_u16()?,
            connection: reader.number()?,
        },
        level: reader.byte()?,
        maximum_packet_bytes: reader.number_u32()?,
    })
}

fn read_exchange(reader: &mut FieldReader<'_>, messages: &Messages) -> Read<Exchange> {
    let packet_id = reader.number_u16()?;
    let stage = match reader.byte()? {
        STAGE_UNSENT => Stage::Unsent(read_delivery(reader, messages)?),
        STAGE_SENT => Stage::Sent(read_delivery(reader, messages)?),
        STAGE_RELEASED => Stage::Released,
        _ => return Err(FieldError::Range.into()),
    };
    Ok(Exchange { packet_id, stage })
}

fn read_replay(reader: &mut FieldReader<'_>) -> Read<Replay> {
    Ok(Replay {
        filter: reader.text()?.into(),
        before_offset: reader.number()?,
        last_topic: match read_flags(reader, 1)? {
            0 => None,
            _ => Some(reader.text()?.into()),
        },
    })
}
