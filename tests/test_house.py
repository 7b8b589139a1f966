"""The house: layers, sizes, exports and what else is kept by every file. All violations are printed at once.

The table below is the order in which files may know each other: a file imports only from files named before it. A new
file needs its place here, which is where its author says what it may know.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import House, Layer

ROOT = Path(__file__).resolve().parent.parent

TABLE = (
    Layer(
        "sync_core",
        "errors limits ids checked values keys rulings entry completion parts frames petitions wire scan guard",
        pure=True,
    ),
    Layer(
        "sync_core/document",
        "placed slots calls approvals history handover diff notes view patterns definitions guarded digest genesis"
        " growth ledger records shared note_table slot_table rewrite record_writes document",
        pure=True,
    ),
    Layer(
        "sync_core/replica",
        "writes changes commands patience outbox stream effects session telling core follow transfers loaded task tally"
        " following local endings opening snapshots log recovery adoption digests table petitions frames loading desk"
        " renewal link replica",
        pure=True,
    ),
    Layer(
        "sync_core/context",
        "store rows transaction faults ownership migrations blobs tombstones streams reads apply connection"
        " sqlite_store",
    ),
    Layer("sync_core/endpoint", "replay secrets export explain gauges", pure=True),
    Layer(
        "sync_core/endpoint",
        "transport points runner stats link safeguards tools idempotency given changes listing opening readable stored"
        " handle history notes recorded guarded calls slots restore audit brief model_tools turns task endpoint",
    ),
    Layer(
        "server_relay",
        "config clock notes admission revocations tokens key_records records effects summary authority keyring",
        pure=True,
    ),
    Layer(
        "server_relay",
        "allowance quarantine sessions border streams fanout hello blobs snapshots listings keeper petitions evidence"
        " intake lifetimes tasks relay",
        pure=True,
    ),
    Layer(
        "server_relay/mailbox",
        "mailbox schema key_rows lifetimes writing reading restoring copying verifying sqlite_mailbox",
    ),
    Layer("server_relay", "histogram", pure=True),
    Layer("server_relay", "settings logs doors metrics exposition health peers inbox access server"),
    Layer(
        "server_relay/command",
        "__init__ output token load bench control poison purging restoring store purge top service run",
    ),
    Layer("server_relay", "__main__"),
    Layer("sync_core", "testing __init__"),
    Layer("clients", "config"),
    Layer(
        "clients/demo",
        "line_file invoice policy executions transcript messages narrator people processes conflict timeline story"
        " stage stores tools acts phone desktop replayed evidence story_timeline layout diagram play command",
    ),
    Layer("clients/desktop", "output read_token shapes standard_input connection"),
    Layer(
        "clients/desktop/rehearse",
        "logs relay_process recording rules dependence outside schedule stand_ins devices player stores evidence"
        " guarded figures report rehearsal command",
    ),
    Layer("clients/desktop", "facts findings routes", pure=True),
    Layer(
        "clients/desktop",
        "slot note task stats audit guarded ending surroundings relay_facts doctor services watch app __main__",
    ),
)
CRDT_FILES = frozenset({"sync_core/document/shared.py"})


def test_the_house_is_in_order() -> None:
    violations = House(ROOT, TABLE, CRDT_FILES).violations()
    assert not violations, "\n".join(["", *violations])


def run(program: str) -> None:
    """Run a program in a process of its own, which imports nothing but what the program does."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_relay_runs_without_pycrdt_and_without_the_engine() -> None:
    run(
        "import server_relay.server, sys\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] == 'pycrdt'"
        " or name.startswith(('sync_core.document', 'sync_core.replica', 'sync_core.context', 'sync_core.endpoint'))]\n"
        "assert not loaded, loaded"
    )


