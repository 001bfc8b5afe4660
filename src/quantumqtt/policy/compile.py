"""From rules to one native table: a deterministic automaton over topic levels.

Theory of operation. The rules of one scope (a user, anonymous clients, everybody) form a trie of
levels. A topic may be at several places of that trie at once, because of wildcards and templates;
a *state* of the automaton is the set of those places. States are made as they are found, breadth
first, so a table holds only what some topic can reach. How the native half walks it is told in
`crates/topics/src/rules.rs`.

Topics that begin with `$` have a trie of their own, which holds the rules that spell the `$`: so no
wildcard, and no client id, ever reaches one.

Templates. Whether `%c` spells the level at hand is known only when somebody asks. So a state with
templates has its transitions once for every set of them that may match together; for the usual one
template these are two.

Sets of places can in theory grow without measure (many rules like `+/+/x/+/+`). The number of
states is bounded, and rules that need more are refused by name instead of being half compiled.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from quantumqtt import _core
from quantumqtt.errors import ConfigError
from quantumqtt.policy.rules import Level, Placeholder, Rule, RuleSet, Template, Wildcard

STATES_MAX: Final = 2_000_000
# What the native half holds in a word, and what a state may multiply by (2 to this power).
TEMPLATES_MAX: Final = 32
STATE_TEMPLATES_MAX: Final = 6

ALLOW_READ: Final = 1
ALLOW_WRITE: Final = 2
DENY_READ: Final = 4
DENY_WRITE: Final = 8

_FLAGS: Final = {
    ("allow", "read"): ALLOW_READ,
    ("allow", "write"): ALLOW_WRITE,
    ("allow", "readwrite"): ALLOW_READ | ALLOW_WRITE,
    ("deny", "read"): DENY_READ,
    ("deny", "write"): DENY_WRITE,
    ("deny", "readwrite"): DENY_READ | DENY_WRITE,
}
_PIECES: Final = {Placeholder.CLIENT_ID: (1, ""), Placeholder.USER: (2, "")}
_OTHER: Final = 0
_DEAD: Final = 0

Places = frozenset[int]


@dataclass(slots=True)
class _Trie:
    """The rules of one scope, level by level; place 0 is the root."""

    children: list[dict[Level, int]] = field(default_factory=lambda: [{}])
    passing: list[int] = field(default_factory=lambda: [0])
    ending: list[int] = field(default_factory=lambda: [0])

    def add(self, rule: Rule) -> None:
        place = 0
        flags = _FLAGS[rule.verb, rule.access]
        for level in rule.levels:
            if level is Wildcard.REST:
                self.passing[place] |= flags
                return
            children = self.children[place]
            if level not in children:
                children[level] = len(self.children)
                self.children.append({})
                self.passing.append(0)
                self.ending.append(0)
            place = children[level]
        self.ending[place] |= flags


@dataclass(slots=True)
class _Leaving:
    """Where a state leads: by text, over any text, and over each template."""

    literals: dict[str, list[int]] = field(default_factory=dict)
    over_any: list[int] = field(default_factory=list)
    templates: dict[int, list[int]] = field(default_factory=dict)

    def matching(self) -> Iterator[tuple[int, list[int]]]:
        """List every set of templates that may match together, with the places they lead to."""
        bits = list(self.templates)
        for size in range(len(bits) + 1):
            for chosen in combinations(bits, size):
                mask = sum(1 << bit for bit in chosen)
                places = [place for bit in chosen for place in self.templates[bit]]
                yield mask, [*self.over_any, *places]


class _Compiler:
    """Gathers one table; scopes are added one by one."""

    def __init__(self) -> None:
        self.symbols: dict[str, int] = {}
        self.templates: dict[Template, int] = {}
        self.states: list[tuple[int, int, int]] = [(0, 0, 0)]
        self.transitions: list[tuple[int, int, int, int]] = []

    def add_scope(self, rules: Iterable[Rule]) -> tuple[int, int]:
        """Compile the rules of one scope; returns its two entrances."""
        plain, dollar = _Trie(), _Trie()
        for rule in rules:
            (dollar if _spells_dollar(rule.levels[0]) else plain).add(rule)
        return self._determinise(plain), self._determinise(dollar)

    def _determinise(self, trie: _Trie) -> int:
        if not trie.children[0] and not trie.passing[0]:
            return _DEAD
        root: Places = frozenset((0,))
        numbers: dict[Places, int] = {root: self._add_state()}
        waiting = deque([root])
        while waiting:
            places = waiting.popleft()
            number = numbers[places]
            leaving = self._leaving(trie, places)
            self.states[number] = (
                _joined(trie.passing, places),
                _joined(trie.ending, places),
                sum(1 << bit for bit in leaving.templates),
            )

            def reach(found: Sequence[int]) -> int:
                successor = frozenset(found)
                if successor not in numbers:
                    numbers[successor] = self._add_state()
                    waiting.append(successor)
                return numbers[successor]

            for mask, over_any in leaving.matching():
                if over_any:
                    self.transitions.append((number, _OTHER, mask, reach(over_any)))
                for text, found in leaving.literals.items():
                    symbol = self.symbols.setdefault(text, len(self.symbols) + 1)
                    self.transitions.append((number, symbol, mask, reach([*over_any, *found])))
        return numbers[root]

    def _add_state(self) -> int:
        if len(self.states) >= STATES_MAX:
            raise ConfigError(
                f"the rules need more than {STATES_MAX} states",
                hint="use fewer rules with + before other levels, or end them earlier with #",
            )
        self.states.append((0, 0, 0))
        return len(self.states) - 1

    def _leaving(self, trie: _Trie, places: Places) -> _Leaving:
        leaving = _Leaving()
        for place in places:
            for level, child in trie.children[place].items():
                match level:
                    case str():
                        leaving.literals.setdefault(level, []).append(child)
                    case Template():
                        leaving.templates.setdefault(self._bit(level), []).append(child)
                    case Wildcard():
                        leaving.over_any.append(child)
        if len(leaving.templates) > STATE_TEMPLATES_MAX:
            raise _too_many_templates(STATE_TEMPLATES_MAX, "at one level")
        return leaving

    def _bit(self, template: Template) -> int:
        bit = self.templates.setdefault(template, len(self.templates))
        if bit >= TEMPLATES_MAX:
            raise _too_many_templates(TEMPLATES_MAX, "in one file")
        return bit


def compile_rules(rules: RuleSet) -> _core.RuleTable:
    """Compile all rules into the table that shards walk.

    Raises:
        ConfigError: The rules are too entangled for a table of bounded size.
    """
    by_user: dict[str, list[Rule]] = {}
    for rule in rules.rules:
        if rule.user is not None:
            by_user.setdefault(rule.user, []).append(rule)
    compiler = _Compiler()
    scopes = [(user, *compiler.add_scope(own)) for user, own in by_user.items()]
    common = compiler.add_scope(rules.common())
    return _core.RuleTable(
        symbols=list(compiler.symbols),
        templates=[_pieces(template) for template in compiler.templates],
        states=compiler.states,
        transitions=compiler.transitions,
        scopes=scopes,
        common=common,
    )


def _joined(flags: Sequence[int], places: Places) -> int:
    joined = 0
    for place in places:
        joined |= flags[place]
    return joined


def _spells_dollar(level: Level) -> bool:
    first = level.pieces[0] if isinstance(level, Template) else level
    return isinstance(first, str) and first.startswith("$")


def _pieces(template: Template) -> list[tuple[int, str]]:
    return [(0, piece) if isinstance(piece, str) else _PIECES[piece] for piece in template.pieces]


def _too_many_templates(maximum: int, where: str) -> ConfigError:
    return ConfigError(
        f"more than {maximum} different levels with %c or %u {where}",
        hint="write such levels alike, for example always %c",
    )
