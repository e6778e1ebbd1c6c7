"""Options and fixtures for all tests."""

import signal

import pytest

# Whoever starts the tests in the background may have interrupts ignored; several tests send one, to themselves or to
# processes of theirs, which inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
