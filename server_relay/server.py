"""The relay's driver: websockets in, effects out, in order (rule H).

One conductor takes all events that wait, lets the Relay handle them in one turn, commits what it wrote once, and only
then sends. What comes in meanwhile waits for the next turn: group commit without a timer.
"""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Sequence
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.http11 import Request, Response
from websockets.typing import Origin

from server_relay.access import AccessFiles
from server_relay.clock import RelayClock
from server_relay.config import RelaySettings, is_loopback
from server_relay.effects import (
    AccessChanged,
    Close,
    CommitFailed,
    Connected,
    Disconnected,
    Malformed,
    Received,
    RelayEffect,
    RelayEvent,
    RelayRead,
    Send,
    Tick,
    Written,
)
from server_relay.mailbox.mailbox import Mailbox
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.metrics import RelayMetrics
from server_relay.peers import Peer
from server_relay.relay import Relay
from sync_core.errors import ProtocolError, SegueError
from sync_core.limits import FRAME_BYTES_MAX

__all__ = ["GOING_AWAY", "RelayServer", "serve"]

GOING_AWAY = 1001
"""Websocket close code: the relay stops; connect again, to it or its successor, and resume."""

_TICK_S = 1.0
_LISTEN_BACKLOG = 4_096
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


async def serve(settings: RelaySettings, mailbox: Mailbox | None = None) -> "RelayServer":
    """Start a relay; port 0 picks a free one. `mailbox` replaces the SQLite file of the settings.

    Raises `StoreInUse`, `StoreUnusable`, `StoreDamaged` or `StoreFull` for the file, OSError for the address.
    """
    if mailbox is None:
        mailbox = await SqliteMailbox.open(settings.db, store_bytes_max=settings.store_bytes_max)
    try:
        server = RelayServer(settings, mailbox)
        await server.start()
    except BaseException:
        await mailbox.close()
        raise
    return server


