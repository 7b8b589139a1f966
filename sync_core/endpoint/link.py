"""The link to the relay: one task that connects, carries messages, and connects again after a growing pause.

The token is asked for anew at each attempt and some time before it ends, and a source that fails costs a pause, never
the link (scenario SE-19).
Only a final refusal ends the attempts; the status then says why.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import NoReturn

import msgspec

from sync_core.checked import check_text
from sync_core.endpoint.runner import Connected, Runner
from sync_core.endpoint.transport import Connection, LinkLost, Outbox, Transport
from sync_core.errors import ProtocolError, SegueError
from sync_core.frames import Entries, Receipt
from sync_core.replica.effects import LinkDown, LinkFailed, RenewalFailed, TokenRenewed
from sync_core.wire import decode_relay

__all__ = ["Backoff", "Link", "TokenSource"]

_SAME_AGAIN = "the token ends soon, and its source has no other yet"

TokenSource = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""A token, or a function (`def` or `async def`) that returns a fresh one."""


class _NoToken(Exception):
    """The token source gave none; never leaves this module."""


class Backoff(msgspec.Struct, frozen=True):
    """Pauses between attempts, in seconds: doubling from `first_s` up to `cap_s`, each shortened at random by half.

    They start anew after a connection that brought anything to be kept, or that lasted `steady_s`.
    """

    first_s: float = 0.2
    cap_s: float = 30.0
    steady_s: float = 5.0

    def pause_s(self, failures: int, chance: float) -> float:
        """Return the pause after so many failures in a row; `chance` is uniform in [0, 1)."""
        longest_s = min(self.cap_s, self.first_s * 2.0 ** min(failures, 32))
        return longest_s * (0.5 + 0.5 * chance)


class Link:
    """Keeps one connection up until it is closed or finally refused."""

    def __init__(
        self,
        runner: Runner,
        transport: Transport,
        url: str,
        token: TokenSource,
        backoff: Backoff,
        chance: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._transport = transport
        self._url = url
        self._token = token
        self._backoff = backoff
        self._chance = chance
        self._failures = 0
        self._final = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="segue-link")

    def stop(self) -> None:
        """Let the connection and the attempts end, without waiting for it."""
        self._task.cancel()

    async def close(self) -> None:
        """End the connection and the attempts; raises what stopped the link, if anything unexpected did."""
        self.stop()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        while not self._final.is_set():
            await self._attempt()
            pause_s = self._backoff.pause_s(self._failures, self._chance())
            self._failures += 1
            try:
                await asyncio.wait_for(self._final.wait(), pause_s)
            except TimeoutError:
                continue

    async def _attempt(self) -> None:
        try:
            token = await self._fresh_token()
        except _NoToken as failure:
            self._runner.post(LinkFailed(str(failure)))
            return
        try:
            connection = await self._transport.connect(self._url)
        except LinkLost as lost:
            self._runner.post(LinkFailed(str(lost)))
            return
        reason = "the endpoint closed the link"
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            reason = await self._serve(connection, token)
        finally:
            if loop.time() - began_s >= self._backoff.steady_s:
                self._failures = 0
            self._runner.post(LinkDown(reason))
            await connection.close()

    async def _fresh_token(self) -> str:
        """Return what the source gives; raises `_NoToken`."""
        try:
            return check_text(await self._ask_token(), "the token")
        except asyncio.CancelledError:
            # A token source may have been cancelled by itself; only who cancels this task ends the link.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _NoToken("credentials: CancelledError") from None
        except Exception as error:
            # Whatever a token source raises is reported and tried again; its text might hold the credential itself.
            reason = error.sentence if isinstance(error, SegueError) else type(error).__name__
            raise _NoToken(f"credentials: {reason}") from None

    async def _ask_token(self) -> str:
        if isinstance(self._token, str):
            return self._token
        token = self._token()
        return await token if inspect.isawaitable(token) else token

    async def _serve(self, connection: Connection, token: str) -> str:
        """Carry messages both ways until the connection ends; return why it did."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def hang_up(reason: str, final: bool) -> None:
            if final:
                self._final.set()
            if not ended.done():
                ended.set_result(reason)

        due = asyncio.Event()
        outbox = Outbox(hang_up, due.set)
        self._runner.post(Connected(token, outbox))
        sides = {
            asyncio.ensure_future(self._read(connection)),
            asyncio.ensure_future(_write(connection, outbox)),
            asyncio.ensure_future(self._renew(token, due)),
            ended,
        }
        try:
            done, _ = await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            return (ended if ended.done() else done.pop()).result()
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)

    async def _renew(self, token: str, due: asyncio.Event) -> NoReturn:
        """Ask for a fresh token whenever one is due; what comes of it is the Replica's."""
        while True:
            await due.wait()
            due.clear()
            try:
                fresh = await self._fresh_token()
            except _NoToken as failure:
                self._runner.post(RenewalFailed(str(failure)))
                continue
            if fresh == token:
                self._runner.post(RenewalFailed(f"credentials: {_SAME_AGAIN}"))
            else:
                token = fresh
                self._runner.post(TokenRenewed(token))

    async def _read(self, connection: Connection) -> str:
        while True:
            try:
                message = await connection.receive()
                frames = decode_relay(message)
            except LinkLost as lost:
                return str(lost)
            except ProtocolError as error:
                return error.sentence
            # A welcome alone is no success: a relay that can store nothing gives one, too.
            if any(isinstance(frame, (Entries, Receipt)) for frame in frames):
                self._failures = 0
            await self._runner.received(tuple(frames), len(message))


async def _write(connection: Connection, outbox: Outbox) -> str:
    while True:
        try:
            await connection.send(await outbox.message())
        except LinkLost as lost:
            return str(lost)
