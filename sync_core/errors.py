"""The tree of errors: each has a code, a sentence that a user understands, a hint of what to do next.

    SegueError
    ├── TaskNotFound 404        ├── NotSyncedYet 503      ├── VersionMismatch 409
    ├── AccessFixed 400         ├── ReadOnly 403          ├── PreconditionFailed 409
    ├── BaseUnknown 409         ├── KeyReused 409         ├── InDoubt 409
    ├── NeedsAuthority 403      ├── NeedsApproval 403     ├── NeedsCapability 409
    ├── ValueRefused 422        ├── TooLarge 413          ├── UnsentWork 409
    ├── ResultUnavailable 503   ├── StoreInUse 423        ├── StoreFull 507
    ├── StoreDamaged 500        ├── StoreUnusable 409     ├── SyncTimeout 504 (also TimeoutError)
    ├── Refused 403             ├── Diverged 500          ├── WriterReused 409
    ├── EntryRefused 422        ├── ProtocolError 400     ├── Closed 410
    ├── HistoryTrimmed 410      ├── AlreadyDone 409       ├── RunningElsewhere 409
    ├── KeyRetired 409          ├── NeedsKey 422          ├── DidNotHappen 409
    ├── HandedOver 409          ├── Purged 410            └── Unforeseen 500

Neither a sentence nor a hint ever holds the content of a slot, a note or a token, with two stated exceptions:
`PreconditionFailed` carries the current text in a field, because its caller must merge with it, and `ValueRefused`
names the part of a value that JSON cannot hold by its keys, unless the slot is secret.
"""

from typing import ClassVar

__all__ = [
    "AccessFixed",
    "AlreadyDone",
    "BaseUnknown",
    "Closed",
    "DidNotHappen",
    "Diverged",
    "EntryRefused",
    "HandedOver",
    "HistoryTrimmed",
    "InDoubt",
    "KeyRetired",
    "KeyReused",
    "NeedsApproval",
    "NeedsAuthority",
    "NeedsCapability",
    "NeedsKey",
    "NotSyncedYet",
    "PreconditionFailed",
    "ProtocolError",
    "Purged",
    "ReadOnly",
    "Refused",
    "ResultUnavailable",
    "RunningElsewhere",
    "SegueError",
    "StoreDamaged",
    "StoreFull",
    "StoreInUse",
    "StoreUnusable",
    "SyncTimeout",
    "TaskNotFound",
    "TooLarge",
    "Unforeseen",
    "UnsentWork",
    "ValueRefused",
    "VersionMismatch",
    "WriterReused",
]


class SegueError(Exception):
    """Base of all errors of Segue.

    `code` is stable and for programs, `status` is the HTTP status of the same meaning, `sentence` says what happened,
    `hint` says what to do next.
    """

    code: ClassVar[str] = "segue_error"
    status: ClassVar[int] = 500
    default_hint: ClassVar[str] = ""

    def __init__(self, sentence: str, *, hint: str | None = None) -> None:
        self.sentence = sentence
        self.hint = self.default_hint if hint is None else hint
        super().__init__(sentence)

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".strip()

    def as_json(self) -> dict[str, str | int]:
        """Return the error as a JSON object: code, status, sentence, hint."""
        return {"code": self.code, "status": self.status, "sentence": self.sentence, "hint": self.hint}


class TaskNotFound(SegueError):
    """Neither this device nor the relay knows the task."""

    code = "task_not_found"
    status = 404
    default_hint = "Check the key, or open it with create=True."


class NotSyncedYet(SegueError):
    """The task may exist elsewhere, but this device has not read it and has no link."""

    code = "not_synced_yet"
    status = 503
    default_hint = "Connect once to the relay, or open it with create=True to start it here."


class VersionMismatch(SegueError):
    """The handle's business version is not the task's."""

    code = "version_mismatch"
    status = 409
    default_hint = "Open the task again to work on the version that stands."


class AccessFixed(SegueError):
    """Access was fixed when the handle was opened."""

    code = "access_fixed"
    status = 400
    default_hint = "Open a new session of the task with the access you need."


class ReadOnly(SegueError):
    """A write was asked of a handle or a role that may only read."""

    code = "read_only"
    status = 403
    default_hint = "Open a new session with access='write'."


