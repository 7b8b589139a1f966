"""The relay's driver: websockets in, effects out, in order (rule H).

One conductor takes the events that wait, lets the Relay handle them in one turn, commits what it wrote once, and only
then sends. What comes in meanwhile waits for the next turn: group commit without a timer.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

from server_relay.access import AccessFiles
from server_relay.clock import RelayClock
from server_relay.config import RelaySettings
from server_relay.doors import Door, TlsFiles, raise_open_files
from server_relay.effects import (
    AccessChanged,
    Close,
    CommitFailed,
    Connected,
    Disconnected,
    Malformed,
    PurgeOrdered,
    Received,
    RelayEffect,
    RelayEvent,
    RelayRead,
    Send,
    Tick,
    Written,
)
from server_relay.health import Health
from server_relay.inbox import Batch, Inbox
from server_relay.logs import RelayLog
from server_relay.mailbox.mailbox import Mailbox
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.metrics import Figures, RelayMetrics
from server_relay.notes import Note
from server_relay.peers import Peer, messages_of
from server_relay.quarantine import Quarantine
from server_relay.relay import Relay
from sync_core.errors import Closed, SegueError, StoreUnusable
from sync_core.frames import Push

__all__ = ["GOING_AWAY", "RelayServer", "serve"]

GOING_AWAY = 1001
"""Websocket close code: the relay stops; connect again, to it or its successor, and resume."""

_TICK_S = 1.0
_CLOSING_S = 0.02
_LISTEN_BACKLOG = 4_096
_TLS_HANDSHAKE_S = 5.0
_STATS_AGE_MS = 300_000
"""How old the counts of the store may be in a scrape: counting reads an index of all entries."""
_STUCK_MS = 60_000
_COMMIT_FAILED_MS = 30_000


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
    """A running relay: see `serve`. `port` is the bound one, `metrics_port` that of health and figures, 0 without."""

    def __init__(self, settings: RelaySettings, mailbox: Mailbox) -> None:
        self._settings = settings
        self._mailbox = mailbox
        self._access = AccessFiles(settings)
        self._relay = Relay(self._access.access.admit, os.urandom, settings, durable=mailbox.durable)
        self._sockets: set[Peer] = set()
        self._peers: dict[int, Peer] = {}
        self._numbers = itertools.count(1)
        self._inbox = Inbox()
        self._moved: set[Peer] = set()
        self._closing = False
        self._figures = Figures()
        self._log = RelayLog()
        self._door = Door(settings)
        self._tls = TlsFiles(settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
        self._health = Health(lambda: self.metrics(_STATS_AGE_MS), self._sick, self._unready)
        self._commit_failed_ms: int | None = None
        self._server: asyncio.Server | None = None
        self.port = settings.port
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Bind the addresses and begin to serve."""
        settings = self._settings
        self._stats = stats = await self._mailbox.stats()
        self._started_ms = self._turned_ms = self._stats_ms = _mono_ms()
        self._clock = RelayClock(
            _wall_ms(),
            self._started_ms,
            stored_at_ms=stats.stored_at_ms,
            jump_ms_max=settings.clock_jump_s_max * 1000,
            confirmed=settings.clock_confirmed,
        )
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Peer(next(self._numbers), self._door, self),
            settings.host,
            settings.port,
            ssl=None if self._tls is None else self._tls.context,
            ssl_handshake_timeout=None if self._tls is None else _TLS_HANDSHAKE_S,
            backlog=_LISTEN_BACKLOG,
        )
        self.port = int(next(iter(self._server.sockets)).getsockname()[1])
        self._tasks = [asyncio.create_task(work) for work in (self._conduct(), self._tick(), self._reread())]
        if settings.metrics_port is not None:
            try:
                await self._health.start(settings.metrics_host, settings.metrics_port)
            except OSError as error:
                await self.close()
                # Which of the two addresses it was is told.
                error.filename = f"{settings.metrics_host}:{settings.metrics_port}"
                raise
        self._limit_files()

    @property
    def metrics_port(self) -> int:
        """The bound port of health and figures, 0 if there is none."""
        return self._health.port

    def _limit_files(self) -> None:
        settings = self._settings
        wanted = settings.connections_max + settings.connections_before_login_max
        allowed = raise_open_files(wanted)
        if allowed is not None and allowed < wanted:
            self._log.put(Note("few_open_files", {"allowed": allowed, "wanted": wanted}, "warning"))

    async def closed(self) -> None:
        """Return once the relay was closed; raises what ended it if it failed. Who stops waiting stops nothing."""
        await asyncio.shield(self._tasks[0])

    async def close(self) -> None:
        """Stop accepting, finish the turn under way, close every connection with 1001, close the file; idempotent."""
        if self._server is None or self._closing:
            return
        self._closing = True
        self._server.close()
        self._inbox.wake.set()
        await asyncio.wait(self._tasks[:1])
        for peer in list(self._sockets):
            peer.close(GOING_AWAY, "the relay stops")
        while self._sockets:
            await asyncio.sleep(_CLOSING_S)
            self._tick_peers()
        for task in self._tasks[1:]:
            task.cancel()
        await self._health.close()
        await self._mailbox.close()

    @property
    def access_trouble(self) -> str:
        """Why keys, revocations or certificate cannot be used as they are now; '' if they can."""
        return self._access.trouble or (self._tls.trouble if self._tls is not None else "")

    @property
    def clock_suspended(self) -> bool:
        """Whether the clock was found to have jumped, so that no task expires."""
        return self._clock.suspended

    @property
    def quarantine(self) -> Quarantine:
        """The poison that is known."""
        return self._relay.quarantine

    async def metrics(self, stats_age_ms_max: int = 0) -> RelayMetrics:
        """Return the relay's figures; what is in the store was counted at most that long ago."""
        if _mono_ms() - self._stats_ms >= stats_age_ms_max:
            self._stats, self._stats_ms = await self._mailbox.stats(), _mono_ms()
        figures, peers = self._figures, self._peers.values()
        return RelayMetrics(
            uptime_ms=_mono_ms() - self._started_ms,
            connections=self._relay.connections,
            sockets=self._door.sockets,
            sockets_cut_off=self._door.cut_off,
            tasks_held=self._relay.tasks_held,
            poison_kept=len(self._relay.quarantine),
            turns=figures.turns,
            commits=figures.commits,
            read_bytes=figures.read_bytes + sum(peer.read_bytes for peer in peers),
            written_bytes=figures.written_bytes + sum(peer.written_bytes for peer in peers),
            waiting_events=self._inbox.events,
            waiting_bytes=sum(peer.out_bytes for peer in peers),
            commit_spans=(figures.commit_spans.cumulative(), figures.commit_spans.sum_s),
            receipt_spans=(figures.receipt_spans.cumulative(), figures.receipt_spans.sum_s),
            counts=dict(self._relay.counts),
            clock_suspended=self._clock.suspended,
            access_trouble=bool(self.access_trouble),
            store_bytes=_bytes_on_disk(self._settings.db),
            mailbox=self._stats,
            mailbox_age_ms=_mono_ms() - self._stats_ms,
        )

    def _sick(self) -> str:
        """Why the process should be started anew: a turn comes at least with every tick."""
        return "stuck" if not self._closing and _mono_ms() - self._turned_ms > _STUCK_MS else ""

    def _unready(self) -> tuple[str, ...]:
        """Why no device should be sent here at present."""
        failed_ms = self._commit_failed_ms
        reasons = {
            "stopping": self._closing,
            "store": failed_ms is not None and _mono_ms() - failed_ms < _COMMIT_FAILED_MS,
            "access": bool(self.access_trouble),
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    async def purge(self, keys: Sequence[tuple[str, str]]) -> None:
        """Purge tasks by (subject, task), for good and everywhere; what nothing is stored of stays as it is.

        Returns once that is committed; raises `Closed` if the relay stops, `StoreUnusable` if a commit failed.
        """
        if self._closing:
            raise Closed("The relay stops.")
        failed_before = self._relay.counts["commits_failed"]
        handled = asyncio.Event()
        self._inbox.put(Batch([PurgeOrdered(*key) for key in keys], handled=handled))
        await handled.wait()
        if self._relay.counts["commits_failed"] > failed_before:
            raise StoreUnusable("The store failed meanwhile.", hint="See the relay's log; then purge again.")

    # --- connections -------------------------------------------------------------------------------------------------

    def arrived(self, peer: Peer) -> None:
        """A socket was let in."""
        self._sockets.add(peer)
        if self._closing:
            peer.close(GOING_AWAY, "the relay stops")

    def opened(self, peer: Peer) -> None:
        """A socket became a connection."""
        self._peers[peer.conn] = peer
        self._post(Connected(peer.conn, peer.address))

    def received(self, peer: Peer, events: list[Received | Malformed], size_bytes: int) -> None:
        """Messages came; once the relay stops, what still comes is dropped."""
        if self._closing:
            peer.taken(size_bytes)
            return
        pushes = sum(isinstance(event, Received) and isinstance(event.frame, Push) for event in events)
        self._inbox.put(Batch(events, peer, size_bytes, time.perf_counter(), pushes))

    def has_room(self, peer: Peer) -> None:
        """The relay is told in the next turn."""
        self._moved.add(peer)
        self._inbox.wake.set()

    def left(self, peer: Peer) -> None:
        """A socket was closed."""
        self._sockets.discard(peer)
        if self._peers.pop(peer.conn, None) is not None:
            self._moved.discard(peer)
            self._figures.read_bytes += peer.read_bytes
            self._figures.written_bytes += peer.written_bytes
            self._post(Disconnected(peer.conn))

    def _post(self, event: RelayEvent) -> None:
        self._inbox.put(Batch((event,)))

    def _tick_peers(self) -> None:
        now_s = time.monotonic()
        for peer in list(self._sockets):
            peer.tick(now_s)

    # --- the conductor -----------------------------------------------------------------------------------------------

    async def _conduct(self) -> None:
        while not self._closing:
            await self._inbox.wake.wait()
            await self._turn()
        while self._inbox:
            await self._turn()

    async def _turn(self) -> None:
        """Handle what waits; effects of one turn are carried out before the next one begins."""
        reports = [(peer, peer.report()) for peer in self._moved]
        self._moved = {peer for peer, report in reports if report.out_bytes}
        events: list[RelayEvent] = [report for _, report in reports]
        batches = self._inbox.take()
        for batch in batches:
            events += batch.events
        effects = self._relay.turn(events, self._now_ms())
        while effects:
            effects = await self._carry_out(effects)
        now_s = time.perf_counter()
        for batch in batches:
            if batch.pushes:
                self._figures.receipt_spans.add(now_s - batch.arrived_s, batch.pushes)
            elif batch.handled is not None:
                batch.handled.set()
        self._figures.turns += 1
        self._turned_ms = _mono_ms()
        while self._relay.notes:
            self._log.put(self._relay.notes.popleft())

    async def _carry_out(self, effects: Sequence[RelayEffect]) -> list[RelayEffect]:
        """Commit, then send and close, then read; returns what the Relay makes of the answers."""
        writes = [effect.write for effect in effects if isinstance(effect, Written)]
        reads: list[RelayRead] = []
        try:
            if writes:
                began_s = time.perf_counter()
                await self._mailbox.commit(writes)
                self._figures.commits += 1
                self._figures.commit_spans.add(time.perf_counter() - began_s)
                self._commit_failed_ms = None
        except SegueError as error:
            self._commit_failed_ms = _mono_ms()
            self._log.put(Note("commit_failed", {"code": error.code}, "error"))
            return self._relay.handle(CommitFailed(tuple(effects), error), self._now_ms())
        # Frames that go to many are joined once.
        joined: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        for effect in effects:
            match effect:
                case Written():
                    pass
                case Send(conn, frames):
                    if conn in self._peers:
                        messages = joined.get(frames) or joined.setdefault(frames, messages_of(frames))
                        self._peers[conn].send(messages)
                        self._moved.add(self._peers[conn])
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
            self._tick_peers()
            self._post(Tick(self._clock.suspended))

    async def _reread(self) -> None:
        """Look at the files that say who may take part; what changed holds for live connections, too."""
        while True:
            await asyncio.sleep(self._settings.access_reread_ms / 1000)
            before = self.access_trouble
            if self._tls is not None:
                await asyncio.to_thread(self._tls.reread)
            changed = await asyncio.to_thread(self._access.reread)
            if self.access_trouble and self.access_trouble != before:
                self._log.put(Note("access_unchanged", {"why": self.access_trouble}, "error"))
            if changed:
                self._log.put(Note("access_changed", {}))
                access = self._access.access
                self._post(AccessChanged(access.admit, access.stands))

    def _now_ms(self) -> int:
        return self._clock.now_ms(_wall_ms(), _mono_ms())


def _bytes_on_disk(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
