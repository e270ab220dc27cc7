"""Options of the whole suite: how many examples hypothesis draws, and whether goldens are written anew."""

import pytest
from hypothesis import settings

# The same few examples every time; `--hypothesis-profile hunt` draws many, and others each time.
settings.register_profile("few", derandomize=True, deadline=None, max_examples=15, database=None)
settings.register_profile("hunt", deadline=None, max_examples=300, print_blob=True)
settings.load_profile("few")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
