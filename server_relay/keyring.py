"""The rows of keys that are in use, of all subjects, and the leases of those that are running.

Two tasks of one subject may claim the key of one entity in the same turn. So a row is read from the mailbox once, and
what a turn made of it is what the next decision sees, whatever a read that was asked for before still brings. Rows go
when nothing has used them for a while, and all at once when a commit failed: what is durable is read again.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from server_relay.effects import KeysRead, ReadKeys
from server_relay.key_records import ERA_MAX, GrantRow, KeyRow, KeyState, SubjectRow, later_era

__all__ = ["Keyring", "Lease"]

_KEEP_MS = 10_000

_Place = tuple[str, str]


class Lease:
    """How long an attempt keeps its key: while connection `conn` is open, then until `ends_ms` (relay time).

    `called` says that its end was noticed and the ruling is under way.
    """

    __slots__ = ("called", "conn", "ends_ms", "reason", "task")

    def __init__(self, task: str, conn: int, ends_ms: int | None) -> None:
        self.task = task
        self.conn = conn
        self.ends_ms = ends_ms
        self.reason = "Its device has been away for too long."
        self.called = False


class Keyring:
    """All rows in use. `lease_ms` is how long a lease outlives its connection, or the relay's start."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._start_ms: int | None = None
        self._subjects: dict[str, SubjectRow] = {}
        self._rows: dict[_Place, KeyRow | None] = {}
        self._grants: dict[tuple[str, str, str], GrantRow | None] = {}
        self._used_ms: dict[_Place, int] = {}
        self._leases: dict[_Place, Lease] = {}
        self._of_conn: dict[int, set[_Place]] = {}

    # --- rows --------------------------------------------------------------------------------------------------------

    def missing(self, wanted: ReadKeys) -> ReadKeys | None:
        """Return the read of what is not here of these places and attempts, with the labels and calls as they are; None
        if nothing is left to be read."""
        subject = wanted.subject
        places = tuple(place for place in wanted.places if (subject, place) not in self._rows)
        attempts = tuple(attempt for attempt in wanted.attempts if (subject, wanted.task, attempt) not in self._grants)
        if not places and not attempts and not wanted.labels and not wanted.calls and subject in self._subjects:
            return None
        return ReadKeys(subject, wanted.task, places, wanted.labels, attempts, wanted.calls)

    def take(self, read: KeysRead, now_ms: int) -> None:
        """Take over what was read, where nothing newer is here."""
        asked = read.asked
        subject = asked.subject
        self._subjects.setdefault(subject, read.subject_row)
        for row in read.rows:
            self._rows.setdefault((subject, row.place), row)
        grants = {grant.attempt: grant for grant in read.grants}
        for attempt in asked.attempts:
            self._grants.setdefault((subject, asked.task, attempt), grants.get(attempt))
        for place in {*asked.places, *(row.place for row in read.rows)}:
            row_now = self._rows.setdefault((subject, place), None)
            self._used_ms[subject, place] = now_ms
            if row_now is not None and row_now.state is KeyState.RUNNING:
                self.lease(subject, row_now, now_ms)

    def subject(self, subject: str) -> SubjectRow:
        """Return a subject's row, which was read before."""
        return self._subjects[subject]

    def row(self, subject: str, place: str, now_ms: int) -> KeyRow | None:
        """Return a key's row, which was read before; None if there is none."""
        self._used_ms[subject, place] = now_ms
        return self._rows[subject, place]

    def grant(self, subject: str, task: str, attempt: str) -> GrantRow | None:
        """Return an attempt's grant; None if there is none, or it was not read."""
        return self._grants.get((subject, task, attempt))

    def labelled(self, subject: str, tool: str, label: str) -> Iterator[KeyRow]:
        """Return the rows here that bear this label; read it before."""
        for (owner, _), row in list(self._rows.items()):
            if row is not None and label and (owner, row.tool, row.label) == (subject, tool, label):
                yield row

    def put_subject(self, subject: str, row: SubjectRow) -> None:
        """Put a subject's row."""
        self._subjects[subject] = row

    def put_row(self, subject: str, row: KeyRow, now_ms: int) -> None:
        """Put a row that was decided on; one that runs no more has no lease."""
        key = (subject, row.place)
        self._rows[key] = row
        self._used_ms[key] = now_ms
        if row.state is not KeyState.RUNNING:
            self.drop_lease(subject, row.place)

    def put_grant(self, subject: str, task: str, grant: GrantRow) -> None:
        """Put a grant."""
        self._grants[subject, task, grant.attempt] = grant

    def raise_barrier(self, subject: str, now_ms: int) -> SubjectRow:
        """Begin a new era behind its barrier, unless no key was opened in the one that the last loss began."""
        before = self._subjects[subject]
        if before.barrier < before.era or before.opened:
            era = later_era(before.era, now_ms)
            self._subjects[subject] = SubjectRow(era, era)
        return self._subjects[subject]

    def outrun(self, subject: str, token: int) -> SubjectRow | None:
        """Begin an era above that of a token which a lost log gave out; None if the present one is."""
        before = self._subjects[subject]
        era = min((token >> 32) + 1, ERA_MAX)
        if era <= before.era:
            return None
        self._subjects[subject] = replace(before, era=era)
        return self._subjects[subject]

    def forget(self) -> None:
        """Forget all rows: a commit failed. Leases stay: one whose grant was not stored is of a row that rests."""
        self._subjects.clear()
        self._rows.clear()
        self._grants.clear()
        self._used_ms.clear()
        for lease in self._leases.values():
            lease.called = False

    def forget_idle(self, now_ms: int) -> None:
        """Forget rows that nothing used for a while. Nothing waits for a read when this is called."""
        idle = [key for key, used_ms in self._used_ms.items() if now_ms - used_ms >= _KEEP_MS]
        for key in idle:
            del self._used_ms[key]
            self._rows.pop(key, None)
        self._grants = {
            key: grant
            for key, grant in self._grants.items()
            if grant is not None and (key[0], grant.place) in self._rows
        }
        if not self._rows:
            self._subjects.clear()

    # --- leases ------------------------------------------------------------------------------------------------------

    def lease(self, subject: str, row: KeyRow, now_ms: int) -> Lease:
        """Return the lease of a row that runs; one of before the relay's start lasts from there."""
        key = (subject, row.place)
        lease = self._leases.get(key)
        if lease is None:
            start_ms = now_ms if self._start_ms is None else self._start_ms
            lease = self._leases[key] = Lease(row.task, 0, start_ms + self._lease_ms)
        return lease

    def give_lease(self, subject: str, row: KeyRow, conn: int) -> None:
        """Let the lease of a row last while this connection is open."""
        key = (subject, row.place)
        self.drop_lease(subject, row.place)
        self._leases[key] = Lease(row.task, conn, None)
        self._of_conn.setdefault(conn, set()).add(key)

    def started(self, now_ms: int) -> None:
        """The relay handles its first events."""
        if self._start_ms is None:
            self._start_ms = now_ms

    def left(self, conn: int, now_ms: int) -> None:
        """A connection is gone."""
        for key in self._of_conn.pop(conn, ()):
            lease = self._leases[key]
            lease.conn = 0
            lease.ends_ms = now_ms + self._lease_ms

    def over(self, now_ms: int) -> list[tuple[str, str, str]]:
        """Return (subject, task, place) of each lease that is newly found to be over."""
        found = []
        for (subject, place), lease in self._leases.items():
            if lease.ends_ms is not None and lease.ends_ms <= now_ms and not lease.called:
                lease.called = True
                found.append((subject, lease.task, place))
        return found

    def drop_lease(self, subject: str, place: str) -> None:
        """Forget the lease of a row that does not run, or not with that lease."""
        lease = self._leases.pop((subject, place), None)
        if lease is not None and lease.conn:
            places = self._of_conn[lease.conn]
            places.discard((subject, place))
            if not places:
                del self._of_conn[lease.conn]