class PreconditionFailed(SegueError):
    """A note was written from a text that is no longer current; the newer text is intact and is inside."""

    code = "memory_precondition_failed_error"
    status = 409
    default_hint = "Merge with the current text, then write again with its content_sha256."

    def __init__(self, sentence: str, *, current_text: str, current_sha256: str, hint: str | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.current_text = current_text
        self.current_sha256 = current_sha256


class BaseUnknown(SegueError):
    """A merge names a base that this device never read, or read too long ago."""

    code = "base_unknown"
    status = 409
    default_hint = "Read the note again and merge into what you read."


class KeyReused(SegueError):
    """A step that is recorded with other arguments was called; both digests are shown."""

    code = "key_reused"
    status = 409
    default_hint = "Use another step for another call, or the recorded arguments."

    def __init__(self, sentence: str, *, recorded_digest: str, given_digest: str, hint: str | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.recorded_digest = recorded_digest
        self.given_digest = given_digest


class InDoubt(SegueError):
    """A call was started and nobody knows whether it happened."""

    code = "in_doubt"
    status = 409
    default_hint = "Find out whether it happened and settle it; it is never tried again by itself."


class RunningElsewhere(SegueError):
    """Another attempt has the key right now; whether it comes to anything is known once it ends."""

    code = "running_elsewhere"
    status = 409
    default_hint = "Wait for the other device; its result is shared."


class AlreadyDone(SegueError):
    """The business entity's key is done, by another call: nothing was run. The recorded result is inside.

    `result_text` is that result as canonical JSON, None if it is in a blob; `task` and `step` are whose call it was.
    """

    code = "already_done"
    status = 409
    default_hint = "Take the recorded result; undo that call first if it is to be done again."

    def __init__(
        self, sentence: str, *, task: str, step: str, result_text: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(sentence, hint=hint)
        self.task = task
        self.step = step
        self.result_text = result_text


class KeyRetired(SegueError):
    """The call did not happen, but nothing outside would stop a late first attempt, so its key is used up."""

    code = "key_retired"
    status = 409
    default_hint = "Decide a new business version, or declare fenced=True or keyed=True if the outside system checks."


class NeedsKey(SegueError):
    """A tool that cannot be undone has no parameter for the idempotency key, so it is never claimed."""

    code = "needs_key"
    status = 422
    default_hint = "Give it a keyword idempotency_key and pass that on to the outside system."


class DidNotHappen(SegueError):
    """Raised by a tool that cannot be undone, when it knows that nothing happened: its key is free again."""

    code = "did_not_happen"
    status = 409


class NeedsAuthority(SegueError):
    """What cannot be undone needs the authority, and none is reachable."""

    code = "needs_authority"
    status = 403
    default_hint = "Declare effect=Effect.READ or Effect.IDEMPOTENT if it is that; else connect an authority."


class NeedsApproval(SegueError):
    """The call waits for a person's approval; `request` is the id that `task.approve` and `task.reject` take."""

    code = "needs_approval"
    status = 403
    default_hint = "Somebody with the role approve, and not the caller, approves it; then call the step again."

    def __init__(self, sentence: str, *, request: str = "", hint: str | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.request = request


class HandedOver(SegueError):
    """This business version was handed over already; the text stands and is read-only for everybody."""

    code = "handed_over"
    status = 409
    default_hint = "Read task.handover; a new business version may be handed over again."


class Purged(SegueError):
    """The task was deleted everywhere on purpose, or expired; what was not sent is kept aside on this device."""

    code = "purged"
    status = 410
    default_hint = "Open it with create=True and a higher version to begin it anew."


class NeedsCapability(SegueError):
    """The tool needs what this endpoint does not have; the step is planned for one that has it."""

    code = "needs_capability"
    status = 409
    default_hint = "Run the step on a device that has it; it is planned and waits."


class ValueRefused(SegueError):
    """A value, name or argument is outside what can be kept; the sentence names the field."""

    code = "value_refused"
    status = 422


class TooLarge(SegueError):
    """Something exceeds a bound; the sentence names the bound and its unit."""

    code = "too_large"
    status = 413


class UnsentWork(SegueError):
    """The task holds entries that the relay has not stored yet."""

    code = "unsent_work"
    status = 409
    default_hint = "Wait for synced(), then try again."


class ResultUnavailable(SegueError):
    """The call ran, but its result cannot be delivered here; that is not «never run»."""

    code = "result_unavailable"
    status = 503
    default_hint = "Connect a device that holds the result; a new step runs the tool again."


class StoreInUse(SegueError):
    """Another process has the store file open."""

    code = "store_in_use"
    status = 423
    default_hint = "Stop the other process, or give this one a file of its own."

    def __init__(self, sentence: str, *, owner_pid: int | None, hint: str | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.owner_pid = owner_pid


class StoreFull(SegueError):
    """The store reached its bound or the disk is full; nothing was damaged and nothing of the write was kept."""

    code = "store_full"
    status = 507
    default_hint = "Free space or raise store_bytes_max, then try again; no restart is needed."


class StoreDamaged(SegueError):
    """Rows of the store fail their checksum."""

    code = "store_damaged"
    status = 500
    default_hint = "Keep the file; open a fresh one and let the relay fill it."


class StoreUnusable(SegueError):
    """What lies at this path is not a store that this program, version and subject can use; it was not touched."""

    code = "store_unusable"
    status = 409
    default_hint = "Name another file for the store."


class SyncTimeout(SegueError, TimeoutError):
    """Not everything was stored and merged in time."""

    code = "sync_timeout"
    status = 504
    default_hint = "The work is safe on this device; look at status and try again."


class Refused(SegueError):
    """The relay refused this device."""

    code = "refused"
    status = 403


class Diverged(SegueError):
    """Two devices hold other content at the same place of the log, and a rebuild did not help."""

    code = "diverged"
    status = 500
    default_hint = "Keep both files and report it; nothing is hidden or overwritten."


class WriterReused(SegueError):
    """A writer's number came twice with other content: two live copies of one store."""

    code = "writer_reused"
    status = 409


class EntryRefused(SegueError):
    """The guard refuses an entry for what it is."""

    code = "entry_refused"
    status = 422


class ProtocolError(SegueError):
    """A frame is malformed or out of turn."""

    code = "protocol_error"
    status = 400


class Closed(SegueError):
    """The endpoint or handle was closed."""

    code = "closed"
    status = 410
    default_hint = "Open it again."


class HistoryTrimmed(SegueError):
    """The log was asked for a place that this file holds in merged form only; `earliest` is the first it can show."""

    code = "history_trimmed"
    status = 410
    default_hint = "Ask for a later place, or ask a device that still holds these entries one by one."

    def __init__(self, sentence: str, *, earliest: int, hint: str | None = None) -> None:
        super().__init__(sentence, hint=hint)
        self.earliest = earliest


class Unforeseen(SegueError):
    """Something failed inside Segue that nobody foresaw; the cause is attached."""

    code = "unforeseen"
    status = 500
    default_hint = "Nothing was lost. Please report it with the traceback."
