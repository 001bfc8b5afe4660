"""What faults need of the machine."""

import pytest

from tests.harness.crash_runs import may_mount


@pytest.fixture(scope="session")
def mounts() -> None:
    """Leave a test out where file systems may not be mounted; it is listed as not run."""
    if not may_mount():
        pytest.skip("mounting is not allowed: be root, or unshare --user --map-root-user --mount")
