"""Strings that want to be more than text, a trace made of them, and what sticks out of a page."""

from __future__ import annotations

import numpy as np
from made import trace_of

from dfsim.traces.synthetic import exact_step

EVIL = (
    "<script>alert(1)</script>",
    "</script><svg onload=alert(2)>",
    '"><img src=x onerror=alert(3)>',
    "'--><iframe src=//example.org>",
    "{{7*7}}{% raw %}",
    "]]>&amp;&lt;",
    "\u202egnp.exe\u2066",
    "\x00\x01\x1b[31mred\x9b\x7f",
    r"$\frac{1$_{",
    "_hidden\nname",
    "https://example.org/" + "a" * 120,
)


def hostile_trace(home):
    """A trace whose every string is hostile, and a strategy in a file of such a name."""
    count = len(EVIL)
    steps = []
    for step in (1, 2, 3):
        columns = exact_step([2] * count, 4, step=step, domains=EVIL)
        each = np.repeat(np.array(EVIL, dtype=object), 4)
        columns |= {"prompt_id": each, "prompt": each, "response": each, "group_uid": each}
        steps.append(columns)
    trace = trace_of(home / "trace", steps, label=" ".join(EVIL))
    file = home / "<" / "img src=x onerror=alert(4)>$x_{.py"
    file.parent.mkdir()
    file.write_text(
        "import numpy as np\nclass Mine:\n    level = 'response'\n"
        "    def weights(self, batch):\n        return np.arange(batch.num_responses) % 2.0\n"
    )
    return trace.path, f"{file}:Mine"


def wide(page):
    """Elements that stick out of the window, unless a container of theirs scrolls."""
    return page.run("""() => [...document.body.querySelectorAll("*")].filter((one) => {
        if (one.closest(".scroll, .card") && !one.matches(".scroll, .card")) return false;
        return one.getBoundingClientRect().right > window.innerWidth + 0.5;
    }).map((one) => one.outerHTML.slice(0, 80))""")
