//! UNSUBSCRIBE (§3.10): filters without options.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reader::Reader;
use crate::text::put_text;
use crate::version::Version;

const TYPE: PacketType = PacketType::Unsubscribe;

/// A client wants no more of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Returns in the UNSUBACK.
    pub packet_id: PacketId,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
    /// At least one.
    pub filters: UnsubscribeFilters<'a>,
}

impl<'a> Unsubscribe<'a> {
    /// Reads a body.
    pub fn decode(version: Version, body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let packet_id = reader.packet_id()?;
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        let filters = UnsubscribeFilters::decode(reader.rest())?;
        Ok(Self { packet_id, properties, filters })
    }

    /// Appends the packet.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.filters.is_empty() {
            return Err(DecodeError::NoFilters.into());
        }
        frame::put(TYPE, out, |out| {
            out.extend_from_slice(&self.packet_id.get().to_be_bytes());
            self.properties.put(version, Carrier::Packet(TYPE), out)?;
            out.extend_from_slice(self.filters.bytes);
            Ok(())
        })
    }
}

/// The filters of an UNSUBSCRIBE, validated, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnsubscribeFilters<'a> {
    bytes: &'a [u8],
}

impl<'a> UnsubscribeFilters<'a> {
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.is_empty() {
            return Err(DecodeError::NoFilters);
        }
        while !reader.is_empty() {
            read_filter(&mut reader)?;
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
    pub fn iter(&self) -> UnsubscribeFilterIter<'a> {
        UnsubscribeFilterIter { reader: Reader::new(self.bytes) }
    }
}

impl<'a> IntoIterator for UnsubscribeFilters<'a> {
    type Item = &'a str;
    type IntoIter = UnsubscribeFilterIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Walks [`UnsubscribeFilters`].
#[derive(Clone)]
pub struct UnsubscribeFilterIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for UnsubscribeFilterIter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        // The list was validated: this ends when the list does.
        read_filter(&mut self.reader).ok()
    }
}

impl fmt::Debug for UnsubscribeFilters<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(*self).finish()
    }
}

fn read_filter<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let filter = reader.text("topic filter")?;
    if filter.is_empty() { Err(DecodeError::EmptyFilter) } else { Ok(filter) }
}

/// An owned filter list to send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsubscribeBlock {
    bytes: Vec<u8>,
}

impl UnsubscribeBlock {
    /// An empty list; allocates nothing yet.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Appends a filter; on error nothing is appended.
    pub fn push(&mut self, filter: &str) -> Result<(), EncodeError> {
        if filter.is_empty() {
            return Err(DecodeError::EmptyFilter.into());
        }
        put_text("topic filter", filter, &mut self.bytes)
    }

    /// Forgets all filters and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The list as a packet takes it.
    pub fn as_filters(&self) -> UnsubscribeFilters<'_> {
        UnsubscribeFilters { bytes: &self.bytes }
    }
}
