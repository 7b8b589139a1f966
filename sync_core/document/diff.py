"""Text differences as few edits: by unique lines (patience), then by word inside lines that are alike.

A language model hands back whole texts. An edit that is as small as what was really changed merges with the edits of
others; a character diff of the standard library takes longer than 8 s at 50 KB, lines and words take milliseconds.
"""

import bisect
import difflib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sync_core.limits import DIFF_EDITS_MAX

__all__ = ["Edit", "apply_edits", "diff", "matching", "rebase", "split_lines", "to_utf8"]

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FINE_CHARS_MAX = 4_000
"""Lines longer than this together are replaced whole: comparing them word by word would take too long."""
_ALIKE = 0.5
"""Share of words that two runs of lines must have in common to be compared word by word."""
_SMALL_CELLS_MAX = 250_000


class Edit(NamedTuple):
    """Replace the characters from `start` to `end` of the old text by `text`."""

    start: int
    end: int
    text: str


_Block = tuple[int, int, int]
"""(place in a, place in b, length): a run that is equal in both."""


def split_lines(text: str) -> list[str]:
    """Return the lines, each with its line feed; only a line feed ends a line."""
    return _LINE.findall(text)


def diff(old: str, new: str) -> list[Edit]:
    """Return at most `DIFF_EDITS_MAX` edits, in order and apart, that turn `old` into `new`."""
    if old == new:
        return []
    a, b = split_lines(old), split_lines(new)
    places = _places(a)
    edits: list[Edit] = []
    coarse: list[Edit] = []
    for i, i_end, j, j_end in _gaps(matching(a, b), len(a), len(b)):
        before, after = "".join(a[i:i_end]), "".join(b[j:j_end])
        coarse.append(Edit(places[i], places[i_end], after))
        edits.extend(_fine_edits(before, after, places[i]) or coarse[-1:])
    return edits if len(edits) <= DIFF_EDITS_MAX else _merge_near(old, coarse)


