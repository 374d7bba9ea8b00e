"""The pages of a screen, a comparison and an inspection in a browser, with hostile names."""

from __future__ import annotations

import json

import polars as pl
import pytest
from browser import SIZES, opened
from hostile import EVIL, hostile_trace, wide
from said import printed

from dfsim.reports.html import visible

PICTURES = {"screen": 2, "compare": 2, "inspect": 0}
NAMES = [name for name in EVIL if "\x00" not in name]  # no CSV holds the others


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Kind → folder of a page whose every string is hostile."""
    home = tmp_path_factory.mktemp("kinds")
    trace, own = hostile_trace(home)
    quick = ("--resamples", "5", "--quiet")
    sweep = ("-s", "topk", "-p", "topk.fraction=[0.25, 0.5]")
    printed("screen", trace, "-s", own, "-s", "ar", *sweep, "--out", home / "screen", *quick)
    rows = [
        {"method": method, "seed": seed, "cell": EVIL[0], EVIL[2]: 50 + k % 3 + seed, "other": 60}
        for k, method in enumerate(["none", *NAMES])
        for seed in (1, 2, 3)
    ]
    rows += [{**row, "cell": EVIL[4]} for row in rows]
    table = home / "<img src=x onerror=alert(5)>.csv"
    pl.DataFrame(rows).write_csv(table)
    printed("compare", table, "--out", home / "compare", "--resamples", "100")
    printed("inspect", trace, "--out", home / "inspect")
    return {kind: home / kind for kind in ("screen", "compare", "inspect")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["screen", "compare", "inspect"])
def test_it_fits_asks_for_nothing_and_runs_nothing(chromium, pages, kind, size, scheme):
    page = pages[kind] / "index.html"
    with opened(chromium, page, size, scheme) as seen:
        assert seen.complaints == []
        assert seen.dialogs == []
        assert seen.requests == [page.as_uri()]
        assert seen.run("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        assert wide(seen) == []
        pictures = seen.run("[...document.images].map((i) => i.naturalWidth)")
    assert len(pictures) == len(list(pages[kind].glob("*.png"))) == PICTURES[kind]
    assert all(width > 300 for width in pictures)


def test_hostile_names_are_shown_as_text(chromium, pages):
    shown = {}
    for kind, folder in pages.items():
        with opened(chromium, folder / "index.html") as seen:
            shown[kind] = " ".join(seen.run("document.body.textContent").split())
            foreign = "document.querySelectorAll('iframe, svg, object, [onerror]').length"
            assert seen.run(foreign) == 0
    for evil in EVIL:
        assert " ".join(visible(evil).split()) in shown["screen"]
    for name in NAMES:
        assert " ".join(visible(name).split()) in shown["compare"]
    assert "<img src=x onerror=alert(5)>.csv" in shown["compare"]


@pytest.mark.parametrize(
    ("kind", "heading", "read"),
    [
        ("screen", "trained tokens", lambda text: float(text.rstrip("%"))),
        ("compare", "overall", float),
    ],
)
def test_a_table_sorts_by_value(chromium, pages, kind, heading, read):
    place = f"""[...document.querySelectorAll("table")].findIndex((table) =>
        table.tHead.innerText.replace(/\\s+/g, " ").includes("{heading}"))"""
    cells = f"""(() => {{
        const table = document.querySelectorAll("table")[{place}];
        const names = [...table.tHead.rows[0].cells].map((cell) => cell.innerText);
        const at = names.findIndex((name) => name.replace(/\\s+/g, " ").startsWith("{heading}"));
        return [...table.tBodies[0].rows].map((row) => row.cells[at].innerText);
    }})()"""
    with opened(chromium, pages[kind] / "index.html") as seen:
        table = seen.page.locator("table").nth(seen.run(place))
        button = table.get_by_role("button", name=heading)
        before = [read(text) for text in seen.run(cells)]
        button.click()
        once = [read(text) for text in seen.run(cells)]
        button.click()
        twice = [read(text) for text in seen.run(cells)]
    assert len(set(before)) > 1
    assert sorted(before) in (once, twice)
    assert sorted(before, reverse=True) in (once, twice)


def test_the_shortlist_stands_before_the_table(chromium, pages):
    record = json.loads((pages["screen"] / "screen.json").read_text(encoding="utf-8"))
    with opened(chromium, pages["screen"] / "index.html") as seen:
        text = " ".join(seen.run("document.body.textContent").split())
    for part in record["traces"][0]["shortlist"]:
        for sentence in part["sentences"]:
            assert text.index(" ".join(visible(sentence).split())) < text.index("Sorted by")
