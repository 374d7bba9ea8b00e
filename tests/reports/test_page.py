"""The page in a browser: self-contained, legible, sortable, printable, and deaf to hostile text."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from xml.etree import ElementTree

import pytest
from browser import SIZES, opened
from hostile import EVIL, hostile_trace, wide
from said import printed

from dfsim.reports.html import (
    Cell,
    Column,
    Excerpt,
    Figure,
    Finding,
    Findings,
    Page,
    Sample,
    Section,
    Sentence,
    Table,
    render,
    short,
    visible,
)

QUICK = ("--resamples", "5", "--quiet")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A replay whose every string is hostile: domains, ids, texts, label, strategy file."""
    home = tmp_path_factory.mktemp("hostile")
    trace, own = hostile_trace(home)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        printed(
            *("replay", trace, "-s", own, "-s", "tscl"),
            *("-s", "topk", "-p", "topk.fraction=[0.25, 0.5]", "--out", home / "out", *QUICK),
        )
    return home / "out"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_the_window_and_asks_for_nothing(chromium, hostile, size, scheme):
    with opened(chromium, hostile / "index.html", size, scheme) as seen:
        assert seen.complaints == []
        assert seen.requests == [(hostile / "index.html").as_uri()]
        width = seen.run("document.documentElement.scrollWidth")
        assert width <= SIZES[size]["width"]
        assert wide(seen) == []
        ink, paper = seen.run("""["color", "backgroundColor"].map((name) =>
            getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))""")
        assert (sum(paper) < sum(ink)) == (scheme == "dark")
        card = seen.run("getComputedStyle(document.querySelector('.card')).backgroundColor")
        assert card == "rgb(255, 255, 255)"


def test_every_figure_is_drawn_with_words_for_those_who_cannot_see_it(chromium, hostile):
    with opened(chromium, hostile / "index.html") as seen:
        pictures = seen.run("""[...document.images].map((i) => ({
            width: i.naturalWidth, alt: i.alt, data: i.src.slice(0, 11) }))""")
    assert len(pictures) == len(list(hostile.glob("*.png")))
    assert all(p["width"] > 300 and p["data"] == "data:image/" for p in pictures)
    assert all(len(p["alt"]) > 20 for p in pictures)


def test_sentences_come_first_and_provenance_last(chromium, hostile):
    record = json.loads((hostile / "replay.json").read_text(encoding="utf-8"))
    with opened(chromium, hostile / "index.html") as seen:
        text = " ".join(seen.run("document.body.innerText").split())
        headings = seen.run("[...document.querySelectorAll('h2')].map((h) => h.innerText)")
    assert headings[0] == "Strategies"
    assert headings[-2:] == ["Limits and notes", "Provenance"]
    none = record["strategies"]["none"]["estimates"]["effective_batch"]
    size = f"{none['mean']:.1f} here (95 % [{none['low']:.1f}, {none['high']:.1f}])"
    assert text.index(size) < text.index("The run under each strategy")
    findings = [d for s in record["strategies"].values() for d in s["diagnosis"]]
    assert findings
    for sentence in (*(d["message"] for d in findings), *record["notes"]):
        assert " ".join(visible(sentence).split()) in text
    assert record["trace"]["fingerprint"] in text[text.rindex("Provenance") :]


def test_print_hides_and_cuts_nothing(chromium, tmp_path):
    rows = [[Cell(f"row {i}"), *(Cell(f"{i}", i) for _ in range(8))] for i in range(60)]
    columns = [Column("name", kind="text"), *(Column(f"column {i}") for i in range(8))]
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 50"/>'
    (tmp_path / "a.svg").write_text(drawing)
    section = Section(
        "Part",
        tables=[Table("Long", columns, rows)],
        figures=[Figure("a", "alt")],
        samples=[Sample("One", [Excerpt("Response", "word\n" * 200)])],
    )
    with opened(chromium, written(tmp_path, section), "phone") as seen:
        cut = """[...document.querySelectorAll("main *")].filter((one) =>
            getComputedStyle(one).overflowY !== "visible" && (
                one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)
            ).map((one) => one.className || one.tagName)"""
        assert seen.run(cut) == ["scroll tall", "card", "PRE"]  # on a phone's screen
        seen.page.set_viewport_size({"width": 700, "height": 1000})  # A4 without its margins
        seen.page.emulate_media(media="print")
        assert seen.run(cut) == []
        assert wide(seen) == []
        for one in ("table", "img"):
            edge = f"document.querySelector('{one}').getBoundingClientRect().right"
            assert seen.run(edge) <= 700
        hidden = """[...document.querySelectorAll("main *")].filter((one) => !one.checkVisibility()
            ).map((one) => one.tagName)"""
        assert set(seen.run(hidden)) <= {"NAV", "A"}


