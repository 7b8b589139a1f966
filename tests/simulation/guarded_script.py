"""The verbs of a call that cannot be undone, step by step: claim, begin, act, end, settle, approve."""

from sync_core.document.calls import CallBegun, CallRecorded, CallState
from sync_core.entry import Effect
from sync_core.parts import Role
from sync_core.petitions import ClaimVerdict
from sync_core.replica import commands as c
from sync_core.values import digest_text
from tests.simulation.device import Device
from tests.simulation.journal import ApprovalOp, Ending, GuardedOp
from tests.simulation.outside import Deed
from tests.simulation.script import TASK, Script

__all__ = ["GuardedScript"]

_ARGUMENTS = '{"amount":100}'
_DIGEST = digest_text(_ARGUMENTS)


class GuardedScript(Script):
    """A phone that may approve, a desktop that may write, a tablet that may do everything, and an outside system."""

    def __init__(self, *, enforces: bool = True, seed: int = 1) -> None:
        super().__init__(seed=seed)
        self.world.outside.enforces = enforces
        self.world.relay.roles = {"phone": Role.APPROVE, "desktop": Role.WRITE, "tablet": Role.ADMIN}
        for name in self.world.relay.roles:
            self.devices[name] = self.boot(name)
        self.phone, self.desktop, self.tablet = self.devices.values()
        self.open(self.phone)
        self.synced(self.phone)
        for device in (self.desktop, self.tablet):
            self.open(device, create=False)

    def claim(
        self, device: Device, step: str = "pay", *, digest: str = _DIGEST, approval: bool = False, checked: bool = True
    ) -> c.Claimed | CallRecorded:
        """Ask for the key of a step; `approval`: the tool needs a person's."""
        command = c.ClaimCall(self.ref(), TASK, 1, step, "pay", digest, "", (), approval, checked)
        value = self.ask(device, command)
        assert isinstance(value, c.Claimed | CallRecorded)
        return value

    def verdict(
        self, device: Device, step: str = "pay", *, digest: str = _DIGEST, approval: bool = False, checked: bool = True
    ) -> ClaimVerdict:
        """Ask for the key of a step and return what the authority said."""
        claimed = self.claim(device, step, digest=digest, approval=approval, checked=checked)
        assert isinstance(claimed, c.Claimed)
        return claimed.answer.verdict

    def begin(self, device: Device, step: str = "pay", *, approval: bool = False, checked: bool = True) -> CallBegun:
        """Get the key of a step, and write the intent."""
        claimed = self.claim(device, step, approval=approval, checked=checked)
        assert isinstance(claimed, c.Claimed)
        answer = claimed.answer
        assert answer.verdict is ClaimVerdict.GRANTED, answer
        command = c.BeginCall(
            self.ref(),
            TASK,
            1,
            step,
            "pay",
            Effect.IRREVERSIBLE,
            _DIGEST,
            _ARGUMENTS,
            claimed.attempt,
            answer.token,
            answer.key,
        )
        begun = self.ask(device, command)
        assert isinstance(begun, CallBegun)
        self._note(device, step, begun)
        return begun

    def _note(self, device: Device, step: str, begun: CallBegun) -> None:
        """Tell the watchers of the grant."""
        number, tag = self.world.journal.next_tag("g")
        op = GuardedOp(
            number=number,
            device=device.label,
            task=TASK,
            tag=tag,
            version=1,
            step=step,
            tool="pay",
            entity="",
            digest=_DIGEST,
            needs_approval=False,
            principal=device.name,
            attempt=begun.attempt,
            key=begun.idempotency_key,
            token=begun.token,
        )
        self.world.guarded.granted(op)
        self.world.journal.add(op)

    def act(self, device: Device, begun: CallBegun) -> str:
        """Let the effect happen outside; raises `TurnedAway`."""
        now_ms = self.world.scheduler.now_ms
        result = f'"by {device.label}"'
        return self.world.outside.act(
            Deed(begun.idempotency_key, begun.token, begun.attempt, device.label, result, now_ms)
        )

    def end(self, device: Device, begun: CallBegun, result: str | None, step: str = "pay") -> None:
        """Record how the tool ended: with a result, or None for a tool that says that nothing happened."""
        ok = result is not None
        op = next(op for op in self.world.journal.guarded if op.attempt == begun.attempt)
        op.ending = Ending.RETURNED if ok else Ending.DID_NOT_HAPPEN
        op.asked_to_record = True
        error = None if ok else "turned away"
        self.ask(device, c.EndCall(self.ref(), TASK, 1, step, begun.attempt, ok, result, error, False, begun.token))

    def say(self, device: Device, happened: bool, result: str | None = None, step: str = "pay") -> None:
        """A person says whether a call in doubt happened."""
        self.ask(device, c.SettleCall(self.ref(), TASK, 1, step, "pay", happened, "", result))

    def request(self, device: Device) -> str:
        """Ask for an approval of the step, and let everybody see that."""
        asked = c.RequestApproval(self.ref(), TASK, 1, "pay", "pay", _DIGEST, _ARGUMENTS)
        request = self.ask(device, asked)
        assert isinstance(request, str)
        self.synced(device)
        for other in self.devices.values():
            self.synced(other)
        return request

    def approve(self, device: Device, request: str) -> None:
        """A person approves the request; offline, if the device is."""
        number, tag = self.world.journal.next_tag("a")
        op = ApprovalOp(
            number=number,
            device=device.label,
            task=TASK,
            tag=tag,
            version=1,
            step="pay",
            tool="pay",
            digest=_DIGEST,
            approved=True,
            principal=device.name,
        )
        self.world.journal.add(op)
        self.ask(device, c.GiveApproval(self.ref(), TASK, request, True, tag))

    def state(self, step: str = "pay") -> CallState:
        """Return where all devices see the step in the end."""
        return self.settle().calls[1, step].state

    @property
    def deeds(self) -> list[str]:
        """Who made the effect happen, in order."""
        return [deed.device for deed in self.world.outside.deeds]
