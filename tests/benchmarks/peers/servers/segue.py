"""A Segue relay on the file `DB`, as its own command runs it, open on loopback, with room for thousands of connections.

One address makes all connections of a bench, and a snapshot is wanted within seconds of a long tail.
"""

import os
from pathlib import Path

from server_relay.command.run import relay_runner
from server_relay.config import RelaySettings
from server_relay.server import serve


async def main() -> None:
    server = await serve(
        RelaySettings(
            db=Path(os.environ["DB"]),
            port=int(os.environ["PORT"]),
            connections_per_address_max=4_096,
            connections_before_login_max=4_096,
            snapshot_tail_entries=int(os.environ["TAIL_ENTRIES_MAX"]),
            snapshot_asked_every_ms=1_000,
        )
    )
    await server.closed()


if __name__ == "__main__":
    with relay_runner() as runner:
        runner.run(main())