# Tables


MISSING = Cell("–", math.nan)
UNSORTED = Table(
    "Numbers",
    [Column("name", kind="text"), Column("size", "How large.", kind="number")],
    [
        [Cell("b10"), Cell("9.5", 9.5)],
        [Cell("b9"), MISSING],
        [Cell("a"), Cell("1,000", 1000.0)],
        [Cell(""), Cell("−2", -2.0)],
        [Cell("C"), Cell("10%", 0.1)],
    ],
)


def written(folder, *sections, **page):
    page = Page("A title", "a lede", [Sentence("First.")], sections, **page)
    file = folder / "index.html"
    file.write_text(render(page, folder), encoding="utf-8")
    return file


@pytest.mark.parametrize("press", ["click", "Enter"])
def test_tables_sort_by_value_with_the_missing_last(chromium, tmp_path, press):
    file = written(tmp_path, Section("Part", tables=[UNSORTED]))
    with opened(chromium, file) as seen:

        def sort(name):
            button = seen.page.get_by_role("button", name=name)
            button.click() if press == "click" else button.press(press)
            cells = (
                "[...document.querySelectorAll('tbody tr')].map((r) => r.innerText.split('\\t'))"
            )
            states = "[...document.querySelectorAll('thead th')].map((h) => h.ariaSort)"
            return list(zip(*seen.run(cells), strict=True)), seen.run(states)

        (_, sizes), states = sort("size")
        assert sizes == ("1,000", "9.5", "10%", "−2", "–")
        assert states == ["none", "descending"]
        (_, sizes), states = sort("size")
        assert sizes == ("−2", "10%", "9.5", "1,000", "–")
        assert states == ["none", "ascending"]
        (names, _), states = sort("name")
        assert names == ("a", "b9", "b10", "C", "")
        assert states == ["ascending", "none"]
        (names, sizes), states = sort("name")
        assert names == ("C", "b10", "b9", "a", "")
        assert sizes == ("10%", "9.5", "–", "1,000", "−2")
        assert states == ["descending", "none"]
        assert seen.complaints == []


def test_the_limit_of_a_number_stands_under_its_table(chromium, tmp_path):
    with opened(chromium, written(tmp_path, Section("Part", tables=[UNSORTED]))) as seen:
        bottom = seen.run("document.querySelector('table').getBoundingClientRect().bottom")
        help_ = seen.page.get_by_text("How large.").bounding_box()
    assert 0 <= help_["y"] - bottom < 60


def test_a_long_table_scrolls_inside_itself(chromium, tmp_path):
    rows = [[Cell(f"row {i}"), *(Cell(f"{i}", i) for _ in range(12))] for i in range(60)]
    columns = [Column("name", kind="text"), *(Column(f"column {i}") for i in range(12))]
    file = written(tmp_path, Section("Part", tables=[Table("Long", columns, rows)]))
    with opened(chromium, file, "phone") as seen:
        assert seen.run("document.documentElement.scrollWidth") == 375
        box = seen.run("""(({scrollHeight, clientHeight, scrollWidth, clientWidth}) =>
            [scrollHeight > clientHeight, scrollWidth > clientWidth]
        )(document.querySelector(".scroll"))""")
        assert box == [True, True]
        seen.page.emulate_media(media="print")
        assert seen.run("document.querySelector('.scroll').clientHeight") > 1000


