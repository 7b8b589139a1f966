"""The desktop's process: it takes the claim up where the killed phone left it, and goes on."""

from clients.demo.acts import SYNC_S, Act, opened, perform, show_conflict, work_apart
from clients.demo.stage import Stage
from clients.demo.story import (
    COST_CENTER,
    DESKTOP,
    INVOICE_FILE,
    INVOICE_STEP,
    POLICY_FILE,
    POLICY_STEP,
    TASK,
    WORKLOG,
    Breakage,
)
from clients.demo.tools import TravelTools
from clients.demo.transcript import LineKind
from sync_core import Slot, Task, TooLarge, ValueRefused

__all__ = ["go_on"]

_APART_COST_CENTERS = ("CC-1077", "CC-1042")
_APART_LINE = "- The claim was approved by the team lead (desktop)"


async def go_on(stage: Stage, tools: TravelTools, relay: str, breakage: Breakage | None = None) -> None:
    """Open the task by its key, use what is recorded, ask for what is missing, then work apart and come back."""
    async with opened(stage, tools, relay) as desktop:
        task = await desktop.task(TASK, access="write")
        stage.said(f"opens {TASK} by its key.")
        await _use_records(stage, tools, task)
        if breakage == "rerun":
            tools.read_invoice(INVOICE_FILE)
        for slot in task.slots.missing():
            await _ask_for(stage, task, slot)
        await task.notes.append(WORKLOG, "- The cost centre was asked for and answered (desktop)\n")
        await desktop.synced(timeout_s=SYNC_S)
        stage.said("goes on: the claim is whole, and the work log says so.")
        stage.reached("went on")
        await stage.cue("apart")
    stale = await work_apart(stage, tools, _APART_COST_CENTERS, _APART_LINE)
    stage.reached("worked apart")
    await stage.cue("together")
    async with opened(stage, tools, relay) as desktop:
        task = await desktop.task(TASK, access="write")
        await desktop.synced(timeout_s=SYNC_S)
        stage.said("is online again and sends what it wrote.")
        stage.reached("together")
        await stage.cue("look")
        await desktop.synced(timeout_s=SYNC_S)
        show_conflict(stage, task)
        if breakage == "lose-note":
            await _overwrite(task, stale)
        stage.reached("looked")
        await stage.cue("finish")
        await desktop.synced(timeout_s=SYNC_S)
        stage.said(f"sees it settled: the cost centre is {task.slots[COST_CENTER].value}.")


async def _use_records(stage: Stage, tools: TravelTools, task: Task) -> None:
    """Ask for both steps again; their results are recorded, so neither tool runs here."""
    invoice = await task.call(INVOICE_STEP, tools.read_invoice, INVOICE_FILE)
    check = await task.call(POLICY_STEP, tools.check_policy, invoice, POLICY_FILE)
    for step in (INVOICE_STEP, POLICY_STEP):
        stage.transcript.add(LineKind.REUSED, text=step)
    stage.said(
        f"asks for both steps again and gets what the {task.calls[INVOICE_STEP].device} recorded: "
        f"{invoice.invoice_number}, {invoice.currency} {invoice.total}; "
        f"{'within all limits' if check.within_limits else 'not within the limits'}."
    )


async def _ask_for(stage: Stage, task: Task, slot: Slot) -> None:
    """Ask the user for a missing value until one fits the slot; the question says what one looks like."""
    question = slot.definition.ask if slot.definition else f"What is the {slot.name}?"
    answer = await stage.ask(slot.name, question)
    while True:
        try:
            await task.slots.confirm(slot.name, answer, read=slot)
            return
        except (ValueRefused, TooLarge):
            answer = await stage.ask_again(slot.name, "That does not fit.", question)


async def _overwrite(task: Task, stale: str) -> None:
    """The planted fault: write a stale text under the hash of a text that nobody here has looked at."""
    current = await task.notes.read(WORKLOG)
    await task.notes.write(WORKLOG, stale, content_sha256=current.content_sha256)


def _broken(breakage: Breakage) -> Act:
    async def act(stage: Stage, tools: TravelTools, relay: str) -> None:
        await go_on(stage, tools, relay, breakage)

    return act


if __name__ == "__main__":
    perform(DESKTOP, {"go-on": go_on, "rerun": _broken("rerun"), "lose-note": _broken("lose-note")})
