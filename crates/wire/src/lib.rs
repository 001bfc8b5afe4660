//! MQTT on the wire: bytes to packets and back, for 3.1, 3.1.1 and 5.0.

#![forbid(unsafe_code)]
