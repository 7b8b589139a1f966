"""What happened, as plain values ordered in time: the one thing that the picture is drawn from."""

from enum import StrEnum

import msgspec

__all__ = ["Mark", "MarkKind", "Post", "PostKind", "Span", "SpanKind", "Timeline"]


class PostKind(StrEnum):
    """Why an entry's arrows have a colour of their own."""

    PLAIN = "plain"
    COMPETING = "competing"
    RESOLVING = "resolving"


class Post(msgspec.Struct, frozen=True):
    """One entry of the log: written on a device, stored by the relay, read by the other device.

    `arrivals` are (device, time). `label` says what the entry did; equal labels in a row are told once. All times are
    this machine's clock in milliseconds, as the files hold them.
    """

    device: str
    label: str
    kind: PostKind
    written_ms: int
    stored_ms: int
    relay_seq: int
    arrivals: tuple[tuple[str, int], ...] = ()


class SpanKind(StrEnum):
    """What a process was doing; STARTING is before it opened its store."""

    STARTING = "starting"
    ONLINE = "online"
    OFFLINE = "offline"


class Span(msgspec.Struct, frozen=True):
    """A lane's stretch of one kind; between spans there is no process."""

    lane: str
    kind: SpanKind
    from_ms: int
    to_ms: int


class MarkKind(StrEnum):
    """What a mark on a lane stands for."""

    STARTED = "started"
    RAN = "ran"
    REUSED = "reused"
    QUESTION = "question"
    ANSWER = "answer"
    CONFLICT = "conflict"
    OFFLINE = "offline"
    ONLINE = "online"
    KILLED = "killed"
    STOPPED = "stopped"


class Mark(msgspec.Struct, frozen=True):
    """Something that happened on a lane besides its entries."""

    lane: str
    kind: MarkKind
    at_ms: int
    text: str


class Timeline(msgspec.Struct, frozen=True):
    """Everything in the picture. `posts` are in the order of the relay's log."""

    title: str
    subtitle: str
    lanes: tuple[str, str, str]
    spans: tuple[Span, ...]
    posts: tuple[Post, ...]
    marks: tuple[Mark, ...]
