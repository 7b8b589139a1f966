"""Rows of the authority: the keys of a subject, who was given them, and what guards a task."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

__all__ = [
    "EPOCH_BYTES",
    "ERA_MAX",
    "ApprovalRow",
    "GrantRow",
    "KeyRow",
    "KeyState",
    "SubjectRow",
    "TaskGuard",
    "forgotten",
    "later_era",
    "lost_guard",
]

EPOCH_BYTES = 8
ERA_MAX = 2**20
"""A fencing token, which is an era and a count of 32 bits, then stays within `RECORD_NUMBER_MAX`."""
_PAST_EPOCHS_MAX = 64
_HOUR_MS = 3_600_000


class KeyState(StrEnum):
    """Where a key stands. `RETIRED`: it did not happen; only a tool that the outside system checks gets the key."""

    FREE = "free"
    RUNNING = "running"
    IN_DOUBT = "in_doubt"
    DONE = "done"
    RETIRED = "retired"


class KeyRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key of the subject, which no task's end takes away.

    `place` names the row: the key itself for the key of a call, `keys.entity_place` for that of an entity, whose key
    changes with `generation`. `era` is that of the subject in which it was last opened: granted, settled by a verdict,
    or moved on. `token` is the highest fencing token that was given out. The other fields are of the last grant, or of
    who settled it without one; `result` is canonical JSON, `blob` the SHA-256 of a blob of `task`; `reason` says why
    it is in doubt.
    """

    place: str
    tool: str
    entity: str = ""
    generation: int = 0
    state: KeyState = KeyState.FREE
    era: int = 0
    token: int = 0
    task: str = ""
    step: str = ""
    version: int = 0
    digest: str = ""
    attempt: str = ""
    device: str = ""
    principal: str = ""
    checked: bool = False
    result: str | None = None
    blob: str | None = None
    label: str = ""
    reason: str = ""


def forgotten(row: KeyRow) -> KeyRow | None:
    """Return what stays of a key that was kept for its time after its task's end; None if nothing does.

    An entity's next generation is free, so that neither an idempotency key nor a fencing token is given out twice. A
    key that runs or is in doubt stays what it is.
    """
    if row.state in (KeyState.RUNNING, KeyState.IN_DOUBT):
        return row
    if not row.entity:
        return None
    if row.state is KeyState.FREE:
        return row
    return KeyRow(row.place, row.tool, row.entity, row.generation + 1, era=row.era, token=row.token, task=row.task)


class GrantRow(msgspec.Struct, frozen=True):
    """An attempt that was given a key, found by its task and its id. `happened` is None until that was settled.

    `releases` are (tool, entity or label): the keys that it frees once it happened.
    """

    attempt: str
    place: str
    key: str
    token: int
    device: str
    happened: bool | None = None
    releases: tuple[tuple[str, str], ...] = ()


class ApprovalRow(msgspec.Struct, frozen=True):
    """What a principal said of one call, in the task's ruling at `relay_seq`; `used` by the grant that it led to."""

    version: int
    step: str
    tool: str
    digest: str
    principal: str
    approved: bool
    relay_seq: int
    used: bool = False


class SubjectRow(msgspec.Struct, frozen=True):
    """A subject's keys. `era` counts the losses that were found; keys of an era below `barrier`, and entities without
    a row, are in doubt. `opened`: a key was opened in this era."""

    era: int = 1
    barrier: int = 0
    opened: bool = False


class TaskGuard(msgspec.Struct, frozen=True):
    """What guards a task.

    `opened_version` is the business version that was decided in the present epoch of its logs, 0 for none; its keys are
    granted. `lost`: one of its logs was lost, and nobody has said yet that nothing is missing; `past` are epochs of
    logs that are known to be lost. `held` are the slots that the authority holds, `running` the places of the keys that
    its attempts have.
    """

    opened_version: int = 0
    lost: bool = False
    past: tuple[bytes, ...] = ()
    held: tuple[str, ...] = ()
    running: tuple[str, ...] = ()


def later_era(era: int, now_ms: int) -> int:
    """Return the era that begins with a loss found at this relay time, in milliseconds.

    It is not below the hours of relay time: a store that is lost again and again, or restored twice from one backup,
    counts its losses from the same start, and its tokens and generations are to lie above those of every store before.
    """
    return min(max(era + 1, now_ms // _HOUR_MS), ERA_MAX)


def lost_guard(guard: TaskGuard, epochs: Iterable[bytes]) -> TaskGuard:
    """Return what guards a task once it is known that logs of these epochs were lost: no version of it is open."""
    past = tuple(dict.fromkeys((*guard.past, *epochs)))[-_PAST_EPOCHS_MAX:]
    return TaskGuard(0, True, past, guard.held, guard.running)
