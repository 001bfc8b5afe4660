//! Packet identifiers.

use std::fmt;
use std::num::NonZeroU16;

/// The identifier that ties an acknowledgement to its packet; never zero [MQTT-2.2.1-3].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The smallest identifier.
    pub const MIN: Self = Self(NonZeroU16::MIN);
    /// The largest identifier.
    pub const MAX: Self = Self(NonZeroU16::MAX);

    /// An identifier from its number, or `None` for zero.
    #[inline]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl From<NonZeroU16> for PacketId {
    #[inline]
    fn from(number: NonZeroU16) -> Self {
        Self(number)
    }
}

impl fmt::Debug for PacketId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PacketId({})", self.get())
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(formatter)
    }
}
