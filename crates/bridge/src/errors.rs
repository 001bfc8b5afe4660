//! Native errors as the exceptions that were born in `quantumqtt.errors`.
//!
//! Every variant is mapped by name; a new one does not compile until it has its place here.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;
use quantumqtt_journal::JournalError;
use quantumqtt_load::LoadError;
use quantumqtt_machine::{ApplyError, EntryError, RestoreError};
use quantumqtt_node::{BadNetwork, LogError, StartError, TlsRefused};
use quantumqtt_records::Error as RecordsError;
use quantumqtt_topics::{FilterError, TableError, TopicError};
use quantumqtt_wire::{DecodeError, EncodeError};

pyo3::import_exception!(quantumqtt.errors, ConfigError);
pyo3::import_exception!(quantumqtt.errors, CorruptLog);
pyo3::import_exception!(quantumqtt.errors, InternalError);
pyo3::import_exception!(quantumqtt.errors, LocalProtocolError);
pyo3::import_exception!(quantumqtt.errors, CorruptStore);
pyo3::import_exception!(quantumqtt.errors, RemoteProtocolError);
pyo3::import_exception!(quantumqtt.errors, StorageError);
pyo3::import_exception!(quantumqtt.errors, TransportError);

/// The message of an error and of everything that caused it.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

pub(crate) fn from_start(error: &StartError) -> PyErr {
    use quantumqtt_reactor::Error;
    let said = words(error);
    match error {
        StartError::Config(_) => ConfigError::new_err((said,)),
        StartError::Log(error) => from_log(error, said),
        StartError::Caretaker(_) => {
            TransportError::new_err((said, "raise the limit of threads (ulimit -u)"))
        }
        StartError::Bell(_) => {
            let hint = "raise the limit of open files (ulimit -n)";
            TransportError::new_err((said, hint))
        }
        StartError::Reactor(Error::Resolve { .. }) => {
            let hint = "listen on an address of this machine, for example 127.0.0.1 or 0.0.0.0";
            TransportError::new_err((said, hint))
        }
        StartError::Reactor(Error::Bind { source, .. }) => {
            TransportError::new_err((said, bind_hint(source)))
        }
        StartError::Reactor(Error::SocketFile { .. }) => {
            let hint = "choose another path, or stop who listens there";
            TransportError::new_err((said, hint))
        }
        StartError::Reactor(Error::Setup { .. }) => {
            let hint = "raise the limit of open files (ulimit -n) or start fewer shards";
            TransportError::new_err((said, hint))
        }
    }
}

/// What a look at a stopped log says; the same words as a start has for it.
pub(crate) fn from_journal(error: JournalError) -> PyErr {
    from_state(&LogError::Journal(error))
}

/// What keeps a stopped log from being a state.
pub(crate) fn from_state(error: &LogError) -> PyErr {
    from_log(error, words(error))
}

/// A file that is no log, or that nothing can be read of.
pub(crate) fn from_key(error: quantumqtt_journal::KeyError) -> PyErr {
    from_state(&LogError::Key(error))
}

/// Entries that stand in a log and make no state.
pub(crate) fn from_replay(said: String) -> PyErr {
    CorruptLog::new_err((said, "read it with the version that wrote it, or a later one"))
}

/// A log tool was pointed to something else.
pub(crate) fn no_log(directory: &std::path::Path) -> PyErr {
    let said = format!("{} holds no log", directory.display());
    ConfigError::new_err((said, "name the data directory of a broker, or a copy of one"))
}

/// A log tool was asked for a place it cannot reach.
pub(crate) fn out_of_range(said: String) -> PyErr {
    ConfigError::new_err((said, "ask for an index the log still holds"))
}

/// What the operator can repair is a configuration that does not fit; the rest broke by itself.
fn from_log(error: &LogError, said: String) -> PyErr {
    let hint = error.hint();
    match error {
        LogError::Directory { .. }
        | LogError::KeyMissing { .. }
        | LogError::Key(_)
        | LogError::Journal(
            JournalError::Option { .. }
            | JournalError::Locked { .. }
            | JournalError::ForeignNode { .. }
            | JournalError::WrongKey { .. }
            | JournalError::NewerFormat { .. }
            | JournalError::Key(_),
        ) => ConfigError::new_err((said, hint)),
        LogError::Full
        | LogError::Threads(_)
        | LogError::Records(RecordsError::Disk { .. })
        | LogError::Journal(
            JournalError::Disk { .. } | JournalError::Group { .. } | JournalError::Stopped,
        ) => StorageError::new_err((said, hint)),
        LogError::Journal(JournalError::Damaged(_) | JournalError::Checkpoint { .. })
        | LogError::Quarantined(_)
        | LogError::Restore(_)
        | LogError::Records(_)
        | LogError::Replay(_) => CorruptLog::new_err((said, hint)),
    }
}

pub(crate) fn from_opening(error: &LogError) -> PyErr {
    from_log(error, words(error))
}

fn bind_hint(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program listens there: stop it or choose another port (0 takes a free one)"
        }
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges: choose a higher port"
        }
        std::io::ErrorKind::AddrNotAvailable => {
            "the address is not one of this machine: try 127.0.0.1 or 0.0.0.0"
        }
        _ => "check the listen address",
    }
}

/// Python knows the file of each part, and puts it in front.
pub(crate) fn from_tls(error: &TlsRefused) -> PyErr {
    ConfigError::new_err((format!("{}: {error}", error.part.key()), error.remedy))
}

pub(crate) fn bad_network(text: &str, error: BadNetwork) -> PyErr {
    ConfigError::new_err((format!("{text}: {error}"), "write 10.0.0.0/8, or one address"))
}

