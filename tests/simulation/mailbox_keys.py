"""The authority's rows in `MailboxState`: keys of each subject, grants and approvals of each task, as plain dicts."""

from collections.abc import Mapping

from msgspec.structs import replace

from server_relay.effects import KeysRead, ReadKeys
from server_relay.key_records import ApprovalRow, GrantRow, KeyRow, KeyState, SubjectRow, forgotten, later_era
from server_relay.records import EndKeys, PutKeys

__all__ = ["MailboxKeys"]

_Task = tuple[str, str]


class MailboxKeys:
    """What `PutKeys` and `LowerBarrier` write, and `ReadKeys` reads."""

    def __init__(self) -> None:
        self._subjects: dict[str, SubjectRow] = {}
        self._rows: dict[tuple[str, str], KeyRow] = {}
        self._ended_ms: dict[tuple[str, str], int] = {}
        self._grants: dict[tuple[_Task, str], GrantRow] = {}
        self._approvals: dict[tuple[_Task, int, str, str, str, str], ApprovalRow] = {}

    def copy(self) -> "MailboxKeys":
        """Return an independent copy."""
        other = MailboxKeys()
        other._subjects = dict(self._subjects)
        other._rows = dict(self._rows)
        other._ended_ms = dict(self._ended_ms)
        other._grants = dict(self._grants)
        other._approvals = dict(self._approvals)
        return other

    def put(self, write: PutKeys) -> None:
        """Put rows."""
        task = (write.subject, write.task)
        if write.subject_row is not None:
            self._subjects[write.subject] = write.subject_row
        self._rows |= {(write.subject, row.place): row for row in write.rows}
        for row in write.rows:
            if row.state is KeyState.RUNNING:
                self._ended_ms.pop((write.subject, row.place), None)
        self._grants |= {(task, grant.attempt): grant for grant in write.grants}
        for said in write.approvals:
            self._approvals[task, said.version, said.step, said.tool, said.digest, said.principal] = said

    def purge(self, task: _Task) -> None:
        """Forget the grants and approvals of a task; the keys are the subject's."""
        self._grants = {key: grant for key, grant in self._grants.items() if key[0] != task}
        self._approvals = {key: row for key, row in self._approvals.items() if key[0] != task}

    def end(self, write: EndKeys) -> None:
        """Note since when the keys of a task are kept for their time."""
        for (subject, place), row in self._rows.items():
            if (subject, row.task) == (write.subject, write.task) and (row.entity or not write.entities_only):
                self._ended_ms[subject, place] = write.at_ms

    def pass_time(self, before_ms: int, cleaned: Mapping[_Task, bool]) -> None:
        """Forget the keys of tasks that ended before; `cleaned` says of each task with a log whether it is."""
        for key in [key for key, ended_ms in self._ended_ms.items() if ended_ms < before_ms]:
            before = self._rows[key]
            task = (key[0], before.task)
            if task in cleaned and not (cleaned[task] and before.entity):
                continue
            after = forgotten(before)
            if after is None:
                del self._rows[key], self._ended_ms[key]
            elif after.state is KeyState.FREE:
                self._rows[key] = after
                del self._ended_ms[key]

    def lower(self, subject: str) -> None:
        """Lower a subject's barrier."""
        if subject in self._subjects:
            self._subjects[subject] = replace(self._subjects[subject], barrier=0)

    def barrier_is_up(self, subject: str) -> bool:
        """Return whether a subject's barrier is up."""
        return self._subjects.get(subject, SubjectRow()).barrier > 0

    def raise_all(self, subjects: set[str], now_ms: int) -> None:
        """Begin a new era behind its barrier in every subject, these and all that have a row."""
        for subject in subjects | set(self._subjects):
            era = later_era(self._subjects.get(subject, SubjectRow()).era, now_ms)
            self._subjects[subject] = SubjectRow(era, era)

    def read(self, read: ReadKeys) -> KeysRead:
        """Return the answer to a read."""
        task = (read.subject, read.task)
        grants = [self._grants[task, attempt] for attempt in read.attempts if (task, attempt) in self._grants]
        keys = [(read.subject, place) for place in (*read.places, *(grant.place for grant in grants))]
        rows = {key: self._rows[key] for key in keys if key in self._rows}
        for tool, label in read.labels:
            for (subject, place), row in sorted(self._rows.items()):
                if label and (subject, row.tool, row.label) == (read.subject, tool, label):
                    rows[subject, place] = row
        approvals = tuple(
            row
            for version, step, tool, digest in read.calls
            for key, row in sorted(self._approvals.items())
            if key[:5] == (task, version, step, tool, digest)
        )
        subject_row = self._subjects.get(read.subject, SubjectRow())
        return KeysRead(read, subject_row, tuple(rows.values()), tuple(grants), approvals)
