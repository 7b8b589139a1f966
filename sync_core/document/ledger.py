"""Ledger: what the numbered entries of a task's document have set, to judge what the bytes of an entry cannot show.

A key is set once, and never again whoever deleted it: pycrdt deletes one of two items under one key by itself, which no
update shows, so liveness is no ground for a verdict. Text hangs on text, never on a map item; and no run is cut between
the two halves of a character. Each entry is judged against exactly the numbered entries before it, so every device
comes to the same verdict, whatever unsent work it holds. The document is not asked: it holds own entries that have no
number yet.
"""

from bisect import bisect_right
from collections.abc import Iterable

from sync_core.errors import EntryRefused, StoreDamaged
from sync_core.scan import Scan, scan_document, scan_update

__all__ = ["Ledger"]

_ItemId = tuple[int, int]
_Key = tuple[str, str]


class Ledger:
    """Keys that were ever set, where all map items are, and the second halves of characters.

    What a task is loaded from is scanned when the first verdict is wanted, because most openings never need one.
    """

    def __init__(self) -> None:
        self._set: set[_Key] = set()
        self._map_runs: dict[int, list[tuple[int, int]]] = {}
        self._halves: dict[int, set[int]] = {}
        self._unread: list[tuple[bytes, bool]] = []

    def load(self, document: bytes, updates: Iterable[bytes]) -> None:
        """Take what the store holds: a merged document (or b"") and numbered updates, judged before."""
        if document:
            self._unread.append((document, True))
        self._unread.extend((update, False) for update in updates)

    def admit(self, scan: Scan, *, is_document: bool = False) -> None:
        """Judge a numbered update against what is here, then take it; raises `EntryRefused` and takes nothing.

        A merged document is many entries at once: it may repeat what is here, and its keys may meet others that came
        first. Refusing all of it for one key would lose the rest, so the document's own order decides for that key.
        Raises `StoreDamaged` if what was loaded does not pass the guard: that is not this update's fault.
        """
        self._read()
        fresh = self._fresh(scan)
        if not is_document:
            self._check_keys(fresh)
        new_items = {item for _, item in fresh}
        if any(item in new_items or self._is_map(*item) for item in scan.inserts):
            raise EntryRefused("The update hangs text on a slot.")
        if any(clock in self._halves.get(writer, ()) for writer, clock in scan.cuts):
            raise EntryRefused("The update cuts a character in two.")
        self._take(scan, fresh)

    def _read(self) -> None:
        unread, self._unread = self._unread, []
        for data, is_document in unread:
            try:
                scan = scan_document(data) if is_document else scan_update(data)
            except EntryRefused as error:
                raise StoreDamaged(f"What is stored of the task does not pass the guard: {error.sentence}") from None
            self._take(scan, self._fresh(scan))

    def _fresh(self, scan: Scan) -> list[tuple[_Key, _ItemId]]:
        """Return (key, item) of the map items that are not here yet."""
        return [
            ((root, key), (writer, clock)) for root, key, writer, clock in scan.sets if not self._is_map(writer, clock)
        ]

    def _check_keys(self, fresh: list[tuple[_Key, _ItemId]]) -> None:
        keys = {key for key, _ in fresh}
        if len(keys) < len(fresh) or not keys.isdisjoint(self._set):
            raise EntryRefused("The update overwrites a key of a slot.")

    def _is_map(self, writer: int, clock: int) -> bool:
        runs = self._map_runs.get(writer)
        at = bisect_right(runs, clock, key=_first) - 1 if runs else -1
        return runs is not None and at >= 0 and clock < runs[at][1]

    def _take(self, scan: Scan, fresh: list[tuple[_Key, _ItemId]]) -> None:
        for key, (writer, clock) in fresh:
            self._set.add(key)
            runs = self._map_runs.setdefault(writer, [])
            if runs and runs[-1][1] == clock:
                runs[-1] = (runs[-1][0], clock + 1)
            else:
                runs.append((clock, clock + 1))
        for writer, clock in scan.halves:
            self._halves.setdefault(writer, set()).add(clock)
        for writer, clock, length in scan.deletes:
            halves = self._halves.get(writer)
            if halves:
                self._halves[writer] = {half for half in halves if not clock <= half < clock + length}


def _first(run: tuple[int, int]) -> int:
    return run[0]