# Hostile text


def test_hostile_text_is_shown_and_does_nothing(chromium, hostile):
    with opened(chromium, hostile / "index.html") as seen:
        assert seen.dialogs == []
        text = seen.run("document.body.textContent")
        excerpts = seen.run("[...document.querySelectorAll('pre')].map((p) => p.textContent)")
        foreign = "document.querySelectorAll('script, iframe, svg, object, link, [onerror]').length"
        assert seen.run(foreign) == 2  # the page's own script, and its empty icon
    for evil in EVIL:
        assert visible(evil) in text
    assert set(excerpts) <= {visible(evil) for evil in EVIL}
    assert len(excerpts) == 5 * 3
    assert "onerror=alert(4)>$x_{.py:Mine" in text


def test_hostile_names_in_figures_are_letters(hostile):
    for file in hostile.glob("*.svg"):
        tree = ElementTree.parse(file)
        names = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert not names & {"script", "foreignObject", "iframe", "image", "a"}
        assert not any(key.startswith("on") for element in tree.iter() for key in element.attrib)


def strings(thing):
    """A page whose every string is hostile."""
    if isinstance(thing, str):
        return EVIL[0] + EVIL[2] + EVIL[4] + thing
    if dataclasses.is_dataclass(thing):
        values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        keep = {"kind", "stem"}
        return type(thing)(**{n: v if n in keep else strings(v) for n, v in values.items()})
    if isinstance(thing, (list, tuple)):
        return type(thing)(strings(one) for one in thing)
    return thing


def test_no_field_of_a_page_is_trusted(chromium, tmp_path):
    """Pages of other commands use fields that a replay leaves empty."""
    section = Section(
        "Part",
        ["text"],
        [dataclasses.replace(UNSORTED, notes=["note"])],
        [Figure("picture", "alt", "caption")],
        [Findings("about", [Finding("name", "message", "remedy")], "text")],
        [Sample("title", [Excerpt("label", "text", [("fact", "value")], "cut")])],
    )
    page = Page(
        "title",
        "lede",
        [Sentence("text"), Sentence("text", "about", ["tag"])],
        [section],
        ["note"],
        [("name", "value")],
        "caution",
    )
    (tmp_path / "picture.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    file = tmp_path / "index.html"
    file.write_text(render(strings(page), tmp_path), encoding="utf-8")
    with opened(chromium, file) as seen:
        assert seen.dialogs == []
        assert seen.complaints == []
        assert seen.run("document.querySelectorAll('script').length") == 1
        assert seen.run("document.images.length") == 1
        text = seen.run("document.body.textContent")
    assert "{{7*7}}" in text
    assert "49" not in text


# What is shown of odd strings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\x00\x1b\x7f", "␀␛␡"),
        ("\x85\u202e\u2069", "\\x85\\u202e\\u2069"),
        ("\ud800\uffff", "\ufffd\ufffd"),
        ("שלום 你好 🙂", "שלום 你好 🙂"),
    ],
)
def test_control_characters_are_seen(text, shown):
    assert visible(text) == shown


def test_long_names_keep_both_ends():
    assert short("maxvar", 6) == "maxvar"
    assert short("abcdefghij", 6) == "ab…hij"
    assert short("two\n lines", 20) == "two lines"
    assert len(short("x" * 500, 40)) == 40


# Figures


def test_a_large_drawing_is_embedded_as_pixels_and_a_missing_one_left_out(tmp_path, monkeypatch):
    from dfsim.reports import html

    (tmp_path / "a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "a.png").write_bytes(b"png")
    section = Section("Part", figures=[Figure("a", "alt of a"), Figure("b", "alt of b")])
    assert "data:image/svg+xml" in written(tmp_path, section).read_text(encoding="utf-8")
    monkeypatch.setattr(html, "SVG_LIMIT", 10)
    text = written(tmp_path, section).read_text(encoding="utf-8")
    assert "data:image/png" in text
    assert "svg+xml" not in text
    assert "alt of b" not in text
