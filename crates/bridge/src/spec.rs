//! What Python tells a node before it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use quantumqtt_node::{
    Endpoint, ListenerConfig, LogConfig, NodeConfig, NodeLimits as Limits, ProxyMode, UpgradeRules,
    WrappingSpec,
};
use quantumqtt_records::limits::CHUNK_BYTES_DEFAULT;

use crate::errors::{bad_network, no_such};
use crate::rules::RuleTable;
use crate::tls::TlsContext;

/// Where to listen, what lies in between, and who may come in by this door.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct ListenerSpec(ListenerConfig);

#[pymethods]
impl ListenerSpec {
    #[new]
    #[pyo3(signature = (
        *, name, host, port, allow_anonymous, allow_passwords=true, socket_mode=None, tls=None,
        websocket_path=None, origins=None, proxy_protocol=None, proxies=None,
        connections_max=None, packet_bytes_max=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn new(
        name: String,
        host: String,
        port: u16,
        allow_anonymous: bool,
        allow_passwords: bool,
        socket_mode: Option<u32>,
        tls: Option<&TlsContext>,
        websocket_path: Option<String>,
        origins: Option<Vec<String>>,
        proxy_protocol: Option<&str>,
        proxies: Option<Vec<String>>,
        connections_max: Option<usize>,
        packet_bytes_max: Option<u32>,
    ) -> PyResult<Self> {
        let endpoint = match socket_mode {
            Some(mode) => Endpoint::Unix { path: PathBuf::from(host), mode },
            None => Endpoint::Tcp { host, port },
        };
        let proxy = match proxy_protocol {
            None => None,
            Some("v1") => Some(ProxyMode::V1),
            Some("v2") => Some(ProxyMode::V2),
            Some("any") => Some(ProxyMode::Any),
            Some(other) => return Err(no_such("version of the PROXY protocol", other)),
        };
        let websocket = websocket_path.map(|path| {
            let origins = origins.unwrap_or_default().into_iter().map(Into::into).collect();
            Arc::new(UpgradeRules { path: path.into(), origins })
        });
        let proxies: Result<Vec<_>, _> = proxies
            .unwrap_or_default()
            .into_iter()
            .map(|text| text.parse().map_err(|error| bad_network(&text, error)))
            .collect();
        Ok(Self(ListenerConfig {
            name,
            endpoint,
            wrapping: WrappingSpec { proxy, tls: tls.map(TlsContext::shared), websocket },
            proxies: proxies?,
            connections_max: connections_max.unwrap_or(usize::MAX),
            packet_bytes_max: packet_bytes_max.unwrap_or(u32::MAX),
            allow_anonymous,
            allow_passwords,
        }))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn allow_anonymous(&self) -> bool {
        self.0.allow_anonymous
    }

    #[getter]
    fn allow_passwords(&self) -> bool {
        self.0.allow_passwords
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
        session_expiry_s_max, topic_alias_max, will_grace_s, subscriptions_max,
        offline_bytes_max, offline_count_max, out_buffer_bytes_soft, out_buffer_bytes_max,
        connections_max,
        event_queue_count_max, admission_timeout_ms, log_pending_bytes_max,
        connections_per_address_max=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python, one per bound")]
    fn new(
        packet_bytes_max: u32,
        connect_timeout_ms: u64,
        keep_alive_s_max: u16,
        receive_maximum: u16,
        session_expiry_s_max: u32,
        topic_alias_max: u16,
        will_grace_s: u32,
        subscriptions_max: u32,
        offline_bytes_max: u64,
        offline_count_max: u32,
        out_buffer_bytes_soft: usize,
        out_buffer_bytes_max: usize,
        connections_max: usize,
        event_queue_count_max: usize,
        admission_timeout_ms: u64,
        log_pending_bytes_max: u64,
        connections_per_address_max: Option<usize>,
    ) -> Self {
        Self(Limits {
            packet_bytes_max,
            connect_timeout_ms,
            keep_alive_s_max,
            receive_maximum,
            session_expiry_s_max,
            topic_alias_max,
            will_grace_s,
            subscriptions_max,
            offline_bytes_max,
            offline_count_max,
            out_buffer_bytes_soft,
            out_buffer_bytes_max,
            connections_max,
            connections_per_address_max,
            event_queue_count_max,
            admission_timeout_ms,
            log_pending_bytes_max,
        })
    }
}

/// Where and how a node keeps its log.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct LogSpec(LogConfig);

#[pymethods]
impl LogSpec {
    #[new]
    #[pyo3(signature = (
        *, directory, key_file, group_delay_ms, segment_bytes, checkpoint_interval_s,
        checkpoint_log_bytes, retention_age_s=None, retention_bytes=None,
        chunk_bytes=CHUNK_BYTES_DEFAULT, scrub_bytes_per_s=0, scrub_interval_s=21_600,
        disk_bytes_max=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn new(
        directory: PathBuf,
        key_file: PathBuf,
        group_delay_ms: Option<u64>,
        segment_bytes: u64,
        checkpoint_interval_s: u64,
        checkpoint_log_bytes: u64,
        retention_age_s: Option<u64>,
        retention_bytes: Option<u64>,
        chunk_bytes: u64,
        scrub_bytes_per_s: u64,
        scrub_interval_s: u64,
        disk_bytes_max: Option<u64>,
    ) -> Self {
        Self(LogConfig {
            directory,
            key_file,
            group_delay: group_delay_ms.map(Duration::from_millis),
            segment_bytes,
            checkpoint_interval: Duration::from_secs(checkpoint_interval_s),
            checkpoint_log_bytes,
            retention_age: retention_age_s.map(Duration::from_secs),
            retention_bytes,
            chunk_bytes,
            scrub_bytes_per_s,
            scrub_interval: Duration::from_secs(scrub_interval_s),
            disk_bytes_max,
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
        tolerates_excess=false, log=None,
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
        log: Option<&LogSpec>,
    ) -> Self {
        let listeners = listeners.iter().map(|listener| listener.0.clone()).collect();
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
            log: log.map(|log| log.0.clone()),
        })
    }
}
