//! CONNECT (§3.1): who comes, in which version, and what to say when they vanish.
//!
//! This packet chooses the version, so it is the only one that carries its own. Name and level are
//! read first; when they are no pair we know, nothing behind them is looked at, since nothing is
//! known about its layout. 3.1.1's bridge convention (level with the high bit set) is no version of
//! ours.
//!
//! 3.1 differs in three ways that are kept: the lowest flag is merely unused, will QoS and retain
//! are disregarded without a will, and user name and password may be missing at the end although
//! their flags are set. Its rule that a client id has 1 to 23 characters is left to the caller.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::{self, PacketType};
use crate::properties::Properties;
use crate::property::Carrier;
use crate::qos::QoS;
use crate::reader::Reader;
use crate::text::{self, put_binary, put_text};
use crate::version::Version;

const TYPE: PacketType = PacketType::Connect;

/// A client's first packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version of everything that follows on this connection.
    pub version: Version,
    /// Clean Session before MQTT 5.
    pub clean_start: bool,
    /// Seconds between packets at most; 0 means no limit.
    pub keep_alive_s: u16,
    /// May be empty; whether that is welcome depends on version and `clean_start`.
    pub client_id: &'a str,
    /// What to publish when the client vanishes.
    pub will: Option<Will<'a>>,
    /// Who the client says it is.
    pub user_name: Option<&'a str>,
    /// And how it proves it; before MQTT 5 only beside a user name.
    pub password: Option<&'a [u8]>,
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
}

/// The message a vanished client leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Will<'a> {
    /// How hard to deliver.
    pub qos: QoS,
    /// To be kept.
    pub retain: bool,
    /// Never empty, never with wildcards.
    pub topic: &'a str,
    /// The application's bytes.
    pub payload: &'a [u8],
    /// Empty before MQTT 5.
    pub properties: Properties<'a>,
}

/// The flags byte, by its bits.
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    const RESERVED: u8 = 1;
    const CLEAN_START: u8 = 1 << 1;
    const WILL: u8 = 1 << 2;
    const WILL_QOS_SHIFT: u32 = 3;
    const WILL_RETAIN: u8 = 1 << 5;
    const PASSWORD: u8 = 1 << 6;
    const USER_NAME: u8 = 1 << 7;
    /// QoS and retain of the will.
    const WILL_OPTIONS: u8 = 0b11 << Self::WILL_QOS_SHIFT | Self::WILL_RETAIN;

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    fn will_qos(self) -> Result<QoS, DecodeError> {
        QoS::from_bits(self.0 >> Self::WILL_QOS_SHIFT & 0b11).ok_or(DecodeError::QosThree)
    }

    fn check(self, version: Version) -> Result<(), DecodeError> {
        if version != Version::V31 {
            if self.has(Self::RESERVED) {
                return Err(DecodeError::ReservedConnectFlag);
            }
            if !self.has(Self::WILL) && self.has(Self::WILL_OPTIONS) {
                return Err(DecodeError::WillOptionsWithoutWill);
            }
        }
        if version != Version::V5 && self.has(Self::PASSWORD) && !self.has(Self::USER_NAME) {
            return Err(DecodeError::PasswordWithoutUserName);
        }
        Ok(())
    }
}

impl<'a> Connect<'a> {
    /// Reads a body.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let version = read_version(&mut reader)?;
        let flags = Flags(reader.byte("connect flags")?);
        flags.check(version)?;
        let keep_alive_s = reader.two_bytes("keep alive")?;
        let properties = Properties::read(version, Carrier::Packet(TYPE), &mut reader)?;
        let client_id = reader.text("client identifier")?;
        let will = if flags.has(Flags::WILL) {
            Some(Will::decode(version, flags, &mut reader)?)
        } else {
            None
        };
        let expects = |bit: u8, reader: &Reader<'_>| {
            flags.has(bit) && !(version == Version::V31 && reader.is_empty())
        };
        let user_name =
            if expects(Flags::USER_NAME, &reader) { Some(reader.text("user name")?) } else { None };
        let password =
            if expects(Flags::PASSWORD, &reader) { Some(reader.binary("password")?) } else { None };
        reader.finish()?;
        Ok(Self {
            version,
            clean_start: flags.has(Flags::CLEAN_START),
            keep_alive_s,
            client_id,
            will,
            user_name,
            password,
            properties,
        })
    }

    /// Appends the packet. `version` must be the packet's own.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if version != self.version {
            return Err(EncodeError::VersionMismatch { own: self.version, asked: version });
        }
        let flags = self.flags();
        flags.check(version)?;
        frame::put(TYPE, out, |out| {
            put_text("protocol name", version.protocol_name(), out)?;
            out.extend_from_slice(&[version.level(), flags.0]);
            out.extend_from_slice(&self.keep_alive_s.to_be_bytes());
            self.properties.put(version, Carrier::Packet(TYPE), out)?;
            put_text("client identifier", self.client_id, out)?;
            if let Some(will) = &self.will {
                will.put(version, out)?;
            }
            if let Some(user_name) = self.user_name {
                put_text("user name", user_name, out)?;
            }
            if let Some(password) = self.password {
                put_binary("password", password, out)?;
            }
            Ok(())
        })
    }

    fn flags(&self) -> Flags {
        let mut bits = 0;
        let mut set = |condition: bool, bit: u8| bits |= if condition { bit } else { 0 };
        set(self.clean_start, Flags::CLEAN_START);
        set(self.user_name.is_some(), Flags::USER_NAME);
        set(self.password.is_some(), Flags::PASSWORD);
        if let Some(will) = &self.will {
            set(true, Flags::WILL | will.qos.bits() << Flags::WILL_QOS_SHIFT);
            set(will.retain, Flags::WILL_RETAIN);
        }
        Flags(bits)
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<Version, DecodeError> {
    let name = reader.binary("protocol name")?;
    let level = reader.byte("protocol level")?;
    Version::from_name_and_level(name, level).ok_or(DecodeError::UnsupportedVersion { level })
}

impl<'a> Will<'a> {
    fn decode(
        version: Version,
        flags: Flags,
        reader: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        let qos = flags.will_qos()?;
        let properties = Properties::read(version, Carrier::Will, reader)?;
        let topic = reader.topic_name("will topic")?;
        if topic.is_empty() {
            return Err(DecodeError::EmptyTopic);
        }
        let payload = reader.binary("will payload")?;
        Ok(Self { qos, retain: flags.has(Flags::WILL_RETAIN), topic, payload, properties })
    }

    fn put(&self, version: Version, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.topic.is_empty() {
            return Err(DecodeError::EmptyTopic.into());
        }
        text::refuse_nul_and_wildcards(self.topic)?;
        self.properties.put(version, Carrier::Will, out)?;
        put_text("will topic", self.topic, out)?;
        put_binary("will payload", self.payload, out)
    }
}

impl fmt::Debug for Connect<'_> {
    /// Shows that there is a password, not which.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Connect")
            .field("version", &self.version)
            .field("clean_start", &self.clean_start)
            .field("keep_alive_s", &self.keep_alive_s)
            .field("client_id", &self.client_id)
            .field("will", &self.will)
            .field("user_name", &self.user_name)
            .field("has_password", &self.password.is_some())
            .field("properties", &self.properties)
            .finish()
    }
}

