"""Samplers of a user's own, as files."""

from __future__ import annotations

from documented import blocks


def pool_file(folder):
    """The worked example of ``docs/own_sampler.md``."""
    (text,) = [text for info, text in blocks("own_sampler.md") if "pool.py" in info]
    assert len(text.splitlines()) < 40
    path = folder / "pool.py"
    path.write_text(text)
    return path


BROKEN = {
    "Negative": ("proposals_are_finite_and_not_negative", "return -np.ones(self.size)"),
    "Nothing": ("proposals_are_finite_and_not_negative", "return np.zeros(self.size)"),
    "Short": ("proposals_are_finite_and_not_negative", "return np.ones(1)"),
    "Counts": ("asking_changes_nothing", "self.seen += 1; return np.arange(self.size) + self.seen"),
    "Fickle": ("same_observations_same_proposals", "return 1 + self.luck"),
    "Forgets": ("state_survives_a_restart", "return np.arange(self.size) + 1.0 + self.seen"),
}
"""Class → the invariant that it breaks, and its ``propose``."""


def broken_file(folder):
    """A sampler for every way to break an invariant."""
    parts = ["import numpy as np\n"]
    for name, (_, body) in BROKEN.items():
        parts.append(
            f"class {name}:\n"
            "    kind = 'sample'\n"
            "    def start(self, units, prior):\n"
            "        self.size, self.seen = len(units), 0\n"
            "        self.luck = np.random.rand(self.size)\n"
            "    def observe(self, seen): self.seen += 1\n"
            f"    def propose(self): {body}\n"
            "    def state_dict(self): return {}\n"
            "    def load_state_dict(self, state): pass\n"
        )
    path = folder / "broken.py"
    path.write_text("\n".join(parts))
    return path
