"""What all tests share: a seed for hypothesis, and campaigns that run only when they are asked for."""

import pytest
from hypothesis import settings

settings.register_profile("segue", derandomize=True, deadline=None, database=None)
settings.load_profile("segue")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `campaign`, unless `-m` speaks of them."""
    if "campaign" in str(config.getoption("markexpr")):
        return
    campaigns = [item for item in items if item.get_closest_marker("campaign")]
    if campaigns:
        config.hook.pytest_deselected(items=campaigns)
        items[:] = [item for item in items if item not in campaigns]
