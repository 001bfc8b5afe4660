//! Quality of service levels.

/// How hard a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QoS {
    /// Sent once, never acknowledged.
    AtMostOnce = 0,
    /// Acknowledged with PUBACK; may arrive twice.
    AtLeastOnce = 1,
    /// PUBREC, PUBREL, PUBCOMP; arrives once.
    ExactlyOnce = 2,
}

impl QoS {
    /// The level of a two-bit field, or `None` for the reserved value 3 and anything above.
    #[inline]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }

    /// The level as its two-bit field.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