def test_the_guard_loads_neither_pycrdt_nor_a_network_nor_a_disk() -> None:
    run(
        "import sync_core.guard, sys\n"
        "loaded = [name for name in ('pycrdt', 'asyncio', 'sqlite3', 'websockets') if name in sys.modules]\n"
        "assert not loaded, loaded"
    )


def test_every_name_behind_the_door_is_there() -> None:
    run("import sync_core\nfor name in sync_core.__all__:\n    getattr(sync_core, name)")


# --- the rules themselves can fail ------------------------------------------------------------------------------------

CLEAN = '"""A module."""\n\n__all__ = ["work"]\n\n\ndef work() -> int:\n    return 1\n'

FAULTS = {
    "which is not above it": {
        "sync_core/low.py": CLEAN.replace("\n\n__all__", "\n\nimport sync_core.high\n\n__all__", 1)
    },
    "has no place in the layer table": {"sync_core/new.py": CLEAN},
    "but not in the tree": {"sync_core/high.py": None},
    "a relative import": {"sync_core/high.py": CLEAN.replace("\n\n__all__", "\n\nfrom . import low\n\n__all__", 1)},
    "a test": {"sync_core/high.py": CLEAN.replace("\n\n__all__", "\n\nimport tests.house\n\n__all__", 1)},
    "a pure file imports time": {"sync_core/low.py": CLEAN.replace("return 1", "import time\n    return 1")},
    "imports pycrdt": {"sync_core/high.py": CLEAN.replace("\n\n__all__", "\n\nfrom pycrdt import Doc\n\n__all__", 1)},
    "the relay imports sync_core.low": {"server_relay/relay.py": CLEAN + "import sync_core.low\n"},
    "lines, more than 400": {"sync_core/high.py": CLEAN + "#\n" * 400},
    "work has 71 lines": {"sync_core/high.py": CLEAN + "    #\n" * 68 + "    ...\n"},
    "has no docstring": {"sync_core/high.py": CLEAN.split("\n", 2)[2]},
    "has no __all__": {"sync_core/high.py": CLEAN.replace('__all__ = ["work"]', "")},
    "work is not in __all__": {"sync_core/high.py": CLEAN.replace('["work"]', "[]")},
    "BOUND is not in __all__": {"sync_core/high.py": CLEAN + "BOUND: int = 5\n"},
    "__all__ lists play": {"sync_core/high.py": CLEAN.replace('["work"]', '["play", "work"]')},
    "Any in the signature of work": {"sync_core/high.py": CLEAN.replace("work()", "work(x: list[Any])")},
    "sleeps": {"tests/test_low.py": "import asyncio\n\n\nasync def test_it():\n    await asyncio.sleep(0.1)\n"},
    "does not belong to the top level": {"notes.txt": "x"},
    "a registry or a path of one machine": {"README.md": "see /" + "root/x"},
}


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=str)
def test_every_rule_sees_its_fault_and_nothing_else(fault: str | None, tmp_path: Path) -> None:
    files: dict[str, str | None] = {
        "sync_core/low.py": CLEAN,
        "sync_core/high.py": CLEAN.replace("return 1", "import sync_core.low\n    import time\n    return 1"),
        "sync_core/empty/__init__.py": "",
        "server_relay/relay.py": CLEAN,
        "tests/house.py": "import asyncio\n\n\nasync def turn():\n    await asyncio.sleep(0)\n",
        "tests/end_to_end/test_it.py": "import time\n\ntime.sleep(1)\n",
        "README.md": "A page.\n",
        ".hidden": "",
    }
    files |= FAULTS[fault] if fault else {}
    for path, text in files.items():
        if text is not None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
    table = (Layer("sync_core", "low", pure=True), Layer("sync_core", "high"), Layer("server_relay", "relay"))
    present = sorted(path for path, text in files.items() if text is not None)
    violations = House(tmp_path, table, frozenset({"sync_core/crdt.py"}), present).violations()
    assert len(violations) == bool(fault), violations
    if fault:
        assert fault in violations[0]
