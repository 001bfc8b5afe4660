//! A load generator for MQTT brokers.
