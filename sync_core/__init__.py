"""Segue: carries an AI agent's half-finished task from one device to the next.

What a program uses is here; `sync_core.testing` helps to test tools of your own. Names are imported when they are first
used: the relay shares this package's plain values and must not load the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sync_core.document.approvals import ApprovalState, RequestedApproval
    from sync_core.document.calls import Attempt, CallState, PlannedCall
    from sync_core.document.handover import HandOverText
    from sync_core.document.notes import MergedNote, Note
    from sync_core.document.slots import Candidate, CandidateStatus, Slot, SlotDefinition, SlotState
    from sync_core.document.view import CompletionState, TaskCompletion, TaskView
    from sync_core.endpoint.brief import Brief
    from sync_core.endpoint.changes import Changes
    from sync_core.endpoint.endpoint import Endpoint
    from sync_core.endpoint.explain import Explanation
    from sync_core.endpoint.gauges import Gauge, Latency, Level
    from sync_core.endpoint.history import Message
    from sync_core.endpoint.idempotency import IdempotencyReport, NotIdempotent, verify_idempotent
    from sync_core.endpoint.link import Backoff
    from sync_core.endpoint.listing import TaskInfo
    from sync_core.endpoint.recorded import RecordedCall
    from sync_core.endpoint.replay import Gap, GapKind, ReplayReport
    from sync_core.endpoint.restore import Restored
    from sync_core.endpoint.safeguards import Probed
    from sync_core.endpoint.stats import EndpointStats, StreamStats, TaskStats
    from sync_core.endpoint.task import Task
    from sync_core.endpoint.tools import Tool, effect_from_mcp, tool
    from sync_core.entry import Effect
    from sync_core.errors import (
        AccessFixed,
        AlreadyDone,
        BaseUnknown,
        Closed,
        DidNotHappen,
        Diverged,
        EntryRefused,
        HandedOver,
        HistoryTrimmed,
        InDoubt,
        KeyRetired,
        KeyReused,
        NeedsApproval,
        NeedsAuthority,
        NeedsCapability,
        NeedsKey,
        NotSyncedYet,
        PreconditionFailed,
        ProtocolError,
        Purged,
        ReadOnly,
        Refused,
        ResultUnavailable,
        RunningElsewhere,
        SegueError,
        StoreDamaged,
        StoreFull,
        StoreInUse,
        StoreUnusable,
        SyncTimeout,
        TaskNotFound,
        TooLarge,
        Unforeseen,
        UnsentWork,
        ValueRefused,
        VersionMismatch,
        WriterReused,
    )
    from sync_core.replica.changes import (
        ApprovalChanged,
        CallChanged,
        Change,
        Completed,
        EntryQuarantined,
        EntrySetAside,
        HandOverChanged,
        HistoryChanged,
        LinkState,
        LogChanged,
        NoteChanged,
        Resync,
        SlotChanged,
        Status,
        TaskDiverged,
        TaskPurged,
        VersionChanged,
    )
    from sync_core.rulings import Contradicted, SettledBy
    from sync_core.values import JsonValue

__all__ = [
    "AccessFixed",
    "AlreadyDone",
    "ApprovalChanged",
    "ApprovalState",
    "Attempt",
    "Backoff",
    "BaseUnknown",
    "Brief",
    "CallChanged",
    "CallState",
    "Candidate",
    "CandidateStatus",
    "Change",
    "Changes",
    "Closed",
    "Completed",
    "CompletionState",
    "Contradicted",
    "DidNotHappen",
    "Diverged",
    "Effect",
    "Endpoint",
    "EndpointStats",
    "EntryQuarantined",
    "EntryRefused",
    "EntrySetAside",
    "Explanation",
    "Gap",
    "GapKind",
    "Gauge",
    "HandOverChanged",
    "HandOverText",
    "HandedOver",
    "HistoryChanged",
    "HistoryTrimmed",
    "IdempotencyReport",
    "InDoubt",
    "JsonValue",
    "KeyRetired",
    "KeyReused",
    "Latency",
    "Level",
    "LinkState",
    "LogChanged",
    "MergedNote",
    "Message",
    "NeedsApproval",
    "NeedsAuthority",
    "NeedsCapability",
    "NeedsKey",
    "NotIdempotent",
    "NotSyncedYet",
    "Note",
    "NoteChanged",
    "PlannedCall",
    "PreconditionFailed",
    "Probed",
    "ProtocolError",
    "Purged",
    "ReadOnly",
    "RecordedCall",
    "Refused",
    "ReplayReport",
    "RequestedApproval",
    "Restored",
    "ResultUnavailable",
    "Resync",
    "RunningElsewhere",
    "SegueError",
    "SettledBy",
    "Slot",
    "SlotChanged",
    "SlotDefinition",
    "SlotState",
    "Status",
    "StoreDamaged",
    "StoreFull",
    "StoreInUse",
    "StoreUnusable",
    "StreamStats",
    "SyncTimeout",
    "Task",
    "TaskCompletion",
    "TaskDiverged",
    "TaskInfo",
    "TaskNotFound",
    "TaskPurged",
    "TaskStats",
    "TaskView",
    "TooLarge",
    "Tool",
    "Unforeseen",
    "UnsentWork",
    "ValueRefused",
    "VersionChanged",
    "VersionMismatch",
    "WriterReused",
    "effect_from_mcp",
    "tool",
    "verify_idempotent",
]

_HOMES = (
    "sync_core.errors",
    "sync_core.entry",
    "sync_core.values",
    "sync_core.rulings",
    "sync_core.document.approvals",
    "sync_core.document.calls",
    "sync_core.document.handover",
    "sync_core.document.notes",
    "sync_core.document.slots",
    "sync_core.document.view",
    "sync_core.endpoint.brief",
    "sync_core.endpoint.changes",
    "sync_core.endpoint.endpoint",
    "sync_core.endpoint.gauges",
    "sync_core.endpoint.explain",
    "sync_core.endpoint.history",
    "sync_core.endpoint.idempotency",
    "sync_core.endpoint.link",
    "sync_core.endpoint.listing",
    "sync_core.endpoint.recorded",
    "sync_core.endpoint.replay",
    "sync_core.endpoint.restore",
    "sync_core.endpoint.stats",
    "sync_core.endpoint.safeguards",
    "sync_core.endpoint.task",
    "sync_core.endpoint.tools",
    "sync_core.replica.changes",
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if name in module.__all__:
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
