"""`python -m server_relay`, and `segue relay`: run a relay until SIGTERM or SIGINT.

Prints one line once it listens. Exit status 0 after a stop, 1 if it cannot start or fails, 2 for wrong usage.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from server_relay.config import RelaySettings, read_secret
from server_relay.server import serve
from sync_core.errors import SegueError

__all__ = ["loop_factory", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a relay with these arguments (those of the process by default); return the exit status."""
    options = _parser().parse_args(argv)
    try:
        secret = read_secret(options.auth) if options.auth else None
        settings = RelaySettings(
            db=options.db,
            host=options.host,
            port=options.port,
            secret=secret,
            origins=tuple(options.origin),
            hosts=tuple(options.name),
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_run(settings, options.json))
    except SegueError as error:
        return _fail(error.as_json(), str(error), options.json)
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        sentence = f"The relay cannot listen on {options.host}:{options.port}: {why}."
        return _fail({"code": "address", "sentence": sentence, "hint": ""}, sentence, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="segue relay", description="Run a relay.")
    parser.add_argument("--db", type=Path, required=True, help="the relay's SQLite file; made if it is missing")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8700, help="the port to listen on (8700); 0 picks a free one")
    parser.add_argument(
        "--auth",
        "--auth-secret-file",
        type=Path,
        metavar="FILE",
        help="file with the secret that signs tokens; without it the relay is open, on loopback only",
    )
    parser.add_argument("--origin", action="append", default=[], help="a browser origin that may connect; repeatable")
    parser.add_argument("--name", action="append", default=[], help="a host name the relay is reached by; repeatable")
    parser.add_argument("--json", action="store_true", help="print the line for programs")
    return parser


async def _run(settings: RelaySettings, as_json: bool) -> int:
    server = await serve(settings)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no handlers on the loop; there Ctrl-C raises KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    _announce(settings, server.port, as_json)
    failed = asyncio.ensure_future(server.closed())
    waiting = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((failed, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await server.close()
        waiting.cancel()
    await failed
    return 0


def _announce(settings: RelaySettings, port: int, as_json: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"ws://{host}:{port}"
    is_open = settings.secret is None
    if as_json:
        line = json.dumps({"event": "listening", "url": url, "port": port, "pid": os.getpid(), "open": is_open})
    else:
        line = f"The relay listens on {url}" + (" (open: no tokens are asked for)" if is_open else "")
    print(line, flush=True)


def _fail(problem: dict[str, str | int], text: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"event": "failed", **problem}), flush=True)
    else:
        print(text, file=sys.stderr)
    return 1


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
