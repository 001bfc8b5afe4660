//! Compiled access rules in Python's hands: built from flat lists, then only read.

use std::sync::Arc;

use pyo3::prelude::*;
use quantumqtt_topics::{Action, Entrance, Piece, RuleParts, RuleState, Transition, Who};

use crate::errors::{from_table, unknown_action};

/// A piece of a template level: 0 with text, 1 for the client id, 2 for the user name.
type PieceParts = (u8, String);

/// One table of rules, shared by Python and every shard.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct RuleTable(pub(crate) Arc<quantumqtt_topics::RuleTable>);

#[pymethods]
impl RuleTable {
    #[new]
    #[pyo3(signature = (*, symbols, templates, states, transitions, scopes, common))]
    fn new(
        py: Python<'_>,
        symbols: Vec<String>,
        templates: Vec<Vec<PieceParts>>,
        states: Vec<(u8, u8, u32)>,
        transitions: Vec<(u32, u32, u32, u32)>,
        scopes: Vec<(String, u32, u32)>,
        common: (u32, u32),
    ) -> PyResult<Self> {
        let entrance = |(plain, dollar)| Entrance { plain, dollar };
        let states = states.into_iter();
        let transitions = transitions.into_iter();
        let parts = RuleParts {
            symbols: symbols.into_iter().map(Into::into).collect(),
            templates: templates
                .into_iter()
                .map(|one| one.into_iter().map(piece).collect())
                .collect(),
            states: states
                .map(|(passing, ending, templates)| RuleState { passing, ending, templates })
                .collect(),
            transitions: transitions
                .map(|(from, symbol, matching, to)| Transition { from, symbol, matching, to })
                .collect(),
            scopes: scopes
                .into_iter()
                .map(|(user, plain, dollar)| (user.into(), entrance((plain, dollar))))
                .collect(),
            common: entrance(common),
        };
        let built = py.detach(|| quantumqtt_topics::RuleTable::build(parts));
        built.map(|table| Self(Arc::new(table))).map_err(|error| from_table(&error))
    }

    #[getter]
    fn state_count(&self) -> usize {
        self.0.state_count()
    }

    fn may(&self, user: &str, client_id: &str, action: &str, topic: &str) -> PyResult<bool> {
        Ok(self.0.may(Who { user, client_id }, action_of(action)?, topic))
    }

    fn may_subscribe(&self, user: &str, client_id: &str, pattern: &str) -> bool {
        self.0.may_subscribe(Who { user, client_id }, pattern)
    }

    fn steps(&self, user: &str, client_id: &str, action: &str, topic: &str) -> PyResult<u32> {
        Ok(self.0.decide(Who { user, client_id }, action_of(action)?, topic).steps)
    }
}

fn piece((kind, text): PieceParts) -> Piece {
    match kind {
        1 => Piece::ClientId,
        2 => Piece::User,
        _ => Piece::Text(text.into()),
    }
}

fn action_of(word: &str) -> PyResult<Action> {
    match word {
        "read" => Ok(Action::Read),
        "write" => Ok(Action::Write),
        _ => Err(unknown_action(word)),
    }
}
