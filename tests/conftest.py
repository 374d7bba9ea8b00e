"""Where tests find the bundled trace, and real data that lies beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import chromium as chromium
from rehearsals import rehearsed as rehearsed

from dfsim.traces.storage.store import Trace, open_trace

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
FIXTURES = ROOT / "tests" / "fixtures"


@pytest.fixture(scope="session")
def bundled() -> Trace:
    return open_trace(ROOT / "traces")


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the real dumps beside the repository are not on this machine")
    return SHARED
