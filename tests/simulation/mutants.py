"""Replicas and relays that are broken on purpose: the simulator must catch every one of them.

Each mutant patches the real classes inside a context. It counts as caught only by a seed on which the real code keeps
every promise.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from tests.simulation.schedule import run_seed

__all__ = ["MUTANTS", "Caught", "Mutant", "hunt"]


class Mutant(msgspec.Struct, frozen=True):
    """A planted fault. `apply` is a context in which the real code has it; `seeds` are tried first."""

    name: str
    apply: Callable[[], AbstractContextManager[None]]
    seeds: tuple[int, ...] = ()


class Caught(msgspec.Struct, frozen=True):
    """How a hunt ended. `seed` is the first seed that showed the fault while the real code passes it."""

    name: str
    seed_found: bool
    seed: int
    tried: int
    seconds: float
    violation: str

    def line(self) -> str:
        """Return the result as a line of a table."""
        if not self.seed_found:
            return f"{self.tried} seeds, {self.seconds:.1f} s"
        return f"seed {self.seed:<6} {self.tried:>4} tried {self.seconds:5.1f} s  {self.violation[:90]}"


MUTANTS: tuple[Mutant, ...] = ()


def hunt(name: str, seconds: float) -> Caught:
    """Look for a seed on which a mutant breaks a promise that the real code keeps."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    started = time.monotonic()
    tried = 0
    for seed in _candidates(mutant):
        tried += 1
        with mutant.apply():
            broken = run_seed(seed).violation
        spent = time.monotonic() - started
        if broken and not run_seed(seed).violation:
            return Caught(name, True, seed, tried, spent, broken)
        if spent > seconds:
            break
    return Caught(name, False, -1, tried, time.monotonic() - started, "")


def _candidates(mutant: Mutant) -> Iterator[int]:
    yield from mutant.seeds
    seed = 0
    while True:
        yield seed
        seed += 1


@contextmanager
def patched(owner: Any, name: str, value: object) -> Iterator[None]:
    """Put a value in place of an attribute while the context lasts."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
