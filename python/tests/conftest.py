import os
from pathlib import Path

import pytest

# Before gradloom is imported: kernels of these tests are compiled, not read from an earlier run's cache.
os.environ.setdefault("GRADLOOM_CACHE_DIR", "off")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--only-torch", action="store_true", help="only the tests in files named test_torch*")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Importing a file of the others is cheap, and their names on the command line stay valid."""
    if config.getoption("--only-torch"):
        items[:] = [item for item in items if Path(item.path).name.startswith("test_torch")]
