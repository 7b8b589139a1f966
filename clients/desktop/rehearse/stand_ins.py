"""Stand-in tools: each returns what the recording holds for the step that was asked for, and counts its executions.

One that cannot be undone acts on the outside system first, under the key that it is given.
"""

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping

import msgspec

from clients.config import WrongUsage
from clients.desktop.rehearse.logs import Execution, LineLog
from clients.desktop.rehearse.outside import Deed, OutsideSystem
from clients.desktop.rehearse.recording import FILLED_IN, RecordedCall, Run
from clients.desktop.rehearse.rules import ToolRule, rule_of
from sync_core import DidNotHappen, SegueError, tool
from sync_core.endpoint.safeguards import IDEMPOTENCY_KEY, Probed, Releases
from sync_core.endpoint.tools import AsyncTool
from sync_core.values import JsonValue, canonical

__all__ = ["Asking", "StandIns", "tool_shapes"]


class Asking(msgspec.Struct, frozen=True):
    """What a device is being asked for right now."""

    number: int
    run: int
    call: RecordedCall


def tool_shapes(runs: Iterable[Run]) -> Mapping[str, tuple[str, ...]]:
    """Return the argument names that the runs give to each tool; raises `WrongUsage` for one that is no name."""
    shapes: dict[str, set[str]] = {}
    for run in runs:
        for call in run.calls:
            # A call that the model garbled is never run, so no tool has to fit it.
            if call.named is None:
                continue
            names = shapes.setdefault(call.tool, set())
            for name in call.named:
                if not name.isidentifier() and not keyword.iskeyword(name):
                    raise WrongUsage(f"Run {run.number} gives the tool {call.tool} an argument that is no name.")
                names.add(name)
    return {name: tuple(sorted(names)) for name, names in sorted(shapes.items())}


class StandIns:
    """The tools of one device. `asking` says what it is asked for; without it an execution counts as not asked for.

    `executed` is told after each execution. Raises `WrongUsage` for a recorded tool that cannot be one of Segue's.
    """

    def __init__(
        self,
        device: str,
        log: LineLog[Execution],
        outside: OutsideSystem,
        shapes: Mapping[str, tuple[str, ...]],
        rules: Mapping[str, ToolRule],
    ) -> None:
        self.asking: Asking | None = None
        self.executed: Callable[[], None] | None = None
        self._device = device
        self._log = log
        self._outside = outside
        self._names = {
            # Segue itself fills these in where a tool takes them; a model's own are none.
            name: tuple(each for each in names if not (rule_of(rules, name).guarded and each in FILLED_IN))
            for name, names in shapes.items()
        }
        try:
            self._tools = {name: self._tool(name, rule_of(rules, name)) for name in shapes}
        except SegueError as error:
            raise WrongUsage(f"A recorded tool cannot be one of Segue's: {error.sentence}", hint=error.hint) from None

    @property
    def tools(self) -> tuple[AsyncTool[..., str], ...]:
        """One tool per shape."""
        return tuple(self._tools.values())

    def bound(self, call: RecordedCall) -> tuple[AsyncTool[..., str], list[object]]:
        """Return the tool of a recorded call, and its arguments in their order."""
        given = call.given or {}
        return self._tools[call.tool], [given.get(name) for name in self._names[call.tool]]

    def _tool(self, name: str, rule: ToolRule) -> AsyncTool[..., str]:
        names = self._names[name]

        async def stand_in(*values: object, idempotency_key: str = "") -> str:
            named = zip(names, values, strict=True)
            given = {key: value for key, value in named if value is not None and key not in FILLED_IN}
            return self._execute(name, rule, given, idempotency_key)

        # Positional-only, because recorded arguments may have the names of keywords: `from`, `class`.
        parameters = [
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_ONLY, default=None, annotation=object) for key in names
        ]
        if rule.guarded:
            parameters.append(
                inspect.Parameter(IDEMPOTENCY_KEY, inspect.Parameter.KEYWORD_ONLY, default="", annotation=str)
            )
        stand_in.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
        stand_in.__annotations__ = {**{each.name: each.annotation for each in parameters}, "return": str}
        if not rule.guarded:
            return tool(effect=rule.effect, name=name)(stand_in)
        return tool(
            effect=rule.effect,
            name=name,
            key=_key_of(rule),
            releases=_releases_of(rule),
            label=None if rule.label is None else rule.label_of,
            keyed=True,
            probe=self._probe,
        )(stand_in)

    async def _probe(self, idempotency_key: str) -> Probed:
        """Ask the outside system, as one would ask a bank, whether what is in doubt happened under its key."""
        result = self._outside.probe(idempotency_key)
        return Probed(result is not None, result)

    def _execute(self, name: str, rule: ToolRule, given: dict[str, object], key: str) -> str:
        if self.executed is not None:
            self.executed()
        asking = self.asking
        said = None if asking is None else asking.call.given
        if asking is None or said is None or asking.call.tool != name or said != given:
            self._log.append(Execution(name, self._device, None, None, None))
            return ""
        self._log.append(Execution(name, self._device, asking.run, asking.call.number, asking.number))
        result = asking.call.result
        if not rule.guarded:
            return result
        if rule.failed(result):
            raise DidNotHappen(result)
        entity = rule.entity(said)
        deed = Deed(
            asking.run,
            asking.call.number,
            name,
            self._device,
            result,
            "" if entity is None else canonical(entity),
            rule.label_of(result),
            rule.undoes(said),
        )
        return self._outside.act(key, deed)


def _key_of(rule: ToolRule) -> Callable[..., object] | None:
    return None if rule.key is None else lambda **given: rule.entity(given)


def _releases_of(rule: ToolRule) -> Releases:
    def undone(**given: JsonValue) -> str | None:
        found = rule.undoes(given)
        return None if found is None else found[1]

    return () if rule.releases is None else ((rule.releases.tool, undone),)
