"""Helpers to test tools and agents of your own: two real endpoints, a real relay, a crash, a comparison.

    async def test_the_invoice_is_read_once(tmp_path):
        async with two_endpoints(tmp_path, tools=[read_invoice], capabilities={"files"}) as ends:
            task = await ends.phone.task("expense/TRIP-118", create=True)
            with crash_at("after_record"), pytest.raises(Crashed):
                await task.call("invoice", read_invoice, "a.pdf")
            await ends.reopen_phone()
            await ends.synced()
            task = await ends.desktop.task("expense/TRIP-118")
            await task.call("invoice", read_invoice, "a.pdf")         # the record; nothing runs
            await assert_converged(ends.phone, ends.desktop, "expense/TRIP-118")

Needs the relay, which comes with `pip install segue[relay]`.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sync_core.endpoint.endpoint import Endpoint
from sync_core.endpoint.link import Backoff
from sync_core.endpoint.points import CallPoint, Crashed, armed
from sync_core.endpoint.tools import Tool
from sync_core.endpoint.transport import Connection, LinkLost, WebsocketTransport

__all__ = ["Crashed", "TwoEndpoints", "assert_converged", "crash_at", "two_endpoints"]

K = TypeVar("K")
V = TypeVar("V")

_SYNC_S = 10.0
_BACKOFF = Backoff(first_s=0.02, cap_s=0.1)
"""Loopback is back at once, so an endpoint that returns need not wait long."""


def crash_at(point: CallPoint | str) -> AbstractContextManager[None]:
    """Let the endpoint crash when a call inside next reaches `after_intent`, `after_effect` or `after_record`.

    A call that cannot be undone reaches `after_grant` before these.

    The call raises `Crashed`, the endpoint is gone as after a kill: what was not durable is lost, its store's lock is
    free, and the same file can be opened again.
    """
    return armed(CallPoint(point))


class _Network:
    """Websockets that end, and do not come back, while they are cut."""

    def __init__(self) -> None:
        self._websockets = WebsocketTransport()
        self._open: list[Connection] = []
        self._cut = False

    async def connect(self, url: str) -> Connection:
        if self._cut:
            raise LinkLost("the test cut the network")
        connection = await self._websockets.connect(url)
        self._open.append(connection)
        return connection

    async def cut(self) -> None:
        self._cut = True
        while self._open:
            await self._open.pop().close()

    def restore(self) -> None:
        self._cut = False


class TwoEndpoints:
    """`phone` and `desktop`, two devices of one subject with a file each, and the relay between them."""

    def __init__(
        self, folder: Path, relay: str, subject: str, tools: tuple[Tool[..., object], ...], capabilities: frozenset[str]
    ) -> None:
        self.phone: Endpoint
        self.desktop: Endpoint
        self.relay = relay
        self._folder = folder
        self._subject = subject
        self._tools = tools
        self._capabilities = capabilities
        self._network = _Network()

    async def reopen_phone(self) -> Endpoint:
        """Open the phone, on its own file, after it crashed or was closed."""
        self.phone = await self._open("phone")
        return self.phone

    async def reopen_desktop(self) -> Endpoint:
        """Open the desktop, on its own file, after it crashed or was closed."""
        self.desktop = await self._open("desktop")
        return self.desktop

    async def synced(self) -> None:
        """Wait until each device has all that the other one wrote before the call."""
        for endpoint in (self.phone, self.desktop, self.phone):
            await endpoint.synced(timeout_s=_SYNC_S)

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[None]:
        """Cut both devices' network inside; afterwards wait until both are synced again."""
        await self._network.cut()
        try:
            yield
        finally:
            self._network.restore()
        await self.synced()

    async def _open(self, device: str) -> Endpoint:
        return await Endpoint.open(
            self._folder / f"{device}.db",
            subject=self._subject,
            device=device,
            relay=self.relay,
            tools=self._tools,
            capabilities=self._capabilities,
            transport=self._network,
            backoff=_BACKOFF,
        )


@asynccontextmanager
async def two_endpoints(
    folder: Path,
    *,
    subject: str = "test",
    tools: Iterable[Tool[..., object]] = (),
    capabilities: Iterable[str] = (),
) -> AsyncIterator[TwoEndpoints]:
    """Start a relay on a free loopback port and open two endpoints on files in `folder`, all closed at the end."""
    # The relay stands on the engine's plain values; only this helper looks the other way.
    from server_relay.config import RelaySettings
    from server_relay.server import serve

    relay = await serve(RelaySettings(db=folder / "relay.db", port=0))
    try:
        url = f"ws://127.0.0.1:{relay.port}"
        ends = TwoEndpoints(folder, url, subject, tuple(tools), frozenset(capabilities))
        async with await ends.reopen_phone():
            await ends.reopen_desktop()
            try:
                yield ends
            finally:
                await ends.desktop.aclose()
                await ends.phone.aclose()
    finally:
        await relay.close()


async def assert_converged(one: Endpoint, other: Endpoint, key: str) -> None:
    """Assert that two endpoints' files hold the same task: slots, notes, calls, history, hand-over, and one digest.

    Wait for `synced` before. Raises `AssertionError` that names what differs, never its content.
    """
    here, there = await one.stored(key), await other.stored(key)
    differing = {
        "slot": _differing(here.view.slots, there.view.slots),
        "note": _differing(here.view.notes, there.view.notes),
        "call": _differing(here.view.calls, there.view.calls),
        "approval": _differing(here.view.approvals, there.view.approvals),
        "hand-over": _differing(here.view.handovers, there.view.handovers),
        "history item": _differing(dict(enumerate(here.view.history)), dict(enumerate(there.view.history))),
    }
    for what, names in differing.items():
        assert not names, f"{one.device} and {other.device} differ in {what} {', '.join(names)}"
    assert here.view.version == there.view.version, "the business versions differ"
    assert here.digest == there.digest, f"{one.device} and {other.device} show the same, but their digests differ"


def _differing(mine: Mapping[K, V], theirs: Mapping[K, V]) -> list[str]:
    names = [*mine, *(name for name in theirs if name not in mine)]
    return [str(name) for name in names if mine.get(name) != theirs.get(name)]
