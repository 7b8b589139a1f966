"""The soak, short: what `make soak` does for ten minutes."""

from pathlib import Path

import pytest

from tests.soak.__main__ import soak
from tests.soak.trend import trend


@pytest.mark.slow
async def test_some_devices_converge_whatever_happens_to_links_and_relay(tmp_path: Path) -> None:
    report = await soak(tmp_path, seconds=15, endpoints=8, seed=3)
    assert report.links_cut > 10 and report.relay_terminated and report.relay_killed
    assert report.verdict.holds, report.verdict
    # Memory is judged by the long run: in seconds everything is still warming up.
    assert report.relay_handles.is_flat and report.devices_handles.is_flat and report.files[0] == report.files[1]


def test_a_leak_is_seen() -> None:
    at_s = [float(second) for second in range(100)]
    assert trend(at_s, [100.0 + 5 * (second % 2) for second in range(100)], part=0.1, base=0).is_flat
    assert not trend(at_s, [100.0 + second for second in range(100)], part=0.1, base=0).is_flat