pub(crate) fn from_load(error: &LoadError) -> PyErr {
    let said = words(error);
    match error {
        LoadError::Spec { .. } => ConfigError::new_err((said,)),
        LoadError::Resolve { .. } => {
            TransportError::new_err((said, "check the name, or give an address"))
        }
        LoadError::Setup { .. } => {
            TransportError::new_err((said, "raise the limit of open files (ulimit -n)"))
        }
        LoadError::Connect { .. } => {
            let hint = "is a broker listening there, and does it let these clients in?";
            TransportError::new_err((said, hint))
        }
        LoadError::Process { .. } => {
            ConfigError::new_err((said, "give the id of a process on this machine"))
        }
        LoadError::Panicked { .. } => {
            InternalError::new_err((said, "please report it with the command that led to it"))
        }
    }
}

/// The MQTT 5 code of a bad filter.
const TOPIC_FILTER_INVALID: u8 = 0x8F;
/// The MQTT 5 code of a bad topic name.
const TOPIC_NAME_INVALID: u8 = 0x90;

pub(crate) fn from_filter(error: FilterError) -> PyErr {
    let hint = "see section 4.7 of the MQTT standard";
    LocalProtocolError::new_err((error.to_string(), hint, TOPIC_FILTER_INVALID))
}

pub(crate) fn from_topic(error: TopicError) -> PyErr {
    let hint = "see section 4.7 of the MQTT standard";
    LocalProtocolError::new_err((error.to_string(), hint, TOPIC_NAME_INVALID))
}

/// Our own compiler writes tables; one that cannot be read is our bug.
pub(crate) fn from_table(error: &TableError) -> PyErr {
    let hint = "please report it with the rules that led to it";
    InternalError::new_err((format!("compiled rules cannot be read: {error}"), hint))
}

pub(crate) fn unknown_action(word: &str) -> PyErr {
    PyValueError::new_err(format!("an action is read or write, not {word:?}"))
}

/// What a peer sent and MQTT forbids.
pub(crate) fn from_decode(error: DecodeError) -> PyErr {
    let hint = match error {
        DecodeError::PacketTooLarge { .. } => {
            "the peer ignores our maximum packet size: raise packet_bytes_max, or blame the peer"
        }
        _ => "the peer, or something between, breaks MQTT; is this port really an MQTT port?",
    };
    RemoteProtocolError::new_err((error.to_string(), hint, error.reason_code().0))
}

/// What our caller asked for and MQTT forbids.
pub(crate) fn from_encode(error: EncodeError) -> PyErr {
    const PROTOCOL_ERROR: u8 = 0x82;
    const PACKET_TOO_LARGE: u8 = 0x95;
    let (hint, code) = match error {
        EncodeError::TooLong { .. } => ("shorten it", PACKET_TOO_LARGE),
        EncodeError::PacketTooLarge { .. } => ("split the payload", PACKET_TOO_LARGE),
        EncodeError::PacketIdAgainstQos { .. } => ("QoS 0 has no packet id", PROTOCOL_ERROR),
        EncodeError::NotInVersion { .. }
        | EncodeError::ReasonNotInVersion { .. }
        | EncodeError::VersionMismatch { .. } => ("only MQTT 5 has this", PROTOCOL_ERROR),
        EncodeError::Refused(why) => ("see the clause it names", why.reason_code().0),
    };
    LocalProtocolError::new_err((error.to_string(), hint, code))
}

pub(crate) fn empty_ring() -> PyErr {
    PyValueError::new_err("a ring has at least one bucket")
}

/// A call that came after the node's end, or before its beginning.
pub(crate) fn not_running() -> PyErr {
    InternalError::new_err(("the node does not run", "call start() once, and nothing after stop()"))
}

/// An entry that this build cannot read.
pub(crate) fn from_entry(error: EntryError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// An entry that cannot be applied; the machine must not be used any more.
pub(crate) fn from_apply(error: ApplyError) -> PyErr {
    InternalError::new_err((error.to_string(), "make a new machine: this one stopped half-way"))
}

/// Chunks that no machine comes out of.
pub(crate) fn from_restore(error: RestoreError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What the message log says. Ranges that expired are `StorageError` here, where a log is read
/// without a service in between; the log service has a branch of its own for them.
pub(crate) fn from_records(error: &quantumqtt_records::Error) -> PyErr {
    use quantumqtt_records::Error;
    let said = words(error);
    let report = "please report it with what led to it";
    match error {
        Error::Disk { .. } => {
            StorageError::new_err((said, "is there room, and may this user write there?"))
        }
        Error::OffsetExpired { .. } => {
            StorageError::new_err((said, "go on at the first offset that is left"))
        }
        Error::NotYet { .. } => StorageError::new_err((said, "wait until it is committed")),
        Error::DamagedBlock { .. } | Error::DamagedChunk { .. } | Error::DamagedManifest { .. } => {
            CorruptStore::new_err((said, "restore the file from a backup or another replica"))
        }
        Error::UnknownKey { .. } => {
            StorageError::new_err((said, "give the key the log was written with"))
        }
        Error::NewerFormat { .. } => StorageError::new_err((said, "read it with a later release")),
        Error::Gap { .. } | Error::Conflict { .. } => InternalError::new_err((said, report)),
        Error::TooLarge { .. } | Error::TooMany { .. } | Error::UnknownColumn { .. } => {
            PyValueError::new_err(said)
        }
        Error::NoRandomness | Error::Stopped => StorageError::new_err((said, report)),
    }
}

/// A word of the hand crank that names nothing.
pub(crate) fn no_such(what: &str, name: &str) -> PyErr {
    PyValueError::new_err(format!("there is no {what} {name}"))
}
