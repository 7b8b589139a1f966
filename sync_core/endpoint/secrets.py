"""What a secret slot holds is withheld wherever it stands: the whole text that holds it, not the characters of it.

A value reaches other places by itself: a tool answers with it, an error names it, a note repeats it. Each part of a
value counts alone, because a text may hold one without the others.
"""

from collections.abc import Iterable

from sync_core.document.slots import Candidate, Slot
from sync_core.values import JsonValue, canonical

__all__ = ["NO_SECRETS", "WITHHELD", "SecretValues", "secrets_of", "shown_source"]

WITHHELD = "(withheld: it holds the value of a secret slot)"
_SECRET_CHARS_MIN = 4
"""Shorter values, and true, false and null, stand in every text by chance: only their slot's writes withhold them."""


class SecretValues:
    """The values of secret slots, as far as they can be told from any other text."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, value: JsonValue) -> None:
        """Take a secret slot's value."""
        if isinstance(value, (dict, list)):
            for part in value.values() if isinstance(value, dict) else value:
                self.add(part)
            return
        text = _bare(value)
        if not isinstance(value, (bool, type(None))) and len(text) >= _SECRET_CHARS_MIN:
            self._texts.add(text)

    def are_in(self, value: JsonValue) -> bool:
        """Whether a text, or anything else that JSON can hold, holds one of the values."""
        if not self._texts:
            return False
        held = _bare(value)
        return any(text in held for text in self._texts)

    def checked_text(self, text: str) -> str:
        """Return a text, or that it is withheld."""
        return WITHHELD if self.are_in(text) else text

    def checked(self, value: JsonValue) -> JsonValue:
        """Return a value, or that it is withheld."""
        return WITHHELD if self.are_in(value) else value


NO_SECRETS = SecretValues()
"""Withholds nothing."""


def secrets_of(slots: Iterable[Slot]) -> SecretValues:
    """Return the values that secret slots have now."""
    secrets = SecretValues()
    for slot in slots:
        if slot.secret:
            for candidate in (*slot.candidates, *slot.proposals):
                secrets.add(candidate.value)
    return secrets


def shown_source(candidate: Candidate, secret: bool) -> str | None:
    """Return where a slot's write came from, as far as that may be shown."""
    values = SecretValues()
    if secret:
        values.add(candidate.value)
    return WITHHELD if values.are_in(candidate.source) else candidate.source


def _bare(value: JsonValue) -> str:
    """A value as text that is the same however often it was put into JSON within JSON."""
    text = canonical(value)
    return (text[1:-1] if isinstance(value, str) else text).replace("\\", "")
