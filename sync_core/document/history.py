"""History: the conversation, apart from the slots; runs of two devices never interleave."""

import msgspec

__all__ = ["HistoryEntry"]


class HistoryEntry(msgspec.Struct, frozen=True):
    """One visible message.

    `message` is canonical JSON, None if it is in `blob`; `answers` is the step whose output it is.
    """

    item: str
    run: str
    n: int
    index: int
    message: str | None
    blob: str | None
    answers: str | None
    device: str
    at_ms: int
