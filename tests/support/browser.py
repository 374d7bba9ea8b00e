"""Headless Chromium for pages, one a session; it notes all that a page asks for or complains of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SIZES = {"phone": {"width": 375, "height": 812}, "desktop": {"width": 1280, "height": 900}}
ARGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass
class Opened:
    """A page that is open, and what it did."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def run(self, script: str, *args: Any) -> Any:
        return self.page.evaluate(script, *args)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(ARGS))
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path, size: str = "desktop", scheme: str = "light") -> Iterator[Any]:
    context = browser.new_context(viewport=SIZES[size], color_scheme=scheme)
    seen = Opened(context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("console", lambda message: seen.complaints.append(message.text))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))

    def refuse(dialog: Any) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    seen.page.on("dialog", refuse)
    seen.page.goto(file.as_uri())
    seen.run("Promise.all([...document.images].map((image) => image.decode()))")
    try:
        yield seen
    finally:
        context.close()
