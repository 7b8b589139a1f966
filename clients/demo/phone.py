"""The phone's process: it begins the claim and is killed; started again on the same file, it takes part to the end."""

from clients.demo.acts import SYNC_S, opened, perform, show_conflict, work_apart
from clients.demo.conflict import choices, chosen
from clients.demo.policy import TravelPolicy, claim_values, load_policy
from clients.demo.stage import Stage
from clients.demo.story import (
    CLAIM_SLOTS,
    COST_CENTER,
    INVOICE_FILE,
    INVOICE_STEP,
    PHONE,
    POLICY_FILE,
    POLICY_STEP,
    SHIPPED,
    TASK,
    WORKLOG,
)
from clients.demo.tools import TravelTools
from sync_core import Slot, Task

__all__ = ["begin", "come_back"]

_APART_COST_CENTERS = ("CC-2000", "CC-2042")
_APART_LINE = "- A taxi receipt is still to come (phone)"


async def begin(stage: Stage, tools: TravelTools, relay: str) -> None:
    """Read the invoice, check it, propose what it says, and wait for the one missing value: until the kill."""
    policy = load_policy(SHIPPED / POLICY_FILE)
    async with opened(stage, tools, relay) as phone:
        task = await phone.task(TASK, create=True, version=1, access="write")
        await _declare(task, policy)
        stage.said(f"opens {TASK} and declares {len(CLAIM_SLOTS) + 1} slots.")
        invoice = await task.call(INVOICE_STEP, tools.read_invoice, INVOICE_FILE)
        stage.said(
            f"reads {INVOICE_FILE}: {invoice.invoice_number} of {invoice.supplier}, "
            f"{invoice.currency} {invoice.total}, {len(invoice.lines)} lines."
        )
        check = await task.call(POLICY_STEP, tools.check_policy, invoice, POLICY_FILE)
        verdict = "within all limits" if check.within_limits else "not within the limits"
        stage.said(f"checks it against {POLICY_FILE}: {verdict}; still needed: {', '.join(check.missing)}.")
        for name, value in claim_values(invoice).items():
            await task.slots.propose(name, value, source=task.calls[INVOICE_STEP])
        findings = "".join(f"- {finding}\n" for finding in check.findings)
        log = f"# Work log of {TASK}\n- Read {invoice.invoice_number} of {invoice.supplier} (phone)\n{findings}"
        await task.notes.write(WORKLOG, log, content_sha256=None)
        await phone.synced(timeout_s=SYNC_S)
        missing = ", ".join(slot.name for slot in task.slots.missing())
        stage.said(f"proposes {len(CLAIM_SLOTS)} values, writes a work log, and stops at: {missing}.")
        stage.reached("waiting")
        await stage.cue("never given")


async def _declare(task: Task, policy: TravelPolicy) -> None:
    for name, ask in CLAIM_SLOTS.items():
        await task.slots.declare(name, ask=ask, required=True)
    schema = {"type": "string", "pattern": policy.cost_center.pattern}
    await task.slots.declare(COST_CENTER, ask=policy.cost_center.ask, schema=schema, required=True)


async def come_back(stage: Stage, tools: TravelTools, relay: str) -> None:
    """Started again on its own file: catch up, work apart, show the conflict, and settle it with its user."""
    async with opened(stage, tools, relay) as phone:
        task = await phone.task(TASK, access="write")
        await phone.synced(timeout_s=SYNC_S)
        stage.said(f"is back on its own file and has caught up: the cost centre is {task.slots[COST_CENTER].value}.")
        stage.reached("caught up")
        await stage.cue("apart")
    await work_apart(stage, tools, _APART_COST_CENTERS, _APART_LINE)
    stage.reached("worked apart")
    await stage.cue("together")
    async with opened(stage, tools, relay) as phone:
        task = await phone.task(TASK, access="write")
        await phone.synced(timeout_s=SYNC_S)
        stage.said("is online again and sends what it wrote.")
        stage.reached("together")
        await stage.cue("look")
        await phone.synced(timeout_s=SYNC_S)
        slot = show_conflict(stage, task)
        stage.reached("looked")
        await stage.cue("settle")
        await _settle(stage, task, slot)
        await phone.synced(timeout_s=SYNC_S)
        stage.reached("settled")
        await stage.cue("finish")
        await phone.synced(timeout_s=SYNC_S)


async def _settle(stage: Stage, task: Task, slot: Slot) -> None:
    """Ask the user which of the values shown counts, and resolve the slot to it."""
    question = f"Which cost centre counts: {choices(slot)}?"
    candidate = chosen(slot, await stage.ask(COST_CENTER, question))
    while candidate is None:
        candidate = chosen(slot, await stage.ask_again(COST_CENTER, "That is none of them.", question))
    await task.slots.resolve(COST_CENTER, candidate)
    stage.said(f"resolves the conflict: the cost centre is {candidate.value}.")


if __name__ == "__main__":
    perform(PHONE, {"begin": begin, "return": come_back})
