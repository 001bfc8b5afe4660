//! Who may publish and read what: access rules as one deterministic automaton.
//!
//! Theory of operation. Python reads rule files and compiles them (`quantumqtt.policy.compile`);
//! what arrives here is a flat table of states and transitions, checked once and then only read.
//! The automaton eats a topic level by level. A state stands for *all* places the topic has reached
//! in *all* rules at once, so the work per level is a hash of its bytes and at most two look-ups,
//! whether there are ten rules or a hundred thousand (SEC-19, X-92).
//!
//! One table serves all users. Each user with rules of their own has an entrance (a *scope*), and
//! everybody shares one more, the common rules. A decision walks the own scope first; only when
//! that says nothing, the common one; when neither says anything the answer is no. In each of them
//! a deny beats every allow.
//!
//! Flags come at two places. `passing` flags count for every topic that reaches a state (rules that
//! end in `#`), `ending` flags for those that end there. The flags of all states passed are joined.
//!
//! Templates. A rule's level may hold `%c` or `%u`: such a level matches only the text that client
//! id or user name give it. A state names the templates that matter at it; which of them match is
//! part of the transition's key. An id that is empty or holds `+`, `#`, `/`, `$` or NUL gives no
//! text, so the template matches nothing: what a client calls itself never widens a rule.
//!
//! Deliberately absent: backtracking, recursion, any allocation during a decision on a topic. Only
//! the question whether a *filter* can ever match something readable searches, and its search is
//! bounded: see [`RuleTable::may_subscribe`].

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::name::levels;

/// States looked at before a filter is granted unseen; what it delivers is checked in any case.
pub const FILTER_STATES_MAX: usize = 4_096;
/// Templates that may matter at one state; each doubles the state's transitions.
pub const STATE_TEMPLATES_MAX: usize = 6;
/// Templates of one table; each is a bit.
pub const TEMPLATES_MAX: usize = 32;

/// The state from which no rule is reached.
const DEAD: u32 = 0;
/// The symbol of a level that no rule spells out.
const OTHER: u32 = 0;

/// What a rule may say of a topic.
pub mod flag {
    /// May be read: subscribed to and received.
    pub const ALLOW_READ: u8 = 1;
    /// May be written: published to, also by a will.
    pub const ALLOW_WRITE: u8 = 1 << 1;
    /// May not be read.
    pub const DENY_READ: u8 = 1 << 2;
    /// May not be written.
    pub const DENY_WRITE: u8 = 1 << 3;
    /// Every flag there is.
    pub const ALL: u8 = (1 << 4) - 1;
}

/// What somebody wants with a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Receive from it.
    Read,
    /// Publish to it.
    Write,
}

/// Who wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who<'a> {
    /// The proven user name; empty for anonymous.
    pub user: &'a str,
    /// The client id.
    pub client_id: &'a str,
}

/// An answer, and how many look-ups it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Yes or no.
    pub allowed: bool,
    /// Transitions looked up; grows with the levels of the topic and with nothing else.
    pub steps: u32,
}

/// A piece of a template level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text that stands as it is.
    Text(Box<str>),
    /// `%c`.
    ClientId,
    /// `%u`.
    User,
}

/// One state as Python wrote it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Flags of rules that end in `#` here.
    pub passing: u8,
    /// Flags of rules that end here.
    pub ending: u8,
    /// Templates that matter at the level that follows, one bit each.
    pub templates: u32,
}

/// One transition as Python wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// From which state.
    pub from: u32,
    /// Over which symbol, 0 for any text that is no symbol of this state.
    pub symbol: u32,
    /// With which of the state's templates matching.
    pub matching: u32,
    /// To which state.
    pub to: u32,
}

/// Where a scope begins: at the state for plain topics, or at that for topics that begin with `$`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entrance {
    /// For topics that begin with anything else.
    pub plain: u32,
    /// For topics that begin with `$`.
    pub dollar: u32,
}

/// A table before it is checked.
#[derive(Debug, Clone, Default)]
pub struct RuleParts {
    /// Symbols; the first has number 1.
    pub symbols: Vec<Box<str>>,
    /// Templates, by bit.
    pub templates: Vec<Vec<Piece>>,
    /// States; number 0 is the dead one.
    pub states: Vec<State>,
    /// Transitions, in any order.
    pub transitions: Vec<Transition>,
    /// Entrances by user name; the empty name is anonymous.
    pub scopes: Vec<(Box<str>, Entrance)>,
    /// The entrance of everybody.
    pub common: Entrance,
}

