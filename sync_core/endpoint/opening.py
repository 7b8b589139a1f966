"""What `Endpoint.open(…)` and `endpoint.task(…)` return: awaitable, and an async context manager that closes again."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar

__all__ = ["Closable", "Opening"]


class Closable(Protocol):
    """What can be closed."""

    async def aclose(self) -> None:
        """Close it; idempotent."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """`await opening` gives the opened thing; `async with opening as thing` closes it at the end."""

    def __init__(self, open_it: Callable[[], Awaitable[T]]) -> None:
        self._open_it = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[object, None, T]:
        return self._open_it().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.aclose()
