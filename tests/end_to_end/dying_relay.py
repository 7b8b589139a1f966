"""A relay process that kills itself right behind its first commit of a key, before anybody hears of it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from server_relay.config import RelaySettings
from server_relay.mailbox.sqlite_mailbox import SqliteMailbox
from server_relay.records import MailboxWrite, PutKeys
from server_relay.server import serve


class DyingMailbox(SqliteMailbox):
    """Commits, and is no more once that was a key's."""

    async def commit(self, writes: Sequence[MailboxWrite]) -> None:
        await super().commit(writes)
        if any(isinstance(write, PutKeys) for write in writes):
            os.kill(os.getpid(), signal.SIGKILL)


async def main(db: Path) -> None:
    server = await serve(RelaySettings(db=db, port=0), await DyingMailbox.open(db))
    print(json.dumps({"port": server.port}), flush=True)
    await server.closed()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
