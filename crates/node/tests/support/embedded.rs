//! A node on loopback with the bounds a program would embed it with.

use quantumqtt_node::{ListenerConfig, NodeConfig, NodeLimits};

/// One listener on a free port of loopback that lets everybody in.
pub(crate) fn config(shards: u16) -> NodeConfig {
    NodeConfig {
        node_id: 1,
        tenant: "default".to_owned(),
        partitions: 1,
        shards,
        listeners: vec![ListenerConfig::open_tcp("127.0.0.1")],
        limits: NodeLimits {
            packet_bytes_max: 1 << 20,
            connect_timeout_ms: 10_000,
            keep_alive_s_max: 65_535,
            receive_maximum: 1024,
            session_expiry_s_max: 3600,
            topic_alias_max: 16,
            will_grace_s: 60,
            subscriptions_max: 100_000,
            offline_bytes_max: 1 << 30,
            offline_count_max: 1_000_000,
            out_buffer_bytes_soft: 1 << 20,
            out_buffer_bytes_max: 16 << 20,
            connections_max: 100_000,
            connections_per_address_max: None,
            event_queue_count_max: 8192,
            admission_timeout_ms: 5_000,
            log_pending_bytes_max: 64 << 20,
        },
        ask_admission: false,
        rules: None,
        disconnect_denied: true,
        client_id_is_user: false,
        auth_methods: Vec::new(),
        tolerates_excess: false,
        log: None,
    }
}
