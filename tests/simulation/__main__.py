"""`python -m tests.simulation`: run seeded schedules for a while, then the mutants.

Exits 1 if a promise was broken or a mutant got away, and prints the command that repeats it.

`--seed N` runs one schedule and prints its wire hash, the same in any process.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import msgspec

from tests.simulation.mutants import MUTANTS, Caught, hunt
from tests.simulation.schedule import run_seed
from tests.simulation.world import Result

__all__ = ["Campaign", "main", "run_campaign"]

_CHUNK = 20
_MUTANT_SHARE = 0.4


class Campaign(msgspec.Struct):
    """What a run came to."""

    seconds: float
    schedules: int = 0
    steps: int = 0
    messages: int = 0
    ops: int = 0
    faults: int = 0
    violations: list[Result] = []
    mutants: list[Caught] = []

    @property
    def failed(self) -> bool:
        """Whether a promise was broken, or a mutant got away."""
        return bool(self.violations) or any(not caught.seed_found for caught in self.mutants)


def _run_chunk(first: int) -> list[Result]:
    return [run_seed(seed) for seed in range(first, first + _CHUNK)]


def _chunks(first: int, deadline: float) -> Iterator[int]:
    while time.monotonic() < deadline:
        yield first
        first += _CHUNK


def run_campaign(seconds: float, first: int, jobs: int) -> Campaign:
    """Run schedules from a first seed on, for some seconds, in so many processes."""
    started = time.monotonic()
    deadline = started + seconds
    campaign = Campaign(seconds)
    with ProcessPoolExecutor(jobs) as pool:
        waiting = []
        for chunk in _chunks(first, deadline):
            waiting.append(pool.submit(_run_chunk, chunk))
            if len(waiting) >= jobs * 2:
                _collect(campaign, waiting.pop(0).result())
        for future in waiting:
            _collect(campaign, future.result())
    campaign.seconds = time.monotonic() - started
    return campaign


def _collect(campaign: Campaign, results: list[Result]) -> None:
    for result in results:
        campaign.schedules += 1
        campaign.steps += result.steps
        campaign.messages += result.messages
        campaign.ops += result.ops
        campaign.faults += result.faults
        if result.violation:
            campaign.violations.append(result)


def _hunt_all(seconds: float, jobs: int) -> list[Caught]:
    share = seconds * jobs / max(1, len(MUTANTS))
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(hunt, [mutant.name for mutant in MUTANTS], [share] * len(MUTANTS)))


def _print(campaign: Campaign, jobs: int) -> None:
    if campaign.schedules:
        rate = campaign.schedules / campaign.seconds / jobs
        print(f"{campaign.schedules} schedules in {campaign.seconds:.1f} s ({rate:.0f} a second and core)")
        print(f"{campaign.ops} writes, {campaign.messages} messages, {campaign.faults} faults, {campaign.steps} steps")
    for result in campaign.violations[:20]:
        print(f"BROKEN seed {result.seed}: {result.violation}")
        print(f"  repeat: python -m tests.simulation --seed {result.seed}")
    if campaign.violations[20:]:
        print(f"… and {len(campaign.violations) - 20} more")
    for caught in campaign.mutants:
        print(f"{'caught ' if caught.seed_found else 'ESCAPED'} {caught.name:34} {caught.line()}")
    if not campaign.failed:
        print("every promise held")


def _one(seed: int, as_json: bool) -> int:
    result = run_seed(seed)
    if as_json:
        print(json.dumps(msgspec.to_builtins(result)))
    else:
        print(f"seed {seed}: {result.ops} writes, {result.messages} messages, {result.virtual_ms} ms of virtual time")
        print(f"wire hash {result.wire_hash}")
        print(result.violation or "every promise held")
    return 1 if result.violation else 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments, run, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="real seconds for everything")
    parser.add_argument("--seed", type=int, help="run this one schedule and print its wire hash")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--mutants", action="store_true", help="only hunt the mutants")
    parser.add_argument("--no-mutants", action="store_true", help="only run schedules of the real code")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed, given.json)
    share = 0.0 if given.no_mutants else 1.0 if given.mutants else _MUTANT_SHARE
    campaign = Campaign(0.0)
    if share < 1.0:
        campaign = run_campaign(given.seconds * (1.0 - share), given.first, given.jobs)
    if share > 0.0:
        campaign.mutants = _hunt_all(given.seconds * share, given.jobs)
    if given.json:
        print(json.dumps({**msgspec.to_builtins(campaign), "failed": campaign.failed}))
    else:
        _print(campaign, given.jobs)
    return 1 if campaign.failed else 0


if __name__ == "__main__":
    sys.exit(main())
