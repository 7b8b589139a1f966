"""Gives every moment of a timeline its height in the picture.

Time runs downwards and never backwards: a later moment is never drawn above an earlier one. Between moments the scale
bends: a burst is pulled apart until its labels fit, and a pause is shortened.
"""

import textwrap
from itertools import groupby

import msgspec

from clients.demo.timeline import Mark, Post, Timeline

__all__ = ["LABEL_LINE", "Label", "Layout", "PlacedMark", "PlacedPost", "lay_out"]

LABEL_LINE = 16
"""Height of one line of a label, pixels."""
_LABEL_GAP = 5
_LABEL_CHARS = 36
_TOP = 128
_STEP = 3.5
_PAUSE_MAX = 26.0
_PAUSE_PER_MS = 0.05


class Label(msgspec.Struct, frozen=True):
    """Text beside a lane: its lines, and the moment that it stands for."""

    lane: str
    y: float
    at_ms: int
    lines: tuple[str, ...]
    tone: str


class PlacedPost(msgspec.Struct, frozen=True):
    """A post with the heights of its ends; `arrivals` are (device, height)."""

    post: Post
    written_y: float
    stored_y: float
    arrivals: tuple[tuple[str, float], ...]


class PlacedMark(msgspec.Struct, frozen=True):
    """A mark with its height."""

    mark: Mark
    y: float


class Layout(msgspec.Struct, frozen=True):
    """All that has a place. `moments` are (time, height, lane), rising in time and height."""

    posts: tuple[PlacedPost, ...]
    marks: tuple[PlacedMark, ...]
    labels: tuple[Label, ...]
    moments: tuple[tuple[int, float, str], ...]
    start_ms: int
    bottom: float

    def height_at(self, lane: str, at_ms: int) -> float:
        """Return the height of a time: of the lane's first moment at that time, else of the last moment before it."""
        own = [y for time, y, of in self.moments if time == at_ms and of == lane]
        before = [y for time, y, _ in self.moments if time <= at_ms]
        return own[0] if own else before[-1] if before else float(_TOP)


class _Moment(msgspec.Struct, frozen=True):
    """A point in time that needs a height. `phase` orders what carries one time stamp: written, stored, arrived."""

    at_ms: int
    phase: int
    order: int
    key: tuple[str, int, str]
    lane: str
    lines: tuple[str, ...] = ()
    tone: str = ""


def lay_out(timeline: Timeline) -> Layout:
    """Return the places of everything in a timeline; labels of one lane never overlap."""
    moments = sorted(
        [*_moments_of_marks(timeline), *_moments_of_posts(timeline)],
        key=lambda each: (each.at_ms, each.phase, each.order),
    )
    heights: dict[tuple[str, int, str], float] = {}
    labels: list[Label] = []
    free_from: dict[str, float] = {}
    y, before = float(_TOP), moments[0].at_ms if moments else 0
    for moment in moments:
        y += _STEP + min(_PAUSE_MAX, (moment.at_ms - before) * _PAUSE_PER_MS)
        if moment.lines:
            y = max(y, free_from.get(moment.lane, 0.0))
            free_from[moment.lane] = y + LABEL_LINE * len(moment.lines) + _LABEL_GAP
            labels.append(Label(moment.lane, y, moment.at_ms, moment.lines, moment.tone))
        heights[moment.key] = y
        before = moment.at_ms
    return Layout(
        posts=tuple(_placed(post, index, heights) for index, post in enumerate(timeline.posts)),
        marks=tuple(PlacedMark(mark, heights["mark", i, ""]) for i, mark in enumerate(timeline.marks)),
        labels=tuple(labels),
        moments=tuple((moment.at_ms, heights[moment.key], moment.lane) for moment in moments),
        start_ms=moments[0].at_ms if moments else 0,
        bottom=max([y, *free_from.values()]),
    )


def _placed(post: Post, index: int, heights: dict[tuple[str, int, str], float]) -> PlacedPost:
    return PlacedPost(
        post,
        heights["written", index, ""],
        heights["stored", index, ""],
        tuple((device, heights["arrived", index, device]) for device, _ in post.arrivals),
    )


def _moments_of_marks(timeline: Timeline) -> list[_Moment]:
    return [
        _Moment(mark.at_ms, 0, -1, ("mark", index, ""), mark.lane, _wrap(mark.text), mark.kind.value)
        for index, mark in enumerate(timeline.marks)
    ]


def _moments_of_posts(timeline: Timeline) -> list[_Moment]:
    labels = _labels_of_posts(timeline.posts)
    moments: list[_Moment] = []
    for index, post in enumerate(timeline.posts):
        written = _Moment(
            post.written_ms, 0, index, ("written", index, ""), post.device, labels.get(index, ()), post.kind.value
        )
        moments.append(written)
        stored_ms = max(post.written_ms, post.stored_ms)
        moments.append(_Moment(stored_ms, 1, index, ("stored", index, ""), timeline.lanes[1]))
        for device, at_ms in post.arrivals:
            moments.append(_Moment(max(stored_ms, at_ms), 2, index, ("arrived", index, device), device))
    return moments


def _labels_of_posts(posts: tuple[Post, ...]) -> dict[int, tuple[str, ...]]:
    """One label for each run of equal ones, at its first post, with the run's places in the relay's log."""
    labels: dict[int, tuple[str, ...]] = {}
    for _, run in groupby(enumerate(posts), key=lambda each: (each[1].device, each[1].label)):
        members = list(run)
        index, first = members[0]
        last = members[-1][1]
        places = f" ×{len(members)} #{first.relay_seq}-{last.relay_seq}" if len(members) > 1 else f" #{first.relay_seq}"
        labels[index] = _wrap(first.label + places)
    return labels


def _wrap(text: str) -> tuple[str, ...]:
    return tuple(textwrap.wrap(text, _LABEL_CHARS)) if text else ()
