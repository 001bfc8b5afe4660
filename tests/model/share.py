"""Shared subscriptions: members of one filter, of whom each message reaches exactly one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.session import Session


@dataclass(slots=True)
class ShareGroup:
    """Members of one `$share/{group}/{filter}`, who take turns (§4.8.2)."""

    members: list[Session] = field(default_factory=list)
    turn: int = 0

    def leave(self, session: Session) -> None:
        """Remove a member; whose turn it is stays as it was."""
        place = self.members.index(session)
        self.members.remove(session)
        if place < self.turn:
            self.turn -= 1
        self.turn %= max(1, len(self.members))

    def pick(self, candidates: Iterable[Session]) -> Session | None:
        """Give the turn to the next of these members."""
        able = list(candidates)
        count = len(self.members)
        for place in ((self.turn + step) % count for step in range(count)):
            if self.members[place] in able:
                self.turn = (place + 1) % count
                return self.members[place]
        return None
