"""Where each call of a run goes, and what goes wrong there: a pure function of the seed and the run.

Before every call the work moves to another device. That device may be killed at one of three points of the call, or
have no link while it is asked; then either it is asked again, or another one is asked while it is away.
"""

import random
from collections.abc import Mapping

import msgspec

from clients.desktop.rehearse.recording import Run
from clients.desktop.rehearse.rules import ToolRule, rule_of
from sync_core.endpoint.points import CallPoint

__all__ = ["Faults", "Move", "schedule"]

_KILL_SHARE = 0.3
_OFFLINE_SHARE = 0.2
_ELSEWHERE_SHARE = 0.5
_POINTS = tuple(point for point in CallPoint if point is not CallPoint.AFTER_GRANT)
_SPELL_CALLS_MAX = 3


class Faults(msgspec.Struct, frozen=True):
    """Which faults a rehearsal plants. Without the authority every call that cannot be undone is refused."""

    kills: bool = False
    offline: bool = False
    without_authority: bool = False


class Move(msgspec.Struct, frozen=True):
    """How one call is played. Devices are numbers from 0.

    `device` is asked first. `kill` is where it dies. With `offline` it has no link from before it is asked, for
    `spell_calls` calls. `elsewhere` is the device that is asked while the first one is dead or away; None means that
    the first one is asked again after a kill, or keeps the work until the next call.
    """

    device: int
    kill: CallPoint | None = None
    offline: bool = False
    spell_calls: int = 0
    elsewhere: int | None = None

    @property
    def holder(self) -> int:
        """The device that holds the work afterwards."""
        return self.device if self.elsewhere is None else self.elsewhere


def schedule(run: Run, rules: Mapping[str, ToolRule], devices: int, seed: int, faults: Faults) -> tuple[Move, ...]:
    """Return the move of each call of the run, in order; the first message of the run is said on device 0."""
    chance = random.Random(f"{seed}/{run.number}")
    moves: list[Move] = []
    holder = 0
    for call in run.calls:
        move = _move(chance, holder, devices, faults, rule_of(rules, call.tool).guarded)
        moves.append(move)
        holder = move.holder
    return tuple(moves)


def _move(chance: random.Random, holder: int, devices: int, faults: Faults, guarded: bool) -> Move:
    """A call that is refused starts nothing, so there is no point of it at which to be killed.

    The same numbers are drawn whatever the faults, so that a run without them visits the same devices.
    """
    refused = guarded and faults.without_authority
    device = _other(chance, holder, devices)
    draws = (chance.random(), chance.random(), chance.random())
    point: CallPoint = chance.choice(_POINTS)
    if guarded and draws[0] < _KILL_SHARE:
        # Evenly over one point more, without another draw.
        point = tuple(CallPoint)[int(draws[0] / _KILL_SHARE * len(CallPoint))]
    spell_calls = chance.randint(1, _SPELL_CALLS_MAX)
    elsewhere = _other(chance, device, devices)
    kill = point if faults.kills and not refused and draws[0] < _KILL_SHARE else None
    offline = faults.offline and devices > 1 and draws[1] < _OFFLINE_SHARE
    away = devices > 1 and (kill is not None or (offline and not refused)) and draws[2] < _ELSEWHERE_SHARE
    return Move(
        device=device,
        kill=kill,
        offline=offline,
        spell_calls=spell_calls if offline else 0,
        elsewhere=elsewhere if away else None,
    )


def _other(chance: random.Random, device: int, devices: int) -> int:
    """Another device, evenly; the same one if there is only one."""
    place = chance.randrange(max(devices - 1, 1))
    return place if devices == 1 or place < device else place + 1
