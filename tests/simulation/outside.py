"""The outside system, where effects really happen: a bank, an airline. It counts, and the checkers believe it.

Two kinds exist. One enforces: a key that it knows is answered with the record that is there, and a fencing token lower
than the highest that it has seen of the key is turned away. The other takes whatever comes, and so may do it twice.
"""

import msgspec

__all__ = ["Deed", "Outside", "TurnedAway"]


class TurnedAway(Exception):
    """The outside system did nothing, and says so: the token is stale."""


class Deed(msgspec.Struct, frozen=True):
    """One effect that took place. `attempt` made it; `result` is what the outside system answered (canonical JSON)."""

    key: str
    token: int
    attempt: str
    device: str
    result: str
    at_ms: int


class Outside:
    """The books of one outside system."""

    def __init__(self, *, enforces: bool) -> None:
        self.enforces = enforces
        self.deeds: list[Deed] = []
        self._tokens: dict[str, int] = {}

    def act(self, deed: Deed) -> str:
        """Let an effect happen and return the answer; raises `TurnedAway` if this system checks and found it stale."""
        if self.enforces:
            if deed.token < self._tokens.get(deed.key, 0):
                raise TurnedAway(f"A later grant than {deed.token} was seen.")
            self._tokens[deed.key] = deed.token
            known = self.find(deed.key)
            if known is not None:
                return known.result
        self.deeds.append(deed)
        return deed.result

    def find(self, key: str) -> Deed | None:
        """Return the first effect under a key: what a probe, or a person who looks, finds out."""
        return next((deed for deed in self.deeds if deed.key == key), None)

    def of_attempt(self, attempt: str) -> Deed | None:
        """Return the effect that an attempt made."""
        return next((deed for deed in self.deeds if deed.attempt == attempt), None)
