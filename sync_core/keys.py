"""The keys under which an effect may happen once: of a call, or of the business entity that a tool acts on.

Endpoint and relay make them alike. Time, device, attempt, grant and sync state never enter one.
"""

import hashlib

from sync_core.values import canonical

__all__ = ["entity_key", "entity_place", "idempotency_key"]


def idempotency_key(subject: str, task: str, version: int, step: str) -> str:
    """Return the key under which a step's effect may happen once: 64 hex digits of subject, task, version and step.

    Time, device, attempt and sync state never enter it, so every device makes the same key.
    """
    return _hash([subject, task, version, step])


def entity_key(subject: str, tool: str, entity: str, generation: int) -> str:
    """Return the key under which a tool may act once on an entity (canonical JSON), until that was undone.

    `generation` counts how often it was.
    """
    return _hash([subject, tool, entity, generation])


def entity_place(subject: str, tool: str, entity: str) -> str:
    """Return the name of an entity's row at the relay, the same for all its generations."""
    return _hash([subject, tool, entity])


def _hash(parts: list[str | int]) -> str:
    return hashlib.sha256(canonical(parts).encode()).hexdigest()
