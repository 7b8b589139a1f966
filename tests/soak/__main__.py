"""`python -m tests.soak`: many devices, flapping links, a relay that is restarted; nothing is lost, nothing grows.

Half of the time the relay is ended again and again, by SIGTERM and by SIGKILL; then it runs on, and memory and open
handles of both processes are watched to the end. Exits 1 if something was lost, somebody did not converge, or something
grew. What must grow is told and not judged: the stored entries, and the pages of them that SQLite keeps in memory,
which are bounded for each store.
"""

import argparse
import asyncio
import json
import os
import resource
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from tests.soak.fleet import Fleet, Verdict
from tests.soak.proxy import FlappingProxy
from tests.soak.relay_process import RelayProcess
from tests.soak.trend import Sample, Trend, cache_bytes, sample, trend

__all__ = ["Report", "main", "soak"]

_SAMPLE_S = 1.0
_WATCHED_FROM = 0.55
"""Part of the time after which nothing is warming up any more, and the relay is not restarted."""
_MEMORY = (0.10, 8 * 1024 * 1024)
_HANDLES = (0.02, 8)
"""What a row may rise: this part of its mean, and this on top."""


class Report(msgspec.Struct, frozen=True):
    """What the soak came to. Sizes in bytes; `files` are those in the folder at the middle and at the end.

    Memory is told without `caches`, the pages that SQLite keeps for the relay and for all devices, as they are at the
    end.
    """

    seed: int
    seconds: float
    endpoints: int
    written: int
    links_cut: int
    connections: int
    relay_terminated: int
    relay_killed: int
    relay_memory: Trend
    relay_handles: Trend
    devices_memory: Trend
    devices_handles: Trend
    caches: tuple[int, int]
    files: tuple[int, int]
    stored_bytes: tuple[int, int]
    heal_s: float
    verdict: Verdict

    @property
    def holds(self) -> bool:
        """Whether nothing was lost and nothing grew that need not."""
        trends = (self.relay_memory, self.relay_handles, self.devices_memory, self.devices_handles)
        return self.verdict.holds and all(one.is_flat for one in trends) and self.files[0] == self.files[1]


class _Soak:
    def __init__(self, folder: Path, seconds: float, endpoints: int, seed: int, progress: bool) -> None:
        self._chance = Random(seed)
        self._folder = folder
        self._seconds = seconds
        self._progress = progress
        self._relay = RelayProcess(folder / "relay.db", folder / "relay.log")
        self._proxy = FlappingProxy(self._chance, life_s=max(2.0, min(30.0, seconds / 10)))
        self._endpoints = endpoints
        self._seed = seed
        self._ends = {signal.SIGTERM: 0, signal.SIGKILL: 0}
        self._relay_samples: list[Sample] = []
        self._own_samples: list[Sample] = []
        self._middle: tuple[int, int] | None = None

    async def run(self) -> Report:
        await self._relay.start()
        await self._proxy.start()
        self._proxy.target_port = self._relay.port
        fleet = Fleet(
            self._folder, f"ws://127.0.0.1:{self._proxy.port}", self._endpoints, self._seconds / 40, self._chance
        )
        try:
            await fleet.start()
            self._began_s = time.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(fleet.work(pause_s=2.0 if self._seconds >= 60 else 0.2))
                group.create_task(self._disturb())
                await self._watch()
                fleet.rest()
            self._proxy.flaps = False
            healing_s = time.monotonic()
            end = self._on_disk()
            verdict = await fleet.judge(timeout_s=600)
            return self._report(fleet, end, time.monotonic() - healing_s, verdict)
        finally:
            await fleet.close()
            await self._proxy.close()
            await self._relay.stop(signal.SIGTERM)

    def _report(self, fleet: Fleet, end: tuple[int, int], heal_s: float, verdict: Verdict) -> Report:
        middle = self._middle or end
        return Report(
            self._seed,
            self._seconds,
            self._endpoints,
            fleet.written,
            self._proxy.cuts,
            self._proxy.connections,
            self._ends[signal.SIGTERM],
            self._ends[signal.SIGKILL],
            *_trends(self._relay_samples),
            *_trends(self._own_samples),
            caches=(self._relay_samples[-1].cached, self._own_samples[-1].cached),
            files=(middle[0], end[0]),
            stored_bytes=(middle[1], end[1]),
            heal_s=heal_s,
            verdict=verdict,
        )

    async def _disturb(self) -> None:
        """End the relay and start it again, until the part that is watched begins."""
        end_s = self._began_s + self._seconds * _WATCHED_FROM * 0.8
        every_s = max(1.5, self._seconds / 12)
        number = signal.SIGTERM
        while time.monotonic() + every_s < end_s:
            await asyncio.sleep(every_s * self._chance.uniform(0.5, 1.0))
            await self._relay.stop(number)
            self._ends[number] += 1
            await asyncio.sleep(self._chance.uniform(0.1, 1.5))
            await self._relay.start()
            self._proxy.target_port = self._relay.port
            number = signal.SIGKILL if number is signal.SIGTERM else signal.SIGTERM

    async def _watch(self) -> None:
        """Take samples until the time is over, and judge nothing before the part that is watched."""
        while (at_s := time.monotonic() - self._began_s) < self._seconds:
            await asyncio.sleep(_SAMPLE_S)
            if at_s >= self._seconds * _WATCHED_FROM and self._relay.pid:
                self._middle = self._middle or self._on_disk()
                self._relay_samples.append(sample(self._relay.pid, at_s, await self._relay.cache_bytes()))
                self._own_samples.append(sample(os.getpid(), at_s, cache_bytes()))
            if self._progress:
                print(f"\r{at_s:5.0f} of {self._seconds:.0f} s", end="", file=sys.stderr, flush=True)
        if self._progress:
            print("\r" + " " * 24 + "\r", end="", file=sys.stderr, flush=True)

    def _on_disk(self) -> tuple[int, int]:
        """Return how many files there are, logs of SQLite apart, and the bytes of all."""
        files = [file for file in self._folder.iterdir() if file.is_file()]
        kept = [file for file in files if not file.name.endswith(("-wal", "-shm", "-journal"))]
        return len(kept), sum(file.stat().st_size for file in files)


