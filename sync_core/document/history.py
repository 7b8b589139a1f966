"""History: the conversation, apart from the slots; runs of two devices never interleave."""

from collections.abc import Iterable, Sequence

import msgspec

from sync_core.entry import HistoryItem, HistoryPop
from sync_core.errors import ValueRefused
from sync_core.ids import check_step
from sync_core.limits import RECORD_NUMBER_MAX

__all__ = ["History", "HistoryEntry"]


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


class History:
    """All items and pops of a task, and the list that they make.

    Order: runs by (n, run), in a run by (index, item). An output stands behind the assistant item that it answers, in
    the order of the calls, whoever wrote it and whenever; two outputs of one step show once, the lowest (n, item). An
    output whose assistant item is not visible keeps its own place, so that nothing vanishes.
    """

    def __init__(self) -> None:
        self._items: dict[str, HistoryEntry] = {}
        self._popped: set[str] = set()
        self._next_index: dict[str, int] = {}
        self._highest = 0
        self._run: tuple[int, str] | None = None
        self._visible: tuple[HistoryEntry, ...] | None = ()
        self._last: tuple[HistoryEntry, int] | None = None
        """The last visible item that is no output, and the index of the last call that has an output behind it."""
        self._answered_items: set[str] = set()

    # --- what came ----------------------------------------------------------------------------------------------------

    def add_item(self, record: HistoryItem, blob: str | None, device: str, at_ms: int) -> None:
        """Take an item. An item id belongs to one item; of two that claim it the lowest stands, in any order."""
        entry = HistoryEntry(
            record.item, record.run, record.n, record.index, record.message, blob, record.answers, device, at_ms
        )
        known = self._items.get(record.item)
        is_plain = known is None and record.item not in self._popped
        self._visible = self._extended(entry) if is_plain else None
        self._items[record.item] = entry if known is None else min(known, entry, key=_claim)
        if record.answers is not None:
            self._answered_items.add(record.answers.rpartition("/")[0])
        self._next_index[record.run] = max(self._next_index.get(record.run, 0), record.index + 1)
        self._highest = max(self._highest, record.n)

    def add_pop(self, record: HistoryPop) -> None:
        """Take a pop; two pops of one item remove one."""
        self._popped.update((record.item, *record.also))
        self._visible = None

    # --- what is shown ------------------------------------------------------------------------------------------------

    def visible(self) -> tuple[HistoryEntry, ...]:
        """Return the visible items in order."""
        if self._visible is None:
            self._visible = tuple(self._ordered())
        return self._visible

    def _extended(self, entry: HistoryEntry) -> tuple[HistoryEntry, ...] | None:
        """Return the list with an item behind it, if that is its place: so the usual append costs no new ordering."""
        if self._visible is None:
            return None
        if entry.answers is None:
            is_last = self._last is None or _place(self._last[0]) < _place(entry)
            if not is_last or entry.item in self._answered_items:
                return None
            self._last = (entry, -1)
        else:
            answered = self._answered(entry)
            if answered is None or self._last is None:
                return None
            if answered[0] != self._last[0].item or answered[1] <= self._last[1]:
                return None
            self._last = (self._last[0], answered[1])
        return (*self._visible, entry)

    def _ordered(self) -> Iterable[HistoryEntry]:
        own_place: list[HistoryEntry] = []
        outputs: dict[str, list[tuple[int, HistoryEntry]]] = {}
        for entry in self._once(entry for item, entry in self._items.items() if item not in self._popped):
            answered = self._answered(entry)
            if answered is None:
                own_place.append(entry)
            else:
                outputs.setdefault(answered[0], []).append((answered[1], entry))
        self._last = None
        for entry in sorted(own_place, key=_place):
            behind = sorted(outputs.get(entry.item, ()), key=lambda output: (output[0], output[1].item))
            self._last = (entry, behind[-1][0] if behind else -1)
            yield entry
            yield from (output for _, output in behind)

    def _once(self, entries: Iterable[HistoryEntry]) -> Iterable[HistoryEntry]:
        """Leave out every output of a step but the lowest."""
        outputs: dict[str, HistoryEntry] = {}
        for entry in entries:
            if entry.answers is None:
                yield entry
            else:
                known = outputs.get(entry.answers)
                outputs[entry.answers] = entry if known is None else min(known, entry, key=_age)
        yield from outputs.values()

    def _answered(self, entry: HistoryEntry) -> tuple[str, int] | None:
        """Return (item, index of the call) that an output stands behind, or None if it keeps its own place."""
        item, _, index = (entry.answers or "").rpartition("/")
        call = self._items.get(item)
        if call is None or call.answers is not None or item in self._popped or not index.isdecimal():
            return None
        return item, int(index)

    # --- local writes -------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[str], answers: str | None, ids: Sequence[str]) -> tuple[HistoryItem, ...]:
        """Return the items of messages (canonical JSON) with the given fresh item ids; `ids` has one more, for a run.

        An output goes to its call's run. Else this opening's run goes on, unless the last visible item is of another:
        then a new run starts behind it.
        """
        if answers is not None:
            check_step(answers)
            if len(messages) != 1:
                raise ValueRefused("A step has one output.", hint="Append the outputs one by one.")
        call = self._items.get((answers or "").rpartition("/")[0])
        n, run = (call.n, call.run) if call is not None else self._own_run(ids[-1])
        index = self._next_index.get(run, 0)
        return tuple(
            HistoryItem(item, run, n, min(index + offset, RECORD_NUMBER_MAX), message, answers)
            for offset, (item, message) in enumerate(zip(ids, messages, strict=False))
        )

    def _own_run(self, fresh: str) -> tuple[int, str]:
        visible = self.visible()
        if self._run is None or (visible and visible[-1].run != self._run[1]):
            self._run = (min(self._highest + 1, RECORD_NUMBER_MAX), fresh)
        return self._run

    def pop(self) -> HistoryPop | None:
        """Return the pop of the last visible item, or None. It takes the hidden outputs of the same step along."""
        visible = self.visible()
        if not visible:
            return None
        last = visible[-1]
        also = [
            entry.item
            for entry in self._items.values()
            if last.answers is not None and entry.answers == last.answers and entry.item not in self._popped
        ]
        return HistoryPop(last.item, tuple(sorted(set(also) - {last.item})))


def _place(entry: HistoryEntry) -> tuple[int, str, int, str]:
    return entry.n, entry.run, entry.index, entry.item


def _age(entry: HistoryEntry) -> tuple[int, str]:
    return entry.n, entry.item


def _claim(entry: HistoryEntry) -> tuple[int, str, int, str, str, str, str]:
    return (
        entry.n,
        entry.run,
        entry.index,
        entry.device,
        entry.message or "",
        entry.blob or "",
        entry.answers or "",
    )
