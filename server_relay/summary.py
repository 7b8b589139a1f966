"""What a relay can say of a task without its document: kept up to date record by record, for the listing."""

from collections.abc import Iterable

from msgspec.structs import replace

from server_relay.records import StepRow, TaskSummary
from sync_core.completion import GivenCompletion, WriterTables, is_edited
from sync_core.entry import CallIntent, CallOutcome, Completion, Entry, EntryKind, Plan, VersionDecision, decode_record
from sync_core.rulings import Doubted, Settled

__all__ = ["TaskSteps"]

_LISTED = frozenset({EntryKind.CALL, EntryKind.PLAN, EntryKind.VERSION, EntryKind.COMPLETION, EntryKind.RULING})


class TaskSteps:
    """The steps and the summary of one task. `changed` and `given` hold the steps and completions that the mailbox does
    not have yet."""

    def __init__(
        self, summary: TaskSummary, steps: Iterable[StepRow], completions: Iterable[GivenCompletion] = ()
    ) -> None:
        self.summary = summary
        self.given: list[GivenCompletion] = []
        self._completions = list(completions)
        self.changed: dict[tuple[int, str], StepRow] = {}
        self._steps = {(step.version, step.step): step for step in steps}

    def apply(self, entry: Entry) -> None:
        """Take note of a stored entry that passed the guard; entries of other kinds say nothing."""
        if entry.kind not in _LISTED:
            return
        record = decode_record(entry.kind, entry.payload)
        match record:
            case CallIntent() | Doubted():
                step = self._step(record.version, record.step)
                if not step.done and record.attempt not in step.open:
                    self._put(step, replace(step, open=(*step.open, record.attempt)))
            case CallOutcome() if not record.unsure:
                self._end(record.version, record.step, record.attempt, record.ok)
            case Settled():
                self._end(record.version, record.step, record.attempt, record.happened)
            case Plan():
                step = self._step(record.version, record.step)
                self._put(step, replace(step, planned=True, tool=record.tool, requires=record.requires))
            case VersionDecision():
                self.summary = replace(self.summary, version=max(self.summary.version, record.version))
            case Completion():
                given = GivenCompletion(record, entry.device, entry.writer, entry.writer_seq)
                self.given.append(given)
                self._completions.append(given)
            case _:
                pass

    @property
    def has_completions(self) -> bool:
        """Whether any version was ever completed."""
        return bool(self._completions)

    def judge(self, tables: WriterTables) -> None:
        """Bring up to date whether the standing version is completed, and whether it was edited meanwhile."""
        version = self.summary.version
        completed = any(given.record.version == version for given in self._completions)
        edited = completed and is_edited(self._completions, version, tables)
        self.summary = replace(self.summary, completed=completed, edited=edited)

    def _end(self, version: int, name: str, attempt: str, done: bool) -> None:
        """An attempt has an outcome; one of which nobody knows how it ended has none before it is settled."""
        step = self._step(version, name)
        left = tuple(other for other in step.open if other != attempt)
        self._put(step, replace(step, open=left, done=step.done or done))

    def _step(self, version: int, step: str) -> StepRow:
        return self._steps.get((version, step)) or StepRow(version, step)

    def _put(self, before: StepRow, after: StepRow) -> None:
        self._steps[after.version, after.step] = self.changed[after.version, after.step] = after
        self.summary = replace(
            self.summary,
            calls_done=self.summary.calls_done + after.done - before.done,
            calls_in_doubt=self.summary.calls_in_doubt + _in_doubt(after) - _in_doubt(before),
        )


def _in_doubt(step: StepRow) -> bool:
    return bool(step.open) and not step.done
