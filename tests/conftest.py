"""The hypothesis profiles: free at home, repeatable in CI. Every log that a test makes is decided again behind it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rewake.actors.testing import forbid_real_providers, redecided

settings.register_profile("home", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")


@pytest.fixture(autouse=True)
def laws() -> Iterator[None]:
    """Nothing leaves this machine, and today's code decides every log of the test as it was decided."""
    with forbid_real_providers(), redecided():
        yield
