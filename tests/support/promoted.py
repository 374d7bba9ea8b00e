"""Promotions that tests verify live runs against."""

from __future__ import annotations

import dfsim
from dfsim.live.core.promotion import promoted
from dfsim.live.core.verification.verify import verify
from dfsim.live.verl.promote import write_promotion_folder
from dfsim.traces.storage.store import open_trace


def checked(path, promotion=None):
    return verify(open_trace(path), promotion)


def promotion_of(folder, strategy, rescale="none", on_empty="skip_update", *, source=None):
    """The promotion of a strategy over a trace; by default over what the live run captured."""
    trace = open_trace(folder / "live" if source is None else source)
    made = promoted(dfsim.replay(trace, [strategy], resamples=20), strategy, rescale, on_empty)
    out = folder / f"promotion-{len(list(folder.iterdir()))}"
    write_promotion_folder(made, strategy, trace.manifest, out, 0, False)
    return out
