//! A cursor over one packet body.
//!
//! Every step is checked against what is really there, so a lying length ends in
//! [`DecodeError::Truncated`] with the name of the field, never in a panic.

use crate::error::DecodeError;
use crate::frame::PacketType;
use crate::packet_id::PacketId;
use crate::properties::Properties;
use crate::property::Carrier;
use crate::reason::ReasonCode;
use crate::text;
use crate::varint;
use crate::version::Version;

#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(DecodeError::Truncated { field })?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (chunk, rest) =
            self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { field })?;
        self.rest = rest;
        Ok(*chunk)
    }

    #[inline]
    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.chunk::<1>(field).map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn two_bytes(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.chunk(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn four_bytes(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.chunk(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let (value, taken) = varint::read(self.rest)?.ok_or(DecodeError::Truncated { field })?;
        self.take(taken, field)?;
        Ok(value)
    }

    #[inline]
    pub(crate) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.two_bytes("packet identifier")?).ok_or(DecodeError::ZeroPacketId)
    }

    #[inline]
    pub(crate) fn binary(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let count = self.two_bytes(field)?;
        self.take(usize::from(count), field)
    }

    #[inline]
    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        text::check_text(self.binary(field)?)
    }

    #[inline]
    pub(crate) fn topic_name(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        text::check_topic_name(self.binary(field)?)
    }

    /// A reason code that `packet_type` may carry.
    #[inline]
    pub(crate) fn reason(&mut self, packet_type: PacketType) -> Result<ReasonCode, DecodeError> {
        let reason = ReasonCode(self.byte("reason code")?);
        reason.check_legal_in(packet_type)?;
        Ok(reason)
    }

    /// The property block that ends a v5 packet and may be left out when it is empty.
    #[inline]
    pub(crate) fn optional_properties(
        &mut self,
        packet_type: PacketType,
    ) -> Result<Properties<'a>, DecodeError> {
        if self.is_empty() {
            return Ok(Properties::EMPTY);
        }
        let properties = Properties::read(Version::V5, Carrier::Packet(packet_type), self)?;
        self.finish()?;
        Ok(properties)
    }

    #[inline]
    pub(crate) const fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}