impl fmt::Debug for Will<'_> {
    /// Shows the payload's size only: payloads do not belong in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Will")
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("properties", &self.properties)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &[u8], level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        let properties: &[u8] = if level == 5 { &[0] } else { &[] };
        [&[0, length], name, &[level, flags, 0, 60], properties, rest].concat()
    }

    // req: WIRE-03
    #[test]
    fn name_and_level_together_choose_the_version() {
        for name in [&b"MQTT"[..], b"MQIsdp", b"mqtt", b"MQT", b"MQTTX", b"\xFF\xFF", b""] {
            for level in 0..=u8::MAX {
                let chosen = match (name, level) {
                    (b"MQIsdp", 3) => Ok(Version::V31),
                    (b"MQTT", 4) => Ok(Version::V311),
                    (b"MQTT", 5) => Ok(Version::V5),
                    _ => Err(DecodeError::UnsupportedVersion { level }),
                };
                let bytes = body(name, level, 0b10, b"\0\x01c");
                let decoded = Connect::decode(&bytes).map(|connect| connect.version);
                assert_eq!(decoded, chosen, "{name:?} {level:#04x}");
            }
        }
    }

    // req: WIRE-03
    #[test]
    fn nothing_behind_an_unknown_level_is_looked_at() {
        let decoded = Connect::decode(b"\0\x04MQTT\x06");
        assert_eq!(decoded, Err(DecodeError::UnsupportedVersion { level: 6 }));
    }

    // req: WIRE-04
    #[test]
    fn only_3_1_disregards_flags_without_meaning() {
        for flags in [0b0000_0011, 0b0000_1010, 0b0010_0010] {
            assert!(Connect::decode(&body(b"MQIsdp", 3, flags, b"\0\x01c")).is_ok());
            assert!(Connect::decode(&body(b"MQTT", 4, flags, b"\0\x01c")).is_err());
            assert!(Connect::decode(&body(b"MQTT", 5, flags, b"\0\x01c")).is_err());
        }
    }

    // req: WIRE-04
    #[test]
    fn only_3_1_may_leave_out_what_its_flags_announce() {
        let both = 0b1100_0010;
        let old = body(b"MQIsdp", 3, both, b"\0\x01c\0\x03ann");
        let old = Connect::decode(&old).unwrap();
        assert_eq!((old.user_name, old.password), (Some("ann"), None));
        assert!(Connect::decode(&body(b"MQTT", 4, both, b"\0\x01c\0\x03ann")).is_err());
    }

    #[test]
    fn only_mqtt_5_takes_a_password_alone() {
        let alone = 0b0100_0010;
        for (name, level, taken) in
            [(&b"MQIsdp"[..], 3, false), (b"MQTT", 4, false), (b"MQTT", 5, true)]
        {
            let bytes = body(name, level, alone, b"\0\x01c\0\x02pw");
            assert_eq!(Connect::decode(&bytes).is_ok(), taken);
        }
    }

    #[test]
    fn debug_output_hides_the_password() {
        let bytes = body(b"MQTT", 5, 0b0100_0010, b"\0\x01c\0\x07hunter2");
        let shown = format!("{:?}", Connect::decode(&bytes).unwrap());
        assert!(shown.contains("has_password: true"));
        assert!(!shown.contains("hunter2") && !shown.contains("104"), "{shown}");
    }

    #[test]
    fn a_connect_is_written_in_its_own_version_only() {
        let bytes = body(b"MQTT", 4, 0b10, b"\0\x01c");
        let connect = Connect::decode(&bytes).unwrap();
        let mut out = Vec::new();
        let refused = connect.encode(Version::V5, &mut out);
        let expected = EncodeError::VersionMismatch { own: Version::V311, asked: Version::V5 };
        assert_eq!((refused, out.len()), (Err(expected), 0));
    }
}
