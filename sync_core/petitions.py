"""What an endpoint asks of the authority, and the answers: frames of the wire, which `wire` encodes.

Each is asked on one connection, answered exactly once, after the ruling that it led to is fsynced; a connection that
ends takes its questions with it. Asking again is safe: a claim is known by its `attempt`, everything else by what it
says.
"""

from enum import StrEnum

import msgspec

__all__ = [
    "AuthorityFrame",
    "Claim",
    "ClaimAnswer",
    "ClaimVerdict",
    "HoldSlot",
    "LiftBarrier",
    "Petition",
    "Ruled",
    "SettleDoubt",
]


class ClaimVerdict(StrEnum):
    """What became of a claim.

    `GRANTED`: run the tool now, once. `DONE`: it happened before, the result is inside. `RUNNING`: another attempt has
    the key. `IN_DOUBT`: nobody knows whether it happened. `KEY_REUSED`: the key is taken with other arguments.
    `NEEDS_APPROVAL`: no unused approval of another principal. `RETIRED`: it did not happen, and this tool cannot be
    fenced, so only a new business version may run. `VERSION`: not the business version that stands. `REFUSED`: the role
    or the relay does not allow it.
    """

    GRANTED = "granted"
    DONE = "done"
    RUNNING = "running"
    IN_DOUBT = "in_doubt"
    KEY_REUSED = "key_reused"
    NEEDS_APPROVAL = "needs_approval"
    RETIRED = "retired"
    VERSION = "version"
    REFUSED = "refused"


class _Frame(msgspec.Struct, frozen=True, array_like=True): ...


# --- endpoint to relay ------------------------------------------------------------------------------------------------


class Claim(_Frame, frozen=True, tag="claim"):
    """Ask for the right to make a call that cannot be undone. `attempt` is a fresh id of the device.

    `entity` is the business entity that the tool acts on, as canonical JSON, empty for the key of the call itself.
    `releases` are (tool, entity or label): the calls that this one undoes once it happened. `needs_approval`: a person
    must have approved exactly this. `checked`: the outside system checks the key or the fencing token.
    """

    task: str
    request: int
    version: int
    step: str
    tool: str
    arguments_digest: str
    attempt: str
    entity: str = ""
    releases: tuple[tuple[str, str], ...] = ()
    needs_approval: bool = False
    checked: bool = False


class SettleDoubt(_Frame, frozen=True, tag="settle"):
    """Say of a call in doubt whether it happened. `result` is canonical JSON; `by_probe`: the tool's probe found out.

    `entity` and `tool` name the key as in the claim.
    """

    task: str
    request: int
    version: int
    step: str
    tool: str
    happened: bool
    entity: str = ""
    result: str | None = None
    label: str = ""
    by_probe: bool = False


class HoldSlot(_Frame, frozen=True, tag="hold"):
    """Have the authority hold a slot, and, unless `value` is None, give it this value (canonical JSON)."""

    task: str
    request: int
    slot: str
    value: str | None = None


class LiftBarrier(_Frame, frozen=True, tag="lift"):
    """An admin says that nothing is missing any more: keys opened before the log was lost are granted again.

    It is of the whole subject; `task` is only the place where it was asked.
    """

    task: str
    request: int


# --- relay to endpoint ------------------------------------------------------------------------------------------------


class ClaimAnswer(_Frame, frozen=True, tag="claimed"):
    """Answer to a `Claim`. `key` is the idempotency key, the same for every attempt; `token` the fencing token.

    `task`, `step`, `version` and `device` of `holder_…` say whose call has the key where that is not this one.
    `result` (canonical JSON) or `blob` (SHA-256, a blob of `holder_task`) is the recorded result of a done call.
    """

    task: str
    request: int
    verdict: ClaimVerdict
    key: str
    token: int = 0
    holder_task: str = ""
    holder_step: str = ""
    holder_version: int = 0
    holder_device: str = ""
    recorded_digest: str = ""
    result: str | None = None
    blob: str | None = None
    reason: str = ""


class Ruled(_Frame, frozen=True, tag="ruled"):
    """Answer to the other petitions. `code` is empty if it was granted, else why not, with a sentence for the user."""

    task: str
    request: int
    code: str = ""
    sentence: str = ""


Petition = Claim | SettleDoubt | HoldSlot | LiftBarrier
AuthorityFrame = ClaimAnswer | Ruled
