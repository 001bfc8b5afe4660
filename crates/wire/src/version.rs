//! The three protocol versions.

/// A protocol version, as CONNECT chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// MQTT 3.1: protocol name `MQIsdp`, level 3.
    V31,
    /// MQTT 3.1.1: protocol name `MQTT`, level 4.
    V311,
    /// MQTT 5.0: protocol name `MQTT`, level 5.
    V5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 3] = [Self::V31, Self::V311, Self::V5];

    /// The protocol level byte of CONNECT.
    #[inline]
    pub const fn level(self) -> u8 {
        match self {
            Self::V31 => 3,
            Self::V311 => 4,
            Self::V5 => 5,
        }
    }

    /// The protocol name of CONNECT.
    #[inline]
    pub const fn protocol_name(self) -> &'static str {
        match self {
            Self::V31 => "MQIsdp",
            Self::V311 | Self::V5 => "MQTT",
        }
    }

    /// The version a CONNECT asks for, or `None` when name and level are no pair we know.
    pub fn from_name_and_level(name: &[u8], level: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.protocol_name().as_bytes() == name && version.level() == level)
    }
}
