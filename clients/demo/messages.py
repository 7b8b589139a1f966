"""What a demo process and its parent say to each other, as JSON lines over the process's standard streams."""

from enum import StrEnum

import msgspec

__all__ = ["Message", "MessageKind"]


class MessageKind(StrEnum):
    """SAID: a line for the newcomer. REACHED: a mark that the parent waits for. QUESTION: wants one line of answer."""

    SAID = "said"
    REACHED = "reached"
    QUESTION = "question"


class Message(msgspec.Struct, frozen=True):
    """One line from a device's process. The parent believes none of them when it computes its figures."""

    kind: MessageKind
    text: str