def _trends(samples: list[Sample]) -> tuple[Trend, Trend]:
    memory = _trend(samples, [one.memory_bytes - one.cached for one in samples], *_MEMORY)
    return memory, _trend(samples, [one.handles for one in samples], *_HANDLES)


def _trend(samples: list[Sample], figures: list[int], part: float, base: float) -> Trend:
    return trend([one.at_s for one in samples], list(map(float, figures)), part=part, base=base)


async def soak(folder: Path, *, seconds: float, endpoints: int, seed: int, progress: bool = False) -> Report:
    """Run the soak with files in a folder."""
    return await _Soak(folder, seconds, endpoints, seed, progress).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Run it and print what it came to; 1 if it does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--endpoints", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="of what is written when, and of what is cut when")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    progress = sys.stderr.isatty() and not options.json
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        run = soak(Path(folder), seconds=options.seconds, endpoints=options.endpoints, seed=seed, progress=progress)
        report = asyncio.run(run)
    if options.json:
        print(json.dumps({**msgspec.to_builtins(report), "holds": report.holds}, indent=2))
    else:
        print("\n".join(_lines(report)))
    if not report.holds:
        again = f"--seconds {options.seconds:g} --endpoints {options.endpoints} --seed {seed}"
        print(f"again: python -m tests.soak {again}", file=sys.stderr)
    return int(not report.holds)


def _lines(report: Report) -> list[str]:
    verdict = report.verdict
    rows = [
        ("memory, relay", report.relay_memory, 2**20, "MiB"),
        ("memory, devices", report.devices_memory, 2**20, "MiB"),
        ("handles, relay", report.relay_handles, 1, ""),
        ("handles, devices", report.devices_handles, 1, ""),
    ]
    before, after = report.stored_bytes
    relay, own = report.caches
    return [
        f"{report.endpoints} devices for {report.seconds:g} s, seed {report.seed}: {report.written:,} writes,"
        f" {report.links_cut:,} links cut of {report.connections:,},"
        f" the relay ended {report.relay_terminated} times by SIGTERM, {report.relay_killed} by SIGKILL",
        "",
        *(
            f"{name:18} {one.mean / unit:9.1f} {what:3}"
            f"  rise {one.rise / unit:+8.1f}  allowed {one.allowed / unit:7.1f}"
            f"  {'flat' if one.is_flat else 'GROWS'}"
            for name, one, unit, what in rows
        ),
        f"{'pages of SQLite':18} {own / 2**20:9.1f} MiB  of the devices, {relay / 2**20:.1f} of the relay",
        f"{'files':18} {report.files[1]:9}      before {report.files[0]}",
        f"{'stored (grows)':18} {after / 2**20:9.1f} MiB  before {before / 2**20:.1f}",
        "",
        f"healed in {report.heal_s:.1f} s: {verdict.tasks} tasks, {verdict.lines:,} lines,"
        f" {verdict.lines_missing} missing, {verdict.lines_twice} twice, {verdict.tasks_apart} tasks apart",
        *verdict.faults,
        "it holds" if report.holds else "IT DOES NOT HOLD",
    ]


if __name__ == "__main__":
    sys.exit(main())