/// A table that no compiler of ours would write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TableError {
    /// A number points at nothing.
    #[error("{what} {number} does not exist")]
    Dangling {
        /// State, symbol, template or flag.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// Two transitions for one situation.
    #[error("two transitions leave state {state} over symbol {symbol}")]
    Ambiguous {
        /// From there.
        state: u32,
        /// Over that.
        symbol: u32,
    },
    /// The dead state leads somewhere.
    #[error("state 0 is not dead")]
    Undead,
    /// More templates than bits.
    #[error("{count} templates, but at most {max}")]
    Templates {
        /// Found.
        count: usize,
        /// Allowed.
        max: usize,
    },
}

/// xxh3 over whatever is hashed. Its keys are the operator's; clients only ask.
#[derive(Debug, Default)]
struct TextHasher(u64);

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u8(&mut self, _end_of_text: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

type Table<K, V> = HashMap<K, V, BuildHasherDefault<TextHasher>>;

/// Transitions are found by state and symbol in one word, and the templates that match.
type TransitionKey = (u64, u32);

/// A checked table.
#[derive(Debug, Default)]
pub struct RuleTable {
    symbols: Table<Box<str>, u32>,
    templates: Vec<Vec<Piece>>,
    states: Vec<State>,
    /// What can still be reached from a state, itself included.
    reachable: Vec<u8>,
    next: Table<TransitionKey, u32>,
    /// The transitions of each state side by side, for filters with `+`.
    leaving: Vec<Transition>,
    leaving_from: Vec<u32>,
    scopes: Table<Box<str>, Entrance>,
    common: Entrance,
}

/// What a walk has met.
enum Met {
    Allowed,
    Denied,
    Nothing,
}

impl RuleTable {
    /// Checks a table so that no decision on it can fail.
    pub fn build(parts: RuleParts) -> Result<Self, TableError> {
        check(&parts)?;
        let RuleParts { symbols, templates, states, mut transitions, scopes, common } = parts;
        let mut next = Table::default();
        next.reserve(transitions.len());
        for one in &transitions {
            let key = transition_key(one.from, one.symbol, one.matching);
            if next.insert(key, one.to).is_some() {
                return Err(TableError::Ambiguous { state: one.from, symbol: one.symbol });
            }
        }
        transitions.sort_unstable_by_key(|one| one.from);
        let mut leaving_from = vec![0_u32; states.len() + 1];
        for one in &transitions {
            leaving_from[one.from as usize + 1] += 1;
        }
        for at in 1..leaving_from.len() {
            leaving_from[at] += leaving_from[at - 1];
        }
        let mut table = Self {
            symbols: symbols.into_iter().zip(1..).collect(),
            templates,
            reachable: states.iter().map(|state| state.passing | state.ending).collect(),
            states,
            next,
            leaving: transitions,
            leaving_from,
            scopes: scopes.into_iter().collect(),
            common,
        };
        table.spread_reachable();
        Ok(table)
    }

    /// Joins to every state what its successors can reach, until nothing changes. Python numbers
    /// states in the order in which it finds them, so one pass from the back is nearly enough.
    fn spread_reachable(&mut self) {
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for state in (0..self.states.len()).rev() {
                let joined =
                    self.leaving(state as u32).iter().fold(self.reachable[state], |flags, one| {
                        flags | self.reachable[one.to as usize]
                    });
                has_changed |= joined != self.reachable[state];
                self.reachable[state] = joined;
            }
        }
    }

    /// How many states the table has.
    pub fn state_count(&self) -> usize {
        self.states.len()
    }

    /// Whether `who` may do `action` with `topic`.
    pub fn may(&self, who: Who<'_>, action: Action, topic: &str) -> bool {
        self.decide(who, action, topic).allowed
    }

    /// As [`may`](Self::may), with the number of look-ups.
    pub fn decide(&self, who: Who<'_>, action: Action, topic: &str) -> Decision {
        let (allow, deny) = match action {
            Action::Read => (flag::ALLOW_READ, flag::DENY_READ),
            Action::Write => (flag::ALLOW_WRITE, flag::DENY_WRITE),
        };
        let mut steps = 0;
        for entrance in [self.own(who.user), self.common] {
            let flags = self.walk(entrance, who, topic, &mut steps);
            if flags & deny != 0 {
                return Decision { allowed: false, steps };
            }
            if flags & allow != 0 {
                return Decision { allowed: true, steps };
            }
        }
        Decision { allowed: false, steps }
    }

    fn own(&self, user: &str) -> Entrance {
        self.scopes.get(user).copied().unwrap_or_default()
    }

    /// The flags of every rule of a scope that matches `topic`.
    fn walk(&self, entrance: Entrance, who: Who<'_>, topic: &str, steps: &mut u32) -> u8 {
        let mut state = entrance.of(topic);
        let mut flags = self.states[state as usize].passing;
        for level in levels(topic) {
            if state == DEAD {
                return flags;
            }
            *steps += 1;
            state = self.step(state, level, who);
            flags |= self.states[state as usize].passing;
        }
        flags | self.states[state as usize].ending
    }

    fn step(&self, state: u32, level: &str, who: Who<'_>) -> u32 {
        let relevant = self.states[state as usize].templates;
        let matching = if relevant == 0 { 0 } else { self.matching(relevant, level, who) };
        if let Some(&symbol) = self.symbols.get(level)
            && let Some(&to) = self.next.get(&transition_key(state, symbol, matching))
        {
            return to;
        }
        self.next.get(&transition_key(state, OTHER, matching)).copied().unwrap_or(DEAD)
    }

    /// Which of the `relevant` templates spell `level` for `who`.
    fn matching(&self, relevant: u32, level: &str, who: Who<'_>) -> u32 {
        let mut rest = relevant;
        let mut matching = 0;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            if spells(&self.templates[bit as usize], level, who) {
                matching |= 1 << bit;
            }
        }
        matching
    }

    /// Whether a subscription of `who` to `pattern` (without `$share/…`) makes sense: nothing that
    /// it may match as a whole is denied, and there is a topic it matches that may be read.
    ///
    /// What is delivered is checked once more, topic by topic; so a filter wider than its reader's
    /// rights is granted and brings what may be read. Looking for that one readable topic visits at
    /// most [`FILTER_STATES_MAX`] states; a filter for which it is not enough is granted, too.
    pub fn may_subscribe(&self, who: Who<'_>, pattern: &str) -> bool {
        for entrance in [self.own(who.user), self.common] {
            match self.meet(entrance, who, pattern) {
                Met::Denied => return false,
                Met::Allowed => return true,
                Met::Nothing => {}
            }
        }
        false
    }

    fn meet(&self, entrance: Entrance, who: Who<'_>, pattern: &str) -> Met {
        if self.covering(entrance, who, pattern) & flag::DENY_READ != 0 {
            Met::Denied
        } else if self.overlaps_readable(entrance, who, pattern) {
            Met::Allowed
        } else {
            Met::Nothing
        }
    }

    /// The flags of every rule that matches whatever `pattern` matches.
    fn covering(&self, entrance: Entrance, who: Who<'_>, pattern: &str) -> u8 {
        let mut state = entrance.of(pattern);
        let mut flags = self.states[state as usize].passing;
        for level in levels(pattern) {
            state = match level {
                // Only a rule that passed with `#` covers all that may follow.
                "#" => return flags,
                // Only a rule's own `+` covers every text of a level.
                "+" => self.next.get(&transition_key(state, OTHER, 0)).copied().unwrap_or(DEAD),
                text => self.step(state, text, who),
            };
            if state == DEAD {
                return flags;
            }
            flags |= self.states[state as usize].passing;
        }
        flags | self.states[state as usize].ending
    }

    /// Whether some rule that allows reading matches a topic that `pattern` matches.
    fn overlaps_readable(&self, entrance: Entrance, who: Who<'_>, pattern: &str) -> bool {
        let possible = self.possible(who);
        let wanted: Vec<&str> = levels(pattern).collect();
        let mut to_visit = vec![(entrance.of(pattern), 0_usize)];
        let mut visited = 0;
        while let Some((state, depth)) = to_visit.pop() {
            let State { passing, ending, .. } = self.states[state as usize];
            visited += 1;
            if passing & flag::ALLOW_READ != 0 || visited > FILTER_STATES_MAX {
                return true;
            }
            let push = |to_visit: &mut Vec<_>, to: u32| {
                if self.reachable[to as usize] & flag::ALLOW_READ != 0 {
                    to_visit.push((to, depth + 1));
                }
            };
            match wanted.get(depth) {
                None if ending & flag::ALLOW_READ != 0 => return true,
                Some(&"#") if self.readable_below(state, possible, &mut visited) => return true,
                None | Some(&"#") => {}
                Some(&"+") => {
                    for one in self.leaving(state) {
                        if one.matching & !possible == 0 {
                            push(&mut to_visit, one.to);
                        }
                    }
                }
                Some(text) => push(&mut to_visit, self.step(state, text, who)),
            }
        }
        false
    }

    /// Whether a rule that allows reading ends at or below `state`.
    fn readable_below(&self, state: u32, possible: u32, visited: &mut usize) -> bool {
        let mut to_visit = vec![state];
        while let Some(state) = to_visit.pop() {
            let State { passing, ending, .. } = self.states[state as usize];
            *visited += 1;
            let is_readable = (passing | ending) & flag::ALLOW_READ != 0;
            if is_readable || *visited > FILTER_STATES_MAX {
                return true;
            }
            for one in self.leaving(state) {
                let leads_there = self.reachable[one.to as usize] & flag::ALLOW_READ != 0;
                if leads_there && one.matching & !possible == 0 {
                    to_visit.push(one.to);
                }
            }
        }
        false
    }

    /// The templates that have a text at all for `who`.
    fn possible(&self, who: Who<'_>) -> u32 {
        let has_text = |template: &Vec<Piece>| {
            template.iter().all(|piece| match piece {
                Piece::Text(_) => true,
                Piece::ClientId => is_safe(who.client_id),
                Piece::User => is_safe(who.user),
            })
        };
        let bits = self.templates.iter().zip(0..);
        bits.filter(|(template, _)| has_text(template)).fold(0, |all, (_, bit)| all | 1 << bit)
    }

    fn leaving(&self, state: u32) -> &[Transition] {
        let at = state as usize;
        &self.leaving[self.leaving_from[at] as usize..self.leaving_from[at + 1] as usize]
    }
}

