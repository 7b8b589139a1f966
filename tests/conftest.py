"""What all tests share: a seed for hypothesis, and campaigns that run only when they are asked for."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure, so nothing is judged by how long it takes.
NOT_TIMED = [HealthCheck.too_slow]
settings.register_profile("segue", derandomize=True, deadline=None, database=None, suppress_health_check=NOT_TIMED)
settings.load_profile("segue")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `campaign`, unless `-m` speaks of them."""
    if "campaign" in str(config.getoption("markexpr")):
        return
    campaigns = [item for item in items if item.get_closest_marker("campaign")]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if item not in campaigns]