def _fine_edits(before: str, after: str, place: int) -> list[Edit]:
    """Return the edits word by word, or none if the two are not alike enough for that to make sense."""
    if not before or not after or len(before) + len(after) > _FINE_CHARS_MAX:
        return []
    a, b = _TOKEN.findall(before), _TOKEN.findall(after)
    if not _alike(a, b):
        return []
    places = _places(a, place)
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return [
        Edit(places[i], places[i_end], "".join(b[j:j_end]))
        for tag, i, i_end, j, j_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _alike(a: Sequence[str], b: Sequence[str]) -> bool:
    """Blanks are everywhere and say nothing, so only words count."""
    matcher = difflib.SequenceMatcher(
        None, [token for token in a if not token.isspace()], [token for token in b if not token.isspace()], False
    )
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _merge_near(old: str, edits: list[Edit]) -> list[Edit]:
    """Join the edits that are nearest to each other, with the text between them, until there are few enough."""
    gaps = sorted(range(1, len(edits)), key=lambda i: (edits[i].start - edits[i - 1].end, i))
    joined = set(gaps[: max(0, len(edits) - DIFF_EDITS_MAX)])
    out: list[list[Edit]] = []
    for index, edit in enumerate(edits):
        if index in joined:
            out[-1].append(edit)
        else:
            out.append([edit])
    return [_join(old, group) for group in out]


def _join(old: str, group: list[Edit]) -> Edit:
    text = [group[0].text]
    for before, edit in itertools.pairwise(group):
        text += (old[before.end : edit.start], edit.text)
    return Edit(group[0].start, group[-1].end, "".join(text))


def matching(a: Sequence[str], b: Sequence[str]) -> list[_Block]:
    """Return the runs of lines that are equal in both, in order: patience, lines that are unique on both sides first.

    Where no line is unique, short stretches are compared by the standard library and long ones count as replaced.
    """
    blocks: list[_Block] = []
    stack = [(0, len(a), 0, len(b))]
    while stack:
        i, i_end, j, j_end = stack.pop()
        start = i
        while i < i_end and j < j_end and a[i] == b[j]:
            i, j = i + 1, j + 1
        if i > start:
            blocks.append((start, j - (i - start), i - start))
        stop = i_end
        while i < i_end and j < j_end and a[i_end - 1] == b[j_end - 1]:
            i_end, j_end = i_end - 1, j_end - 1
        if stop > i_end:
            blocks.append((i_end, j_end, stop - i_end))
        if i == i_end or j == j_end:
            continue
        anchors = _anchors(a, b, (i, i_end, j, j_end))
        if anchors:
            for anchor_i, anchor_j in anchors:
                stack.append((i, anchor_i, j, anchor_j))
                blocks.append((anchor_i, anchor_j, 1))
                i, j = anchor_i + 1, anchor_j + 1
            stack.append((i, i_end, j, j_end))
        elif (i_end - i) * (j_end - j) <= _SMALL_CELLS_MAX:
            matcher = difflib.SequenceMatcher(None, a[i:i_end], b[j:j_end], autojunk=False)
            blocks.extend((i + x, j + y, n) for x, y, n in matcher.get_matching_blocks() if n)
    return sorted(blocks)


def _anchors(a: Sequence[str], b: Sequence[str], window: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Return the longest run, rising in both, of lines that are unique on both sides of the window."""
    i, i_end, j, j_end = window
    in_a, in_b = _unique(a, i, i_end), _unique(b, j, j_end)
    pairs = [(place, in_b[line]) for line, place in in_a.items() if line in in_b]
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        slot = bisect.bisect_left(tails, place)
        before.append(ends[slot - 1] if slot else -1)
        tails[slot : slot + 1] = [place]
        ends[slot : slot + 1] = [index]
    chain = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    return chain[::-1]


def _unique(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    """Return line → place for the lines that occur once, in order of place."""
    places: dict[str, int] = {}
    for index in range(start, end):
        places[lines[index]] = -1 if lines[index] in places else index
    return {line: place for line, place in places.items() if place >= 0}


def _gaps(blocks: list[_Block], a_end: int, b_end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (start, end in a, start, end in b) of what lies between the equal runs."""
    i = j = 0
    for x, y, n in [*blocks, (a_end, b_end, 0)]:
        if i < x or j < y:
            yield i, x, j, y
        i, j = x + n, y + n


def _places(parts: Sequence[str], start: int = 0) -> list[int]:
    places = [start]
    for part in parts:
        places.append(places[-1] + len(part))
    return places


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text after the edits."""
    out: list[str] = []
    at = 0
    for edit in edits:
        out += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join(out) + text[at:]


def rebase(edits: Sequence[Edit], old: str, present: str) -> list[Edit]:
    """Return edits of `old` as edits of `present`, into which `old` was changed by others meanwhile.

    What others inserted stays, and only characters that are still there are deleted.
    """
    kept = _kept(old, present)
    moved: list[Edit] = []
    for edit in edits:
        at = _place_of(kept, edit.start)
        moved.append(Edit(at, at, edit.text))
        for x, y, n in kept:
            start, end = max(x, edit.start), min(x + n, edit.end)
            if start < end:
                moved.append(Edit(y + start - x, y + end - x, ""))
    return [edit for edit in moved if edit.text or edit.end > edit.start]


def _kept(old: str, present: str) -> list[_Block]:
    """Return the runs of characters of `old` that are still in `present`."""
    blocks: list[_Block] = []
    at = shift = 0
    for edit in diff(old, present):
        blocks.append((at, at + shift, edit.start - at))
        shift += len(edit.text) - (edit.end - edit.start)
        at = edit.end
    blocks.append((at, at + shift, len(old) - at))
    return [block for block in blocks if block[2]]


def _place_of(kept: list[_Block], at: int) -> int:
    """Return where a place of the old text lies now: behind the last kept character before it."""
    place = 0
    for x, y, n in kept:
        if x >= at:
            break
        place = y + min(n, at - x)
    return place


def to_utf8(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits with offsets in UTF-8 bytes, which is what pycrdt counts."""
    if text.isascii():
        return list(edits)
    out: list[Edit] = []
    at = bytes_at = 0
    for edit in edits:
        start = bytes_at + len(text[at : edit.start].encode())
        bytes_at = start + len(text[edit.start : edit.end].encode())
        at = edit.end
        out.append(Edit(start, bytes_at, edit.text))
    return out
