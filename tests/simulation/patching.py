"""How a fault is planted: values in place of attributes of the real code, while a context lasts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from sync_core.replica.effects import Effect, Written
from sync_core.replica.replica import Replica

__all__ = ["Context", "late_writes", "patched"]

Context = AbstractContextManager[None]


@contextmanager
def patched(*patches: tuple[Any, str, object]) -> Iterator[None]:
    """Put values in place of attributes while the context lasts."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def late_writes(is_late: Callable[[object], bool]) -> Context:
    """Some writes of an event are committed with the next event only."""
    original = Replica.handle

    def handle(self: Replica, event: Any, now_ms: int, wall_ms: int) -> list[Effect]:
        effects = original(self, event, now_ms, wall_ms)
        held: list[Effect] = self.__dict__.get("late", [])
        late = [effect for effect in effects if isinstance(effect, Written) and is_late(effect.write)]
        self.__dict__["late"] = late
        return [*held, *(effect for effect in effects if effect not in late)]

    return patched((Replica, "handle", handle))
