"""`segue relay`: run a relay until SIGTERM or SIGINT. Prints one line once it listens."""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from server_relay.command.output import answer, fail, guarded
from server_relay.command.service import Service
from server_relay.config import RelaySettings
from server_relay.logs import RelayLog, failure, write_log
from server_relay.notes import Note
from server_relay.settings import HELP, SETTING_NAMES, Configured, flag_of, is_list, is_switch, read_relay_settings
from sync_core.errors import SegueError

__all__ = ["COMMANDS", "relay_runner", "run"]

_GC_THRESHOLDS = (20_000, 20, 50)

COMMANDS = {
    "token": "make a token for a device",
    "top": "watch a running relay's figures",
    "bench": "put a load on a relay, for one's own sizing",
    "backup": "copy a relay's store, also while the relay runs",
    "verify": "check a store: checksums, chains, writer tables, blobs",
    "restore": "put a backup in a store's place",
    "compact": "give back the room that what was deleted has left",
    "purge": "delete tasks at the relay and on every device",
    "poison": "list what the relay refuses by its hash, or forget it",
}


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a relay with these arguments; return the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    flags = {name: _as_text(getattr(options, name)) for name in SETTING_NAMES}
    config = options.config or environment.get("SEGUE_RELAY_CONFIG") or None
    if config is None and flags["db"] is None and "SEGUE_RELAY_DB" not in environment:
        parser.error("the relay's file is not named: give --db FILE")

    def carried_out() -> int:
        configured = read_relay_settings(flags, environment, None if config is None else Path(config))
        return _show(configured, options.json) if options.show_config else _serve(configured, options.json)

    return guarded(carried_out, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="segue relay",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a relay.",
        epilog="commands, each with its own --help:\n"
        + "\n".join(f"  segue relay {name:8} {text}" for name, text in COMMANDS.items())
        + "\n\nEach setting is taken from its flag, else from SEGUE_RELAY_<NAME>, else from the file of --config.",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file of settings; else SEGUE_RELAY_CONFIG")
    parser.add_argument("--show-config", action="store_true", help="print the settings, where each is from, and end")
    parser.add_argument("--json", action="store_true", help="print for programs")
    for name in SETTING_NAMES:
        if is_switch(name):
            parser.add_argument(*flag_of(name), dest=name, action=argparse.BooleanOptionalAction, help=HELP.get(name))
        else:
            action = "append" if is_list(name) else "store"
            parser.add_argument(*flag_of(name), dest=name, action=action, metavar="…", help=HELP.get(name))
    return parser


def _as_text(value: str | list[str] | bool | None) -> str | list[str] | None:
    return str(value).lower() if isinstance(value, bool) else value


def _show(configured: Configured, as_json: bool) -> int:
    document = {setting.name: {"value": setting.value, "origin": setting.origin} for setting in configured.shown}
    width = max(len(setting.name) for setting in configured.shown)
    lines = [f"{setting.name:{width}}  {setting.value}  ({setting.origin})" for setting in configured.shown]
    return answer(document, lines, as_json)


def _serve(configured: Configured, as_json: bool) -> int:
    settings = configured.settings
    write_log(settings.log_format)
    for name in configured.unknown:
        # Whoever runs the process may set what it likes: it is no error, but may be a setting with a slip in its name.
        RelayLog().put(Note("unknown_variable", {"variable": name}, "warning"))
    try:
        with relay_runner() as runner:
            return runner.run(_until_stopped(settings, as_json))
    except OSError as error:
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        where = error.filename or f"{settings.host}:{settings.port}"
        sentence = f"The relay cannot listen on {where}: {why}."
        return fail({"code": "address", "sentence": sentence, "hint": ""}, sentence, as_json)
    except (SegueError, ModuleNotFoundError):
        raise
    except Exception as error:
        # What an error says could hold content, and a traceback shows it.
        RelayLog().put(failure(error))
        sentence = f"The relay failed ({type(error).__name__}); its log says where."
        return fail({"code": "failed", "sentence": sentence, "hint": "Report it."}, sentence, as_json)


async def _until_stopped(settings: RelaySettings, as_json: bool) -> int:
    service = await Service.start(settings)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Windows has no handlers on the loop; there Ctrl-C raises KeyboardInterrupt.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    _announce(settings, service, as_json)
    failed = asyncio.ensure_future(service.failed())
    waiting = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((failed, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await service.close()
        waiting.cancel()
    await failed
    return 0


def _announce(settings: RelaySettings, service: Service, as_json: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"{'ws' if settings.tls_cert is None else 'wss'}://{host}:{service.port}"
    if as_json:
        line = {"event": "listening", "url": url, "port": service.port, "pid": os.getpid(), "open": settings.is_open}
        more = {"metrics_port": service.metrics_port, "clock_suspended": service.clock_suspended}
        print(json.dumps(line | more), flush=True)
    else:
        print(f"The relay listens on {url}{' (open: no tokens are asked for)' if settings.is_open else ''}", flush=True)
        if service.clock_suspended:
            print(
                "The clock is far from where it was: nothing expires until a start with --clock-confirmed", flush=True
            )


def relay_runner() -> asyncio.Runner:
    """Return what runs a relay as a process of its own: on uvloop, where it is installed, and with a collector that
    comes seldom, for a relay holds much for long and drops little in circles."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    return asyncio.Runner(loop_factory=_loop_factory())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