class RelayServer:
    """A running relay: see `serve`. `port` is the bound one."""

    def __init__(self, settings: RelaySettings, mailbox: Mailbox) -> None:
        self._settings = settings
        self._mailbox = mailbox
        self._access = AccessFiles(settings)
        self._relay = Relay(self._access.access.admit, os.urandom, settings, durable=mailbox.durable)
        self._peers: dict[int, Peer] = {}
        self._numbers = itertools.count(1)
        self._inbox: list[RelayEvent] = []
        self._handed_over: list[Peer] = []
        self._moved: set[Peer] = set()
        self._wake = asyncio.Event()
        self._closing = False
        self._turns = self._commits = 0
        self._server: Server | None = None
        self.port = settings.port
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Bind the address and begin to serve."""
        settings = self._settings
        stats = await self._mailbox.stats()
        self._started_ms = _mono_ms()
        self._clock = RelayClock(
            _wall_ms(),
            self._started_ms,
            stored_at_ms=stats.stored_at_ms,
            jump_ms_max=settings.clock_jump_s_max * 1000,
            confirmed=settings.clock_confirmed,
        )
        logger = logging.getLogger("segue.relay.websockets")
        # What a stranger sends does not belong into a log; refusals are counted.
        logger.setLevel(logging.CRITICAL + 1)
        self._server = await serve_websockets(
            self._handle,
            settings.host,
            settings.port,
            process_request=self._check_request,
            origins=[None, *(Origin(origin) for origin in settings.origins)],
            compression=None,
            server_header=None,
            max_size=FRAME_BYTES_MAX,
            max_queue=2,
            open_timeout=5,
            ping_interval=10,
            ping_timeout=10,
            close_timeout=2,
            logger=logger,
            backlog=_LISTEN_BACKLOG,
        )
        self.port = int(next(iter(self._server.sockets)).getsockname()[1])
        self._tasks = [asyncio.create_task(work) for work in (self._conduct(), self._tick(), self._reread())]

    async def closed(self) -> None:
        """Return once the relay was closed; raises what ended it if it failed. Who stops waiting stops nothing."""
        await asyncio.shield(self._tasks[0])

    async def close(self) -> None:
        """Stop accepting, finish the turn under way, close every connection with 1001, close the file; idempotent."""
        if self._server is None or self._closing:
            return
        self._closing = True
        self._server.close(close_connections=False)
        self._wake.set()
        await asyncio.wait(self._tasks[:1])
        for task in self._tasks[1:]:
            task.cancel()
        for peer in self._peers.values():
            peer.taken()
            peer.close(GOING_AWAY, "the relay stops")
        await self._server.wait_closed()
        await self._mailbox.close()

    @property
    def access_trouble(self) -> str:
        """Why the files that say who may take part cannot be understood at present; '' if they can."""
        return self._access.trouble

    async def metrics(self) -> RelayMetrics:
        """Return the relay's figures."""
        return RelayMetrics(
            _mono_ms() - self._started_ms,
            self._relay.connections,
            self._relay.tasks_held,
            self._turns,
            self._commits,
            dict(self._relay.counts),
            self._clock.suspended,
            await self._mailbox.stats(),
        )

    # --- connections -------------------------------------------------------------------------------------------------

    def _check_request(self, websocket: ServerConnection, request: Request) -> Response | None:
        """Refuse a request that names another host than this relay's; origins are checked by websockets."""
        hosts = frozenset(self._settings.hosts)
        if not hosts and is_loopback(self._settings.host):
            hosts = _LOOPBACK_HOSTS | {self._settings.host}
        named = request.headers.get_all("Host")
        if len(named) != 1 or (hosts and _host_name(named[0]) not in hosts):
            return websocket.respond(HTTPStatus.FORBIDDEN, "This relay is reached under another name.\n")
        return None

    async def _handle(self, websocket: ServerConnection) -> None:
        """Serve one connection until it closes; once the relay stops, what still comes is dropped."""
        peer = Peer(next(self._numbers), websocket, self._on_drained)
        self._peers[peer.conn] = peer
        self._post(Connected(peer.conn, peer.address))
        writer = asyncio.create_task(peer.write())
        if self._closing:
            peer.close(GOING_AWAY, "the relay stops")
        try:
            while (received := await peer.receive()) is not None:
                if self._closing:
                    peer.taken()
                    continue
                self._handed_over.append(peer)
                if isinstance(received, ProtocolError):
                    self._post(Malformed(peer.conn, received.sentence))
                else:
                    # The size counts once, with the first frame of the message.
                    sizes = itertools.chain((peer.message_bytes,), itertools.repeat(0))
                    self._post(*map(Received, itertools.repeat(peer.conn), received, sizes))
        finally:
            writer.cancel()
            self._peers.pop(peer.conn, None)
            self._moved.discard(peer)
            self._post(Disconnected(peer.conn))

    def _post(self, *events: RelayEvent) -> None:
        self._inbox += events
        self._wake.set()

    def _on_drained(self, peer: Peer, has_room_again: bool) -> None:
        self._moved.add(peer)
        if has_room_again:
            self._wake.set()

    # --- the conductor -----------------------------------------------------------------------------------------------

    async def _conduct(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            await self._turn()
        await self._turn()

    async def _turn(self) -> None:
        """Handle everything that waits; effects of one turn are carried out before the next one begins."""
        events: list[RelayEvent] = [peer.report() for peer in self._moved]
        events += self._inbox
        self._moved.clear()
        self._inbox = []
        handed_over, self._handed_over = self._handed_over, []
        for peer in handed_over:
            peer.taken()
        self._turns += 1
        effects = self._relay.turn(events, self._now_ms())
        while effects:
            effects = await self._carry_out(effects)

    async def _carry_out(self, effects: Sequence[RelayEffect]) -> list[RelayEffect]:
        """Commit, then send and close, then read; returns what the Relay makes of the answers."""
        writes = [effect.write for effect in effects if isinstance(effect, Written)]
        reads: list[RelayRead] = []
        try:
            if writes:
                await self._mailbox.commit(writes)
                self._commits += 1
        except SegueError as error:
            return self._relay.handle(CommitFailed(tuple(effects), error), self._now_ms())
        for effect in effects:
            match effect:
                case Written():
                    pass
                case Send(conn, frames):
                    if conn in self._peers:
                        self._peers[conn].send(frames)
                case Close(conn, code, reason):
                    if conn in self._peers:
                        self._peers[conn].close(code, reason)
                case _:
                    reads.append(effect)
        return self._relay.turn(await self._read(reads), self._now_ms()) if reads else []

    async def _read(self, reads: Sequence[RelayRead]) -> list[RelayEvent]:
        """Return the answers. Where one fails, each is read alone: only who waits for what is damaged hears of it."""
        try:
            return [*await self._mailbox.read(reads)]
        except SegueError as error:
            if len(reads) == 1:
                return [CommitFailed(tuple(reads), error)]
        return [event for read in reads for event in await self._read([read])]

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._post(Tick(self._clock.suspended))

    async def _reread(self) -> None:
        """Look at the files that say who may take part; what changed holds for live connections, too."""
        while True:
            await asyncio.sleep(self._settings.access_reread_ms / 1000)
            if await asyncio.to_thread(self._access.reread):
                access = self._access.access
                self._post(AccessChanged(access.admit, access.stands))

    def _now_ms(self) -> int:
        return self._clock.now_ms(_wall_ms(), _mono_ms())


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
