"""`segue relay bench`: how many durable updates a second a relay carries, for one's own sizing.

Without --url it starts a relay of its own on a temporary store, so the figures are of this machine, with the load
beside the relay. With --url it writes into tasks of its own below `segue-bench`, and purges them at the end.
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from server_relay.admission import Role
from server_relay.command.load import Device, LoadFailed, Tally
from server_relay.command.output import answer, fail, guarded
from server_relay.command.token import SECRET_VARIABLE, mint

__all__ = ["Measured", "run"]

_PREFIX = "segue-bench"
_STEP_S = 0.005
_WAITING_MAX = 4_096
"""Updates of one device that may wait for their receipts before what is due is held back."""
_SETTLE_S = 30
_LIFTED = ("connections_per_address", "connections", "connections_before_login")
_LIFTED_TO = "100000"
_TOKEN_HOURS = 1.0
_LEFT = "What was written is left: at the relay, segue relay purge --db FILE --subject {subject} --task {tasks} --yes"


class Measured(msgspec.Struct, frozen=True):
    """What a load came to. Rates are updates a second; latencies are in milliseconds, None where nothing came.

    What is offered counts up to the last update, what is receipted and delivered up to the last receipt.
    `stored_bytes` are those of the stored updates; `stopped` says why it ended before its time, '' if it did not.
    """

    devices: int
    tasks: int
    value_bytes: int
    seconds: float
    offered_rate: float
    receipted_rate: float
    delivered_rate: float
    receipt_p50_ms: float | None
    receipt_p99_ms: float | None
    receipt_max_ms: float | None
    propagation_p50_ms: float | None
    propagation_p99_ms: float | None
    stored_bytes: int
    held_back: int
    refused: int
    unbounded: bool
    stopped: str

    @property
    def carried(self) -> bool:
        """Whether all that was offered was stored."""
        return not (self.held_back or self.refused or self.stopped)


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Put a load on a relay and print what it carried; return the exit status."""
    parser = _parser()
    options = parser.parse_args(argv[1:])
    if min(options.devices, options.tasks, options.bytes) < 1 or not options.seconds > 0 or options.rate < 0:
        parser.error("devices, tasks and bytes are at least 1, seconds above 0, the rate not below 0")
    if options.bytes > 4_000:
        parser.error("a slot's value has at most 4000 bytes here")
    if options.url is not None and not options.url.startswith(("ws://", "wss://")):
        parser.error("a relay's URL begins with ws:// or wss://")
    if options.tasks > options.devices:
        parser.error("there are no more tasks than devices")

    def measured() -> int:
        try:
            return _told(asyncio.run(_measure(options, environment)), options)
        except LoadFailed as error:
            return fail({"code": "load_failed", "sentence": str(error), "hint": ""}, str(error), options.json)
        except KeyboardInterrupt:
            return 1

    return guarded(measured, options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="segue relay bench", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--url", metavar="URL", help="a running relay; by default one is started for it")
    parser.add_argument("--subject", default="bench", help="the business subject at that relay (bench)")
    parser.add_argument("--devices", type=int, default=20, metavar="N", help="connections (20)")
    parser.add_argument("--tasks", type=int, default=5, metavar="N", help="tasks that they share (5)")
    parser.add_argument("--rate", type=float, default=0.0, help="updates a second in all; 0: as fast as receipts come")
    parser.add_argument("--bytes", type=int, default=100, metavar="N", help="size of a slot's value (100)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long (5)")
    parser.add_argument(
        "--auth", type=Path, metavar="FILE", help=f"sign the devices' tokens with this secret; else {SECRET_VARIABLE}"
    )
    parser.add_argument("--private-key", type=Path, metavar="FILE", help="or with this Ed25519 private key (PEM)")
    parser.add_argument("--json", action="store_true", help="print for programs")
    return parser


# --- the relay and its devices ----------------------------------------------------------------------------------------


async def _measure(options: argparse.Namespace, environment: Mapping[str, str]) -> Measured:
    own = options.url is None
    run_id = secrets.token_hex(4)
    tasks = [f"{_PREFIX}/{run_id}/{number}" for number in range(options.tasks)]
    tally = Tally()

    @asynccontextmanager
    async def device(name: str, task: str) -> AsyncIterator[Device]:
        writer = secrets.randbits(52) | 1 << 20
        opened = Device(tally, options.subject, task, name, writer, options.bytes)
        try:
            await opened.open(url, "" if own else _token(options, environment, name))
            yield opened
        finally:
            await opened.close()

    async with AsyncExitStack() as outer:
        url = await outer.enter_async_context(_own_relay()) if own else options.url
        async with AsyncExitStack() as stack:
            devices = [
                await stack.enter_async_context(device(f"bench-{number}", tasks[number % options.tasks]))
                for number in range(options.devices)
            ]
            measured = await _load(devices, tally, options)
        try:
            for task in () if own else tasks:
                # A device of its own: those of the load may have used up what they may send in a minute.
                async with device("bench-purge", task) as last:
                    await last.purge()
        except LoadFailed as error:
            left = f"{error} {_LEFT.format(subject=options.subject, tasks=f'{_PREFIX}/{run_id}/N')}"
            raise LoadFailed(f"{measured.stopped} {left}" if measured.stopped else left) from None
    return measured


def _token(options: argparse.Namespace, environment: Mapping[str, str], name: str) -> str:
    """A token for one device; '' for an open relay, where there is nothing to sign with."""
    if options.auth is None and options.private_key is None and not environment.get(SECRET_VARIABLE, "").strip():
        return ""
    minted = mint(
        environment,
        device=name,
        subject=options.subject,
        principal="bench",
        role=Role.ADMIN,
        hours=_TOKEN_HOURS,
        secret_file=options.auth,
        private_key=options.private_key,
        tasks=(_PREFIX,),
    )
    return str(minted["token"])


@asynccontextmanager
async def _own_relay() -> AsyncIterator[str]:
    """Run a relay as its own command runs it, on a store that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="segue-bench-") as folder:
        lifted = [part for name in _LIFTED for part in (f"--{name.replace('_', '-')}-max", _LIFTED_TO)]
        minute = [part for name in ("frames", "entries", "bytes") for part in (f"--{name}-per-minute-max", str(2**50))]
        arguments = ("--db", f"{folder}/relay.db", "--port", "0", "--json", *lifted, *minute)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SEGUE_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "server_relay", *arguments, stdout=PIPE, stderr=DEVNULL, env=clean
        )
        try:
            assert process.stdout is not None
            line = json.loads(await process.stdout.readline() or b"{}")
            if "url" not in line:
                raise LoadFailed(str(line.get("sentence", "The relay for the load did not start.")))
            yield str(line["url"])
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


# --- the load ---------------------------------------------------------------------------------------------------------


async def _load(devices: Sequence[Device], tally: Tally, options: argparse.Namespace) -> Measured:
    """Put the load on, wait for what is under way, and return what it came to; also if it was stopped."""
    began_s = time.monotonic()
    until_s = began_s + options.seconds
    offered_s = 0.0
    showing = asyncio.ensure_future(_show(tally, began_s, options)) if sys.stderr.isatty() else None
    stopped = ""
    try:
        async with asyncio.TaskGroup() as group:
            if options.rate:
                group.create_task(_at_a_rate(devices, tally, options.rate, began_s, until_s))
            else:
                for device in devices:
                    group.create_task(device.write_on(until_s))
        offered_s = time.monotonic() - began_s
        # What was sent is waited for, so that nothing is counted as lost that is only late.
        async with asyncio.timeout(_SETTLE_S):
            for device in devices:
                await device.settled()
    except* LoadFailed as failed:
        stopped = str(failed.exceptions[0])
    except* TimeoutError:
        stopped = f"Receipts were missing {_SETTLE_S} s after the last update."
    finally:
        if showing is not None:
            showing.cancel()
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr, flush=True)
    all_s = time.monotonic() - began_s
    return _measured(tally, options, offered_s or all_s, all_s, stopped)


async def _at_a_rate(devices: Sequence[Device], tally: Tally, rate: float, began_s: float, until_s: float) -> None:
    """Have the devices write in turn, each update when it is due."""
    number = 0
    most = _WAITING_MAX * len(devices)
    while (now_s := time.monotonic()) < until_s:
        # However long the last step took, what is due is not kept beyond what may wait anyway.
        first, number = number, int((now_s - began_s) * rate) + 1
        taken = min(number - first, most)
        tally.offered += number - first
        tally.held_back += number - first - taken
        due: list[list[int]] = [[] for _ in devices]
        for each in range(number - taken, number):
            due[each % len(devices)].append(int((began_s + each / rate) * 1e9))
        for device, moments in zip(devices, due, strict=True):
            room = max(0, _WAITING_MAX - device.waiting)
            tally.held_back += len(moments[room:])
            if moments[:room]:
                await device.write(moments[:room])
        await asyncio.sleep(_STEP_S)


async def _show(tally: Tally, began_s: float, options: argparse.Namespace) -> None:
    while True:
        part = min(1.0, (time.monotonic() - began_s) / options.seconds)
        bar = "#" * int(20 * part) + "." * (20 - int(20 * part))
        print(f"\r[{bar}] {tally.receipted:,} receipts", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(0.1)


# --- what it came to --------------------------------------------------------------------------------------------------


def _measured(tally: Tally, options: argparse.Namespace, offered_s: float, all_s: float, stopped: str) -> Measured:
    receipts, ways = sorted(tally.receipt_ms), sorted(tally.propagation_ms)
    return Measured(
        devices=options.devices,
        tasks=options.tasks,
        value_bytes=options.bytes,
        seconds=all_s,
        offered_rate=tally.offered / offered_s,
        receipted_rate=tally.receipted / all_s,
        delivered_rate=tally.delivered / all_s,
        receipt_p50_ms=_percentile(receipts, 0.5),
        receipt_p99_ms=_percentile(receipts, 0.99),
        receipt_max_ms=_percentile(receipts, 1.0),
        propagation_p50_ms=_percentile(ways, 0.5),
        propagation_p99_ms=_percentile(ways, 0.99),
        stored_bytes=tally.stored_bytes,
        held_back=tally.held_back,
        refused=tally.refused,
        unbounded=not options.rate,
        stopped=stopped,
    )


def _percentile(values: list[float], part: float) -> float | None:
    return values[min(len(values) - 1, int(len(values) * part))] if values else None


def _told(measured: Measured, options: argparse.Namespace) -> int:
    def row(name: str, rate: float, *spans: tuple[str, float | None]) -> str:
        told = ", ".join(f"{what} {'-' if ms is None else f'{ms:.1f} ms'}" for what, ms in spans)
        return f"{name:10} {rate:10,.0f} /s{f'   {told}' if told else ''}"

    where = options.url or "a relay of its own, on this machine"
    lines = [
        f"{measured.devices} devices, {measured.tasks} tasks, values of {measured.value_bytes} bytes,"
        f" {measured.seconds:.1f} s; {where}",
        "",
        row("offered", measured.offered_rate),
        row(
            "receipted",
            measured.receipted_rate,
            ("p50", measured.receipt_p50_ms),
            ("p99", measured.receipt_p99_ms),
            ("max", measured.receipt_max_ms),
        ),
        row(
            "delivered",
            measured.delivered_rate,
            ("p50", measured.propagation_p50_ms),
            ("p99", measured.propagation_p99_ms),
        ),
        f"{'stored':10} {measured.stored_bytes / 2**20:10,.1f} MiB",
        f"{'held back':10} {measured.held_back:10,}",
        f"{'refused':10} {measured.refused:10,}",
        "",
        _verdict(measured),
    ]
    answer({**msgspec.to_builtins(measured), "carried": measured.carried}, lines, options.json)
    return int(bool(measured.stopped))


def _verdict(measured: Measured) -> str:
    late = f"99 of 100 receipts within {measured.receipt_p99_ms or 0:.0f} ms"
    if measured.stopped:
        return f"It was stopped after {measured.seconds:.1f} s: {measured.stopped}"
    if measured.unbounded:
        return f"It carries about {measured.receipted_rate:,.0f} durable updates a second, {late}."
    if measured.carried:
        return f"It carries {measured.offered_rate:,.0f} updates a second, {late}."
    return f"It does not carry this rate: {measured.held_back:,} updates were held back. Try a lower --rate."
