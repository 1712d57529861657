"""The hypothesis profiles: free at home, repeatable in CI."""

import os

from hypothesis import settings

settings.register_profile("home", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")
