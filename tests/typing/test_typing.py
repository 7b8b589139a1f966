"""The samples in this folder are what `mypy --strict` must see; an ignore that is not needed is an error there."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("sample", sorted(HERE.glob("sample_*.py")), ids=lambda path: path.stem)
def test_mypy_sees_a_tools_own_parameters_and_result(sample: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", str(sample)]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent.parent, check=False)
    assert checked.returncode == 0, checked.stdout
