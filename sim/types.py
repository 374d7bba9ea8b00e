"""Types that commands and results share."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with the work done, and the whole of it or ``None`` where that is not known."""
