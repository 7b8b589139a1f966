"""Stand-in tools: each returns what the recording holds for the step that was asked for, and counts its executions."""

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping

import msgspec

from clients.config import WrongUsage
from clients.desktop.rehearse.logs import Execution, LineLog
from clients.desktop.rehearse.recording import RecordedCall, Run
from sync_core import Effect, SegueError, tool
from sync_core.endpoint.tools import AsyncTool

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

    `executed` is told after each execution.
    """

    def __init__(self, device: str, log: LineLog[Execution]) -> None:
        self.asking: Asking | None = None
        self.executed: Callable[[], None] | None = None
        self._device = device
        self._log = log

    def tools(
        self, shapes: Mapping[str, tuple[str, ...]], effects: Mapping[str, Effect]
    ) -> tuple[AsyncTool[..., str], ...]:
        """Return one tool per shape; one without a declared effect is IRREVERSIBLE, as everywhere."""
        try:
            return tuple(
                self._tool(name, names, effects.get(name, Effect.IRREVERSIBLE)) for name, names in shapes.items()
            )
        except SegueError as error:
            raise WrongUsage(f"A recorded tool cannot be one of Segue's: {error.sentence}", hint=error.hint) from None

    def _tool(self, name: str, names: tuple[str, ...], effect: Effect) -> AsyncTool[..., str]:
        async def stand_in(*values: object) -> str:
            named = zip(names, values, strict=True)
            given = {key: value for key, value in named if value is not None and key != "idempotency_key"}
            return self._execute(name, given)

        # Positional-only, because recorded arguments may have the names of keywords: `from`, `class`.
        parameters = [
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_ONLY, default=None, annotation=object) for key in names
        ]
        stand_in.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
        stand_in.__annotations__ = {**dict.fromkeys(names, object), "return": str}
        return tool(effect=effect, name=name)(stand_in)

    def _execute(self, name: str, given: dict[str, object]) -> str:
        if self.executed is not None:
            self.executed()
        asking = self.asking
        if asking is None or asking.call.tool != name or asking.call.given != given:
            self._log.append(Execution(name, self._device, None, None, None))
            return ""
        self._log.append(Execution(name, self._device, asking.run, asking.call.number, asking.number))
        return asking.call.result
