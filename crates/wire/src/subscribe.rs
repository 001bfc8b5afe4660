//! SUBSCRIBE (§3.8): filters with their options.
//!
//! The list is checked whole when the packet is decoded and walked lazily afterwards. Checked is
//! what makes a packet malformed: lengths, UTF-8, reserved bits, No Local on a shared subscription.
//! Whether a wildcard stands in a legal place is the topic matcher's to say, which answers per
//! filter.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::qos::QoS;
use crate::reader::Reader;
use crate::text::{self, put_text};
use crate::version::Version;

const TYPE: PacketType = PacketType::Subscribe;
const SHARED_PREFIX: &str = "$share/";

/// Which retained messages a new subscription gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum RetainHandling {
    /// All that match; the only behaviour before MQTT 5.
    #[default]
    Send = 0,
    /// All that match, unless the subscription existed.
    SendIfNew = 1,
    /// None.
    DoNotSend = 2,
}

/// The options of one filter. Before MQTT 5 only `qos` exists; the rest has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscribeOptions {
    /// The highest QoS the subscriber wants.
    pub qos: QoS,
    /// Do not send me my own messages.
    pub no_local: bool,
    /// Keep the RETAIN flag as it was published.
    pub retain_as_published: bool,
    /// Which retained messages to send first.
    pub retain_handling: RetainHandling,
}

impl SubscribeOptions {
    const NO_LOCAL: u8 = 0b0100;
    const RETAIN_AS_PUBLISHED: u8 = 0b1000;

    /// The options of a 3.x subscription, and the defaults of MQTT 5.
    #[inline]
    pub const fn with_qos(qos: QoS) -> Self {
        Self {
            qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        }
    }

    /// The options behind a byte; before MQTT 5 its upper six bits must be zero.
    pub fn from_byte(version: Version, options: u8) -> Result<Self, DecodeError> {
        let reserved = if version == Version::V5 { 0b1100_0000 } else { 0b1111_1100 };
        if options & reserved != 0 {
            return Err(DecodeError::ReservedSubscribeOptions { options });
        }
        Ok(Self {
            qos: QoS::from_bits(options & 0b11).ok_or(DecodeError::QosThree)?,
            no_local: options & Self::NO_LOCAL != 0,
            retain_as_published: options & Self::RETAIN_AS_PUBLISHED != 0,
            retain_handling: match options >> 4 & 0b11 {
                0 => RetainHandling::Send,
                1 => RetainHandling::SendIfNew,
                2 => RetainHandling::DoNotSend,
                _ => return Err(DecodeError::RetainHandlingThree),
            },
        })
    }

    /// The options as MQTT 5 writes them; older versions keep the QoS bits only.
    #[inline]
    pub const fn to_byte(self) -> u8 {
        let no_local = if self.no_local { Self::NO_LOCAL } else { 0 };
        let as_published = if self.retain_as_published { Self::RETAIN_AS_PUBLISHED } else { 0 };
        self.qos.bits() | no_local | as_published | (self.retain_handling as u8) << 4
    }
}

/// A client asks for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Returns in the SUBACK.
    pub packet_id: PacketId,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
    /// At least one.
    pub filters: SubscribeFilters<'a>,
}

impl<'a> Subscribe<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        let filters = SubscribeFilters::decode(version, reader.rest())?;
        Ok(Self { packet_id, properties, filters })
    }

    /// Appends the packet; options that the version does not have are left out.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(DecodeError::NoFilters.into());
        }
        frame::put(TYPE, out, |out| {
            out.extend_from_slice(&self.packet_id.get().to_be_bytes());
            self.properties.put(version, Carrier::Packet(TYPE), out)?;
            for (filter, options) in self.filters {
                put_text("topic filter", filter, out)?;
                out.push(match version {
                    Version::V31 | Version::V311 => options.qos.bits(),
                    Version::V5 => options.to_byte(),
                });
            }
            Ok(())
        })
    }
}

/// The filters of a SUBSCRIBE, validated, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilters<'a> {
    bytes: &'a [u8],
}

impl<'a> SubscribeFilters<'a> {
    fn decode(version: Version, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        while !reader.is_empty() {
            read_filter(version, &mut reader)?;
        }
        Ok(Self { bytes })
    }

    /// Whether there is no filter; a decoded list never is.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The filters, one after the other.
    #[allow(clippy::iter_without_into_iter, reason = "the list is Copy and iterates by value")]
    pub fn iter(&self) -> SubscribeFilterIter<'a> {
        SubscribeFilterIter { reader: Reader::new(self.bytes) }
    }
}

impl<'a> IntoIterator for SubscribeFilters<'a> {
    type Item = (&'a str, SubscribeOptions);
    type IntoIter = SubscribeFilterIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Walks [`SubscribeFilters`].
#[derive(Clone)]
pub struct SubscribeFilterIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for SubscribeFilterIter<'a> {
    type Item = (&'a str, SubscribeOptions);

    fn next(&mut self) -> Option<Self::Item> {
        // Legal bytes of older versions are legal bytes of MQTT 5 with the same meaning, and the
        // list was validated: this ends when the list does.
        read_filter(Version::V5, &mut self.reader).ok()
    }
}

impl fmt::Debug for SubscribeFilters<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(*self).finish()
    }
}

fn read_filter<'a>(
    version: Version,
    reader: &mut Reader<'a>,
) -> Result<(&'a str, SubscribeOptions), DecodeError> {
    let filter = reader.text("topic filter")?;
    let options = SubscribeOptions::from_byte(version, reader.byte("subscription options")?)?;
    check_filter(filter, options)?;
    Ok((filter, options))
}

fn check_filter(filter: &str, options: SubscribeOptions) -> Result<(), DecodeError> {
    if filter.is_empty() {
        return Err(DecodeError::EmptyFilter);
    }
    if options.no_local && filter.starts_with(SHARED_PREFIX) {
        return Err(DecodeError::NoLocalOnShared);
    }
    Ok(())
}

/// An owned filter list to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribeBlock {
    bytes: Vec<u8>,
}

impl SubscribeBlock {
    /// An empty list; allocates nothing yet.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Appends a filter; on error nothing is appended.
    pub fn push(&mut self, filter: &str, options: SubscribeOptions) -> Result<(), EncodeError> {
        check_filter(filter, options)?;
        text::put_text("topic filter", filter, &mut self.bytes)?;
        self.bytes.push(options.to_byte());
        Ok(())
    }

    /// Forgets all filters and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The list as a packet takes it.
    pub fn as_filters(&self) -> SubscribeFilters<'_> {
        SubscribeFilters { bytes: &self.bytes }
    }
}
