"""Prints the README's state diagram from the session's table: `python -m tests.readme_states`."""

from sync_core.replica.session import TRANSITIONS

__all__ = ["diagram"]


def diagram() -> str:
    """Return the session's transitions as a Mermaid state diagram; events that change nothing are left out."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (origin, event), target in TRANSITIONS.items():
        if origin is not target:
            arrows.setdefault((origin.value, target.value), []).append(event.value)
    lines = [f"    {origin} --> {target}: {', '.join(events)}" for (origin, target), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> connecting", "    [*] --> offline: without a relay", *lines])


if __name__ == "__main__":
    print(diagram())
