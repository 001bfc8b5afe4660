"""Users and rules as they are in force: read from their files together, replaced together."""

from dataclasses import dataclass
from typing import Self

from quantumqtt import _core
from quantumqtt.config import Settings
from quantumqtt.policy.compile import compile_rules
from quantumqtt.policy.password_file import Users, load_users
from quantumqtt.policy.rule_file import load_rules
from quantumqtt.policy.rules import RuleSet


@dataclass(frozen=True, slots=True)
class Access:
    """Who is known, and who may do what; None where no file says anything."""

    users: Users | None = None
    rules: RuleSet | None = None
    table: _core.RuleTable | None = None

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Read and compile whatever the settings name. Blocks.

        Raises:
            ConfigError: A file is broken; all problems of the first broken file are named.
        """
        users = None if settings.password_file is None else load_users(settings.password_file)
        if settings.acl_file is None:
            return cls(users)
        rules = load_rules(settings.acl_file)
        return cls(users, rules, compile_rules(rules))

    def revoked_by(self, newer: "Access") -> list[str]:
        """List the users whose credentials are gone or different in a newer state."""
        kept = newer.users or {}
        return [name for name, known in (self.users or {}).items() if kept.get(name) != known]
