"""A relay in a process of its own, and two devices that use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.command_line import Device, running_relay


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    with running_relay(tmp_path, "--port", "0") as url:
        yield url


@pytest.fixture
def phone(tmp_path: Path, relay: str) -> Device:
    return Device(tmp_path / "phone", "phone", relay)


@pytest.fixture
def desktop(tmp_path: Path, relay: str) -> Device:
    return Device(tmp_path / "desktop", "desktop", relay)
