"""The two tools of the demo: read the invoice, check it against the policy.

Both only read, so no server has to guard them. Each writes a line to the execution log whenever it really runs, which
is how the parent counts executions without asking Segue.
"""

from pathlib import Path

from clients.demo.executions import log_execution
from clients.demo.invoice import Invoice, read_invoice_file
from clients.demo.policy import PolicyCheck, check_invoice, load_policy
from clients.demo.story import INVOICE_STEP, POLICY_STEP, SHIPPED
from sync_core import Effect, tool

__all__ = ["TravelTools"]


class TravelTools:
    """The tools as one device runs them: a call of `read_invoice` or `check_policy` is logged under its name."""

    def __init__(self, device: str, executions: Path) -> None:
        @tool(effect=Effect.READ)
        def read_invoice(file: str) -> Invoice:
            """Read an invoice that ships with the demo."""
            log_execution(executions, device, "read_invoice", INVOICE_STEP)
            return read_invoice_file(SHIPPED / file)

        @tool(effect=Effect.READ)
        def check_policy(invoice: Invoice, policy: str) -> PolicyCheck:
            """Check an invoice against a travel policy that ships with the demo."""
            log_execution(executions, device, "check_policy", POLICY_STEP)
            return check_invoice(invoice, load_policy(SHIPPED / policy))

        self.read_invoice = read_invoice
        self.check_policy = check_policy
