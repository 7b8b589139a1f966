"""What the figures of a rehearsal are computed from: the two logs, the devices' files and the outside system's."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from clients.desktop.rehearse.logs import Ask, AskOutcome, Execution, content_sha256
from clients.desktop.rehearse.outside import Happened
from clients.desktop.rehearse.recording import RecordedCall
from clients.desktop.rehearse.stores import StoredRun
from sync_core.document.calls import Call, CallState
from sync_core.rulings import SettledBy
from sync_core.values import canonical

__all__ = ["ByCall", "CallEvidence", "Evidence", "grouped"]


class Evidence(msgspec.Struct, frozen=True):
    """A rehearsal's files as they were read. `stored` has, by run number, what each device's file holds."""

    stored: Mapping[int, Sequence[StoredRun]]
    executions: Sequence[Execution]
    asks: Sequence[Ask]
    happened: Sequence[Happened]


class CallEvidence(msgspec.Struct, frozen=True):
    """What became of one recorded call: its step, every execution, ask and effect, and what each device recorded.

    `standing`: the effect of the same business entity that stood when the run came to it. `depends`: it names what only
    a prevented call would have brought.
    """

    call: RecordedCall
    step: str
    files: Sequence[StoredRun]
    ran: Sequence[Execution]
    told: Sequence[Ask]
    happened: Sequence[Happened]
    standing: Happened | None = None
    depends: bool = False

    @property
    def records(self) -> list[Call | None]:
        """The step's record in each device's file."""
        return [each.calls.get(self.step) for each in self.files]

    @property
    def attempted(self) -> bool:
        """Whether any device's file holds more of it than that it was wanted."""
        return any(record.attempts for record in self.records if record)

    @property
    def outcomes(self) -> frozenset[AskOutcome]:
        """What came of asking for it."""
        return frozenset(ask.outcome for ask in self.told)

    @property
    def settled_by_probe(self) -> frozenset[str]:
        """The attempts that a probe settled, by what any device's file holds of the authority's rulings."""
        attempts = (attempt for record in self.records if record for attempt in record.attempts)
        return frozenset(each.attempt for each in attempts if each.settled_by is SettledBy.PROBE)

    @property
    def ran_again_within_one_ask(self) -> int:
        """Executions beyond the first one of each ask."""
        return len(self.ran) - len({execution.asked for execution in self.ran})

    @property
    def rightly_prevented(self) -> bool:
        """Whether an effect stood in its way, and whoever asked was given the result of that one.

        A large result is in a blob of the other call, which the answer does not hold.
        """
        if self.standing is None:
            return False
        prevented = {ask.sha256 for ask in self.told if ask.outcome is AskOutcome.PREVENTED}
        return prevented <= {content_sha256(self.standing.result), None}

    @property
    def told_right(self) -> bool:
        """Whether every answer was the recorded one."""
        expected = content_sha256(self.call.result)
        return all(ask.sha256 == expected for ask in self.told if ask.outcome is AskOutcome.ANSWERED)

    @property
    def known_everywhere(self) -> bool:
        """Whether somebody was answered, everybody rightly, and every device's file holds the recorded result."""
        recorded = all(record is not None and _right(record, self.call) for record in self.records)
        return recorded and AskOutcome.ANSWERED in self.outcomes and self.told_right


T = TypeVar("T", Ask, Execution, Happened)
ByCall = Mapping[tuple[int, int], Sequence[T]]
"""By run and number of the call."""


def grouped(found: Sequence[T]) -> ByCall[T]:
    """Return what was found by run and number of the call; what was of no call is left out."""
    by_call: dict[tuple[int, int], list[T]] = defaultdict(list)
    for each in found:
        if each.run is not None and each.step is not None:
            by_call[each.run, each.step].append(each)
    return by_call


def _right(record: Call, call: RecordedCall) -> bool:
    """A large result is a blob, whose name is the hash of its bytes."""
    shown = record.shown
    if record.state is not CallState.DONE or shown is None:
        return False
    expected = canonical(call.result)
    if shown.blob is not None:
        return shown.blob == hashlib.sha256(expected.encode()).hexdigest()
    return shown.result == expected
