"""The part of a page that shows captured text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..html import Cell, Column, Excerpt, Sample, Section, Table, short
from ..tables import number

NAME_LIMIT = 90

NO_TEXT = (
    "Pass rates by prompt and sample responses need text: import with --keep-text, or capture with "
    "+dfsim.capture.text=true."
)


def text_sections(text: Mapping[str, Any]) -> list[Section]:
    """Pass rate by prompt, and sample responses.

    Args:
        text: ``text`` of a replay's record.
    """
    sections = [_prompts(text)]
    if text["samples"]:
        sections.append(_samples(text))
    return sections


def _prompts(text: Mapping[str, Any]) -> Section:
    rate = "pass rate" if text["binary_rewards"] else "mean reward"
    form = ".0%" if text["binary_rewards"] else ".3g"
    columns = [
        Column("prompt", kind="text"),
        Column("domain", kind="text"),
        Column("visits", "Steps in which it was drawn."),
        Column("responses", "Logged responses, over all visits."),
        Column(
            rate,
            "Mean reward of its logged responses"
            + (": every reward is 0 or 1." if text["binary_rewards"] else "; not all are 0 or 1."),
        ),
        Column("first visit", "The same, of its first visit alone."),
        Column(
            "last visit", "Of its last visit. The policy changed in between, and so did chance."
        ),
        Column("drift", "Last visit less first visit; a few responses each, so mostly noise."),
    ]
    rows = []
    for prompt in sorted(text["prompts"], key=_difficulty):
        first, last = prompt["first_visit"], prompt["last_visit"]
        again = prompt["visits"] > 1 and None not in (first, last)
        rows.append(
            [
                Cell(_name(prompt["id"], prompt["text"])),
                Cell(prompt["domain"] or "–"),
                Cell(f"{prompt['visits']:,}", prompt["visits"]),
                Cell(f"{prompt['responses']:,}", prompt["responses"]),
                *(_rate(prompt["mean_reward"], form), _rate(first, form), _rate(last, form)),
                _rate(last - first if again else None, f"+{form}"),
            ]
        )
    if not any(prompt["domain"] for prompt in text["prompts"]):
        columns, rows = [_without(columns), [_without(row) for row in rows]]
    limit = text["limits"]["prompts"]
    which = f"{limit} of the run's prompts, drawn at random" if text["more_prompts"] else "Prompts"
    caption = f"{which}, hardest first"
    return Section(f"{rate.capitalize()} by prompt", tables=[Table(caption, columns, rows)])


def _without(row: list[Any]) -> list[Any]:
    return [row[0], *row[2:]]


def _difficulty(prompt: Mapping[str, Any]) -> tuple[bool, float]:
    rate = prompt["mean_reward"]
    return rate is None, 0.0 if rate is None else rate


def _rate(value: float | None, form: str) -> Cell:
    return Cell("–") if value is None else Cell(number(value, form), value)


def _name(id: str | None, text: Mapping[str, Any] | None) -> str:
    """A prompt in one line: its text where there is any, else its id."""
    return short(text["shown"], NAME_LIMIT) if text and text["shown"].strip() else id or "–"


def _samples(text: Mapping[str, Any]) -> Section:
    samples = []
    for sample in text["samples"]:
        id = "" if sample["id"] is None else f" · {sample['id']}"
        excerpts = [_excerpt("Prompt", sample["prompt"], [])] if sample["prompt"] else []
        for label, response in zip(
            ("Highest reward", "Lowest reward"), sample["responses"], strict=True
        ):
            excerpts.append(_excerpt(label, response["text"], _facts(response)))
        samples.append(Sample(f"Step {sample['step']}{id}", excerpts))
    return Section(
        "Sample responses",
        text=[
            "The best and the worst response to a few random prompts whose responses differ, at "
            "their last such visit. Examples to read, not evidence."
        ],
        samples=samples,
    )


def _facts(response: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("reward", response["reward"]), ("advantage", response["advantage"])]
    facts += [(f"{n} weight", w) for n, w in response["weights"].items() if n != "none"]
    return [(name, "–" if value is None else f"{value:.3g}") for name, value in facts]


def _excerpt(label: str, text: Mapping[str, Any] | None, facts: list[tuple[str, str]]) -> Excerpt:
    if text is None:
        return Excerpt(label, "no text was captured", facts)
    left = text["characters"] - len(text["shown"])
    cut = f"Cut: {left:,} of {text['characters']:,} characters are not shown." if left else ""
    return Excerpt(label, text["shown"], facts, cut)
