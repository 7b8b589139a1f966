"""The facts that `segue doctor` judges: of tools, store, relay and files. Pure; somebody else gathers them."""

import msgspec

from sync_core.entry import Effect

__all__ = ["EXPOSED", "Facts", "OpenFile", "RelayFacts", "StoreFacts", "ToolFacts", "Version"]

Version = tuple[int, ...]

EXPOSED = 0o077
"""The bits of a file's mode by which others than its owner get at it."""


class ToolFacts(msgspec.Struct, frozen=True):
    """What a tool declares. `effect_given`: somebody said what it changes; `takes_key`: it has `idempotency_key`;
    `by_entity`: its key is that of a business entity; `checked`: the outside system checks key or fencing token."""

    name: str
    effect: Effect
    effect_given: bool = True
    takes_key: bool = False
    by_entity: bool = False
    checked: bool = False
    has_probe: bool = False
    needs_approval: bool = False

    @property
    def is_final(self) -> bool:
        """Whether what it does cannot be undone."""
        return self.effect is Effect.IRREVERSIBLE


class OpenFile(msgspec.Struct, frozen=True):
    """A file or folder of Segue that others than its owner may read or write."""

    path: str
    mode: int


class StoreFacts(msgspec.Struct, frozen=True):
    """This device's store. `problem` says why it could not be opened; `in_memory` names a file system without disk."""

    path: str
    durable: bool | None = None
    in_memory: str = ""
    problem: str = ""


class RelayFacts(msgspec.Struct, frozen=True):
    """The relay, as far as it is known: None is «not known».

    `address` is empty where none is configured, `role` where it is not known. `why_not` says why there is no link.
    `in_clear`: a token would cross a network unencrypted.
    """

    address: str = ""
    role: str = ""
    linked: bool = False
    why_not: str = ""
    in_clear: bool = False
    authority: bool | None = None
    durable: bool | None = None
    expires: bool | None = None
    clock_suspended: bool | None = None
    open_files: tuple[OpenFile, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """All that the findings follow from. `tools` is None where none were given. Versions are by name."""

    store: StoreFacts
    relay: RelayFacts
    sqlite: Version
    versions: dict[str, str]
    tools: tuple[ToolFacts, ...] | None = None
    open_files: tuple[OpenFile, ...] = ()