impl Entrance {
    fn of(self, name: &str) -> u32 {
        if name.starts_with('$') { self.dollar } else { self.plain }
    }
}

fn transition_key(state: u32, symbol: u32, matching: u32) -> TransitionKey {
    (u64::from(state) << 32 | u64::from(symbol), matching)
}

/// Whether an id or a name may stand for a level of a rule.
fn is_safe(text: &str) -> bool {
    !text.is_empty() && !text.bytes().any(|byte| matches!(byte, b'+' | b'#' | b'/' | b'$' | 0))
}

/// Whether `template` gives exactly `level` for `who`.
fn spells(template: &[Piece], level: &str, who: Who<'_>) -> bool {
    let mut rest = level;
    for piece in template {
        let text = match piece {
            Piece::Text(text) => text,
            Piece::ClientId if is_safe(who.client_id) => who.client_id,
            Piece::User if is_safe(who.user) => who.user,
            Piece::ClientId | Piece::User => return false,
        };
        match rest.strip_prefix(text) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

fn check(parts: &RuleParts) -> Result<(), TableError> {
    let state_count = parts.states.len() as u32;
    let templates = parts.templates.len();
    if templates > TEMPLATES_MAX {
        return Err(TableError::Templates { count: templates, max: TEMPLATES_MAX });
    }
    let dangling = |what, number| Err(TableError::Dangling { what, number });
    if parts.states.first() != Some(&State::default()) {
        return Err(TableError::Undead);
    }
    let known_templates = (1_u64 << templates) - 1;
    for state in &parts.states {
        let count = state.templates.count_ones() as usize;
        if count > STATE_TEMPLATES_MAX {
            return Err(TableError::Templates { count, max: STATE_TEMPLATES_MAX });
        }
        if u64::from(state.templates) & !known_templates != 0 {
            return dangling("template", state.templates);
        }
        if (state.passing | state.ending) & !flag::ALL != 0 {
            return dangling("flag", u32::from(state.passing | state.ending));
        }
    }
    for one in &parts.transitions {
        if one.from == DEAD {
            return Err(TableError::Undead);
        }
        for number in [one.from, one.to] {
            if number >= state_count {
                return dangling("state", number);
            }
        }
        if one.symbol as usize > parts.symbols.len() {
            return dangling("symbol", one.symbol);
        }
        if one.matching & !parts.states[one.from as usize].templates != 0 {
            return dangling("template", one.matching);
        }
    }
    let entrances = parts.scopes.iter().map(|(_, entrance)| entrance);
    for entrance in entrances.chain([&parts.common]) {
        for number in [entrance.plain, entrance.dollar] {
            if number >= state_count {
                return dangling("state", number);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
