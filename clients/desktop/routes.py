"""Which route does a team need? The answer follows from the classes of its tools. Pure.

Three ways to carry a task exist: merge it everywhere, own it at a server, replay its log. Segue merges, and takes from
the other two what cannot be given up.
"""

import msgspec

from clients.desktop.facts import ToolFacts

__all__ = ["Route", "routes"]


class Route(msgspec.Struct, frozen=True):
    """One answer: `question` is what a team asks, `answer` what it takes, `steps` what to do, in this order.

    `fits` says that the tools that were looked at ask for it; None where they decide nothing.
    """

    code: str
    question: str
    answer: str
    steps: tuple[str, ...]
    fits: bool | None = None


def routes(tools: tuple[ToolFacts, ...] | None) -> tuple[Route, ...]:
    """Return the routes, those that fit first."""
    final = [tool for tool in tools or () if tool.is_final]
    known = bool(tools)
    every = (
        Route(
            "merging",
            "A chain of tools that only read, or may run twice",
            "Merging alone: no server has to own anything.",
            (
                "Declare each tool's effect, so that none counts as irreversible by silence.",
                "A relay only carries: lose it, and the devices fill a new one.",
            ),
            fits=not final if known else None,
        ),
        Route(
            "authority",
            "Writes that cannot be undone: money, stock, work orders",
            "The authority at the relay; keys first, everything else after.",
            _authority_steps(final),
            fits=bool(final) if known else None,
        ),
        Route(
            "audit",
            "Somebody must be able to ask later what happened",
            "Export and replay: the log is the audit.",
            (
                "segue export TASK writes every entry with author, device and order.",
                "segue replay TASK rebuilds the task and compares; it calls no tool and nobody.",
            ),
        ),
        Route(
            "platform",
            "A managed workflow platform owns the run already",
            "Keep it; what is still yours is what it cannot know.",
            (
                "The business key of each effect, and an outside system that checks it.",
                "What a person confirmed, on which device, and what two of them said at once.",
                "The work that devices do while they cannot reach it.",
            ),
        ),
    )
    return tuple(sorted(every, key=lambda route: route.fits is not True))


def _authority_steps(final: list[ToolFacts]) -> tuple[str, ...]:
    without_key = [tool.name for tool in final if not tool.takes_key]
    by_step = [tool.name for tool in final if tool.takes_key and not tool.by_entity]
    steps = ["Give each tool idempotency_key and pass it on" + _named(without_key) + "."]
    steps.append("Name the business entity with key=, so that no other step does it again" + _named(by_step) + ".")
    steps.append("Check each one with verify_idempotent before it meets the real system.")
    steps.append(
        "Then a relay with an authority, probe= for what stays in doubt, approval=True for what a person decides."
    )
    return tuple(steps)


def _named(names: list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
