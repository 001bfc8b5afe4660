//! What Python tells a node before it starts.

use pyo3::prelude::*;
use quantumqtt_node::{ListenerConfig, NodeConfig, NodeLimits as Limits};

use crate::rules::RuleTable;

/// Where to listen and who may come in by this door.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct ListenerSpec {
    name: String,
    host: String,
    port: u16,
    allow_anonymous: bool,
    allow_passwords: bool,
}

#[pymethods]
impl ListenerSpec {
    #[new]
    #[pyo3(signature = (*, name, host, port, allow_anonymous, allow_passwords=true))]
    fn new(
        name: String,
        host: String,
        port: u16,
        allow_anonymous: bool,
        allow_passwords: bool,
    ) -> Self {
        Self { name, host, port, allow_anonymous, allow_passwords }
    }
}

/// Every bound of the native half.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLimits(Limits);

#[pymethods]
impl NodeLimits {
    #[new]
    #[pyo3(signature = (
        *, packet_bytes_max, connect_timeout_ms, keep_alive_s_max, receive_maximum,
        session_expiry_s_max, topic_alias_max, subscriptions_max, offline_bytes_max,
        offline_count_max, out_buffer_bytes_soft, out_buffer_bytes_max, connections_max,
        event_queue_count_max, admission_timeout_ms,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python, one per bound")]
    fn new(
        packet_bytes_max: u32,
        connect_timeout_ms: u64,
        keep_alive_s_max: u16,
        receive_maximum: u16,
        session_expiry_s_max: u32,
        topic_alias_max: u16,
        subscriptions_max: u32,
        offline_bytes_max: u64,
        offline_count_max: u32,
        out_buffer_bytes_soft: usize,
        out_buffer_bytes_max: usize,
        connections_max: usize,
        event_queue_count_max: usize,
        admission_timeout_ms: u64,
    ) -> Self {
        Self(Limits {
            packet_bytes_max,
            connect_timeout_ms,
            keep_alive_s_max,
            receive_maximum,
            session_expiry_s_max,
            topic_alias_max,
            subscriptions_max,
            offline_bytes_max,
            offline_count_max,
            out_buffer_bytes_soft,
            out_buffer_bytes_max,
            connections_max,
            event_queue_count_max,
            admission_timeout_ms,
        })
    }
}

/// All that a node needs to know before it starts.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct NodeSpec(pub(crate) NodeConfig);

#[pymethods]
impl NodeSpec {
    #[new]
    #[pyo3(signature = (
        *, node_id, tenant, partitions, shards, listeners, limits, ask_admission,
        rules=None, disconnect_denied=true, client_id_is_user=false, auth_methods=Vec::new(),
        tolerates_excess=false,
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "keyword-only in Python"
    )]
    fn new(
        node_id: u32,
        tenant: String,
        partitions: u32,
        shards: u16,
        listeners: Vec<PyRef<'_, ListenerSpec>>,
        limits: &NodeLimits,
        ask_admission: bool,
        rules: Option<&RuleTable>,
        disconnect_denied: bool,
        client_id_is_user: bool,
        auth_methods: Vec<String>,
        tolerates_excess: bool,
    ) -> Self {
        let listeners = listeners
            .iter()
            .map(|listener| ListenerConfig {
                name: listener.name.clone(),
                host: listener.host.clone(),
                port: listener.port,
                allow_anonymous: listener.allow_anonymous,
                allow_passwords: listener.allow_passwords,
            })
            .collect();
        let limits = limits.0;
        let rules = rules.map(|table| table.0.clone());
        Self(NodeConfig {
            node_id,
            tenant,
            partitions,
            shards,
            listeners,
            limits,
            ask_admission,
            rules,
            disconnect_denied,
            client_id_is_user,
            auth_methods,
            tolerates_excess,
        })
    }
}
