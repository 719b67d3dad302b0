"""Fixtures for pytest, which finds them by the package's entry point.

    def test_two_runs(dlock_uri):
        start(dlock_uri)

The package is imported by a test that uses them: a pytest of a program without dlock's library is not disturbed.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from .client import Client


@pytest.fixture
def dlock_uri() -> str:
    """The URI of an empty server in this process's memory, which no other test uses."""
    return f"mem:{uuid.uuid4().hex}"


@pytest.fixture
def dlock_client(dlock_uri: str) -> Iterator[Client]:
    """A client of `dlock_uri`, closed at the end of the test."""
    from .client import Client

    with Client(dlock_uri) as client:
        yield client
