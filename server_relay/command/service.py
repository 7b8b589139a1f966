"""A relay as a service: the server, its store, and the socket beside the store by which its operator speaks to it."""

import os
from pathlib import Path

from server_relay.command.control import BackedUp, Compacted, Control, Poisons, Purged
from server_relay.command.purging import Purge, purge
from server_relay.config import RelaySettings
from server_relay.logs import RelayLog
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.notes import Note
from server_relay.server import RelayServer, serve
from sync_core.errors import ValueRefused

__all__ = ["Service"]


class Service:
    """A running relay process: see `start`."""

    def __init__(self, server: RelayServer, mailbox: SqliteMailbox, settings: RelaySettings) -> None:
        self._server = server
        self._mailbox = mailbox
        self._log = RelayLog()
        handlers = {
            "backup": self._back_up,
            "compact": self._compact,
            "poison": self._poison,
            "forget": self._forget,
            "purge": self._purge,
        }
        self._control = Control(settings.db, handlers)

    @classmethod
    async def start(cls, settings: RelaySettings) -> "Service":
        """Open the store, listen, and log that it does; raises as `serve` does."""
        mailbox = await SqliteMailbox.open(settings.db, store_bytes_max=settings.store_bytes_max)
        service = cls(await serve(settings, mailbox), mailbox, settings)
        why = await service._control.start()
        if why:
            service._log.put(Note("no_control", {"why": why}, "warning"))
        if service.clock_suspended:
            service._log.put(Note("clock_suspended", {"hint": "--clock-confirmed once the time is right"}, "warning"))
        fields = {"port": service.port, "pid": os.getpid(), "open": settings.is_open}
        service._log.put(Note("listening", fields))
        return service

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.port

    @property
    def clock_suspended(self) -> bool:
        """Whether the clock is far from where it was when the relay last ran, so that nothing expires."""
        return self._server.clock_suspended

    @property
    def metrics_port(self) -> int:
        """The bound port of health and figures, 0 without."""
        return self._server.metrics_port

    async def failed(self) -> None:
        """Return once the relay was closed; raises what ended it."""
        await self._server.closed()

    async def close(self) -> None:
        """Drain and stop: what was taken is stored and receipted, every device is told to come again."""
        self._log.put(Note("stopping", {}))
        await self._control.close()
        await self._server.close()
        self._log.put(Note("stopped", {}))

    async def _back_up(self, to: str) -> BackedUp:
        if not Path(to).is_absolute():
            raise ValueRefused("The backup's path is not absolute.")
        done = await self._mailbox.back_up(Path(to))
        self._log.put(Note("backed_up", {"bytes": done}))
        return BackedUp(done)

    async def _compact(self, _: str) -> Compacted:
        before, after = await self._mailbox.compact()
        self._log.put(Note("compacted", {"before": before, "after": after}))
        return Compacted(before, after)

    async def _purge(self, asked: str) -> Purged:
        wanted = Purge.parsed(asked)
        done = await purge(self._mailbox, wanted, self._server.purge)
        if wanted.confirmed:
            which = {"subject": wanted.subject, "task": wanted.task or "all"}
            self._log.put(Note("purged", {**which, "tasks": done.tasks}, "warning"))
        return done

    async def _poison(self, _: str) -> Poisons:
        return Poisons(self._server.quarantine.known_now())

    async def _forget(self, _: str) -> Poisons:
        cleared = self._server.quarantine.clear()
        self._log.put(Note("poison_forgotten", {"hashes": cleared}))
        return Poisons(cleared=cleared)
