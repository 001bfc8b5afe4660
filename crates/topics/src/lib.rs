//! Topic names, filters, the subscription trie, the retained index, share groups, the route cache,
//! access rules.
//!
//! Everything here is a pure data structure: no clock, no dice, no I/O, no lock. Names are local
//! to a tenant; a tenant is another trie, never a prefix of the name. Two properties hold
//! throughout, because replicas compare digests and because a client chooses the names:
//!
//! - what a structure answers depends on its contents, never on the order in which they arrived
//!   nor on a hash;
//! - work and memory are linear in what the client sent, and nothing recurses per level.

#![forbid(unsafe_code)]

mod arena;
mod filter;
mod level;
mod name;
mod retained;
mod route_cache;
mod rules;
mod share;
#[cfg(test)]
mod strategies;
mod subscribers;
mod trie;

pub use filter::{Filter, FilterError};
pub use name::{NAME_BYTES_MAX, TopicError, is_dollar, levels, validate_topic};
pub use retained::{RetainedIndex, RetainedMatches, Visit};
pub use route_cache::{
    CACHED_TOPIC_BYTES_MAX, CACHED_TOPICS_MAX, RouteCache, RouteCacheStatistics,
};
pub use rules::{
    Action, Decision, Entrance, FILTER_STATES_MAX, Piece, RuleParts, RuleTable,
    STATE_TEMPLATES_MAX, State as RuleState, TEMPLATES_MAX, TableError, Transition, Who, flag,
};
pub use share::ShareGroup;
pub use trie::{GroupId, Matches, SubscriptionTrie};
