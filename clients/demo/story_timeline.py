"""Makes the timeline of a run from its evidence.

An entry is drawn from when its writer's file says that it was written. The files hold no time of its arrival; it is
drawn at the earliest moment that they allow: in the order of the relay's log, and not before the device that sent or
received it had opened its link.
"""

from collections.abc import Iterable, Sequence

import msgspec

from clients.demo.conflict import is_conflict
from clients.demo.evidence import Evidence
from clients.demo.processes import ProcessLife
from clients.demo.replayed import Step
from clients.demo.story import DESKTOP, PHONE, RELAY, TASK
from clients.demo.timeline import Mark, MarkKind, Post, PostKind, Span, SpanKind, Timeline
from clients.demo.transcript import Line, LineKind
from sync_core.document.slots import CandidateStatus, Slot
from sync_core.entry import CallIntent, CallOutcome, EntryKind, decode_record

__all__ = ["timeline_of"]

_ENDS = (PHONE, DESKTOP)
_TEXTS = {
    LineKind.QUESTION: (MarkKind.QUESTION, "asks: {}"),
    LineKind.ANSWER: (MarkKind.ANSWER, "the user answers: {}"),
    LineKind.REUSED: (MarkKind.REUSED, "{}: recorded result, not run"),
    LineKind.CONFLICT: (MarkKind.CONFLICT, "conflict: {}"),
}


def timeline_of(evidence: Evidence, lives: Sequence[ProcessLife]) -> Timeline:
    """Return the timeline of a run: `lives` are its processes as the parent saw them start and end."""
    spans = tuple(span for life in lives for span in _spans(life, evidence.transcripts.get(life.name, ())))
    return Timeline(
        title=f"{TASK}: from a killed phone to a desktop",
        subtitle="Drawn from the SQLite files, the execution log and the transcripts of one run. Time runs downwards.",
        lanes=(PHONE, RELAY, DESKTOP),
        spans=spans,
        posts=_posts(evidence, spans),
        marks=(*_life_marks(lives), *_execution_marks(evidence), *_transcript_marks(evidence)),
    )


# --- processes --------------------------------------------------------------------------------------------------------


def _spans(life: ProcessLife, lines: Sequence[Line]) -> Iterable[Span]:
    """Cut a process's life where its link went down or up."""
    kind, since = SpanKind.ONLINE if life.name == RELAY else SpanKind.STARTING, life.started_ms
    for line in lines:
        turned = {LineKind.OFFLINE: SpanKind.OFFLINE, LineKind.ONLINE: SpanKind.ONLINE}.get(line.kind)
        if line.pid == life.pid and turned not in (None, kind):
            yield Span(life.name, kind, since, line.at_ms)
            kind, since = turned, line.at_ms
    yield Span(life.name, kind, since, life.ended_ms)


def _life_marks(lives: Sequence[ProcessLife]) -> Iterable[Mark]:
    for life in lives:
        if life.name != RELAY:
            yield Mark(life.name, MarkKind.STARTED, life.started_ms, f"process {life.pid} starts")
            kind = MarkKind.KILLED if life.killed else MarkKind.STOPPED
            text = f"SIGKILL: process {life.pid} is gone" if life.killed else f"process {life.pid} ends"
            yield Mark(life.name, kind, life.ended_ms, text)


def _execution_marks(evidence: Evidence) -> Iterable[Mark]:
    for execution in evidence.executions:
        yield Mark(execution.device, MarkKind.RAN, execution.at_ms, f"{execution.tool} runs")


def _transcript_marks(evidence: Evidence) -> Iterable[Mark]:
    for device, lines in evidence.transcripts.items():
        was_offline = False
        for line in lines:
            if line.kind in _TEXTS:
                kind, text = _TEXTS[line.kind]
                yield Mark(device, kind, line.at_ms, text.format(line.text or " or ".join(line.values)))
            elif line.kind is LineKind.OFFLINE:
                yield Mark(device, MarkKind.OFFLINE, line.at_ms, "link down")
                was_offline = True
            elif line.kind is LineKind.ONLINE and was_offline:
                yield Mark(device, MarkKind.ONLINE, line.at_ms, "link up")
                was_offline = False


# --- entries ----------------------------------------------------------------------------------------------------------


class _Writes(msgspec.Struct, frozen=True):
    """Which slot writes competed in a conflict, over the whole log."""

    competing: frozenset[str]

    def kind_of(self, step: Step) -> PostKind:
        """Return why the entry's arrows are coloured."""
        changed = step.slots()
        if any(is_conflict(before) and not is_conflict(after) for _, before, after in changed):
            return PostKind.RESOLVING
        made = {write for _, before, after in changed for write in after.token - (before.token if before else set())}
        return PostKind.COMPETING if made & self.competing else PostKind.PLAIN


def _posts(evidence: Evidence, spans: Sequence[Span]) -> tuple[Post, ...]:
    steps = evidence.steps[RELAY]
    conflicted = [after for step in steps for _, _, after in step.slots() if is_conflict(after)]
    writes = _Writes(frozenset(candidate.write_id for slot in conflicted for candidate in slot.candidates))
    posts: list[Post] = []
    stored_ms = 0
    for step in steps:
        entry = step.entry
        stored_ms = max(stored_ms, _linked_from(spans, entry.device, entry.at_ms))
        readers = [device for device in _ENDS if device != entry.device and _holds(evidence, device, step)]
        arrivals = tuple((device, _linked_from(spans, device, stored_ms)) for device in readers)
        place = entry.relay_seq or 0
        posts.append(Post(entry.device, _label(step), writes.kind_of(step), entry.at_ms, stored_ms, place, arrivals))
    return tuple(posts)


def _holds(evidence: Evidence, device: str, step: Step) -> bool:
    return any(
        (entry.stream, entry.writer, entry.writer_seq) == (step.entry.stream, step.entry.writer, step.entry.writer_seq)
        for entry in evidence.stored[device].entries
    )


def _linked_from(spans: Sequence[Span], device: str, at_ms: int) -> int:
    """The first moment from `at_ms` on at which the device's link was up."""
    online = [span for span in spans if span.lane == device and span.kind is SpanKind.ONLINE and span.to_ms >= at_ms]
    return max(at_ms, min((span.from_ms for span in online), default=at_ms))


def _label(step: Step) -> str:
    """Say in a few words what an entry did."""
    entry = step.entry
    if entry.kind is EntryKind.CALL:
        record = decode_record(entry.kind, entry.payload)
        if isinstance(record, CallIntent):
            return f"call {record.step}: about to start"
        if isinstance(record, CallOutcome):
            return f"call {record.step}: {'result' if record.ok else 'failure'} recorded"
    if entry.kind is EntryKind.VERSION:
        return f"business version {step.after.version}"
    if entry.kind is not EntryKind.UPDATE:
        return f"{entry.kind.value} recorded"
    changed = [_slot_label(name, before, after) for name, before, after in step.slots()]
    return ", ".join([*dict.fromkeys(changed), *(f"note {name} written" for name in step.notes())]) or "update"


def _slot_label(name: str, before: Slot | None, after: Slot) -> str:
    if before is None or before.definition != after.definition:
        return "slot declared"
    made = after.token - before.token
    written = [candidate for candidate in (*after.candidates, *after.proposals) if candidate.write_id in made]
    if not written:
        return f"{name} cleared"
    if written[0].status is CandidateStatus.PROPOSED:
        return "value proposed"
    verb = "resolved" if is_conflict(before) else "confirmed"
    return f"{name} {verb}: {written[0].value}"
