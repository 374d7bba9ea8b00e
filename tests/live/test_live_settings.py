"""What may stand behind ``+dfsim.`` on verl's command line, and on which runs of verl."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dfsim.live.core.promotion import promoted
from dfsim.live.core.record import rebuild, strategy_record
from dfsim.live.core.settings import CaptureSettings, LiveSettings
from dfsim.live.verl.overrides import dfsim_overrides, quoted
from dfsim.live.verl.promote import write_promotion_folder
from dfsim.live.verl.settings import read_settings
from dfsim.sim.replay.loop import replay
from dfsim.strategies.build import build
from dfsim.strategies.catalog import WEIGHING
from dfsim.traces.errors import DfsimError

SOME = settings(max_examples=100, deadline=None, derandomize=True)


def refusal(call, *args):
    with pytest.raises(DfsimError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(scope="module")
def promotion(bundled, tmp_path_factory):
    """A promoted maxvar whose every setting differs from the default."""
    strategy = build("maxvar", {"keep_frac": 0.25}, tie_seed=3)
    made = promoted(replay(bundled, [strategy], resamples=2), strategy, "kept", "keep_all")
    folder = tmp_path_factory.mktemp("p") / "promotion"
    write_promotion_folder(made, strategy, bundled.manifest, folder, 0, False)
    return folder


# The grammar


def test_nothing_given_is_nothing_done():
    assert read_settings({}) == LiveSettings()
    assert read_settings({}).strategies == ()


def test_a_strategy_with_parameters_and_settings():
    found = read_settings(
        {
            "strategy": "maxvar",
            "params": {"keep_frac": 0.25},
            "tie_seed": 5,
            "rescale": "mean_one",
            "on_empty": "keep_all",
            "domain": "data_source",
        }
    )
    assert found.strategy == build("maxvar", {"keep_frac": 0.25}, tie_seed=5)
    assert (found.rescale, found.on_empty, found.domain) == ("mean_one", "keep_all", "data_source")
    assert found.strategies == (found.strategy,)


@pytest.mark.parametrize("params", [{"keep_frac": 0.25}, {"maxvar": {"keep_frac": 0.25}}])
def test_the_prefix_may_be_dropped_where_one_is_delivered(params):
    given = {"strategy": "maxvar", "shadow": ["topk"], "params": params}
    found = read_settings(given)
    assert found.strategy.params["keep_frac"] == 0.25
    assert [s.name for s in found.shadows] == ["topk"]


def test_a_shadow_has_parameters_of_its_own():
    params = {"keep_frac": 0.75, "topk": {"fraction": 0.1}}
    found = read_settings({"strategy": "maxvar", "shadow": "topk", "params": params})
    assert found.strategy.params["keep_frac"] == 0.75
    assert found.shadows[0].params["fraction"] == 0.1


def test_one_shadow_alone_needs_no_prefix():
    found = read_settings({"shadow": ["topk"], "params": {"fraction": 0.1}})
    assert found.strategy is None
    assert found.shadows[0].params["fraction"] == 0.1


def test_a_list_of_values_shadows_each():
    found = read_settings({"shadow": ["topk"], "params": {"fraction": [0.1, 0.2]}})
    assert [s.params["fraction"] for s in found.shadows] == [0.1, 0.2]
    assert len({s.name for s in found.shadows}) == 2


def test_all_shadows_the_catalog_but_the_baseline_and_the_delivered_one():
    found = read_settings({"strategy": "maxvar", "shadow": "all"})
    wanted = [n for n in WEIGHING if n not in ("none", "maxvar")]
    assert [s.name for s in found.shadows] == wanted
    assert [s.name for s in read_settings({"shadow": ["all"]}).shadows] == [
        n for n in WEIGHING if n != "none"
    ]


def test_a_shadow_named_twice_is_decided_once():
    try:
        found = [s.name for s in read_settings({"shadow": ["topk", "topk"]}).shadows]
    except DfsimError:
        return
    assert found == ["topk"]


def test_a_users_own_strategy(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "import numpy as np\n"
        "class Mine:\n"
        "    scale: float = 1.0\n"
        "    def weights(self, batch): return np.full(batch.num_responses, self.scale)\n"
    )
    found = read_settings({"strategy": f"{file}:Mine", "params": {"scale": 0.5}})
    assert found.strategy.params == {"scale": 0.5}
    assert found.strategy.name == f"{file}:Mine"


def test_capture_defaults_and_values(tmp_path):
    assert read_settings({"capture": {"dir": "x"}}).capture == CaptureSettings(Path("x"))
    given = {
        "dir": str(tmp_path),
        "tokens": "all",
        "every": 5,
        "text": True,
        "label": "small",
        "queue_steps": 1,
        "on_error": "raise",
    }
    found = read_settings({"capture": given}).capture
    assert dataclasses.asdict(found) == {**given, "dir": tmp_path}
    assert read_settings({"capture": {"dir": "~/x"}}).capture.dir == Path.home() / "x"
    assert read_settings({"capture": {"dir": "x", "tokens": None}}).capture.tokens == "none"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategi": "maxvar"}, ["+dfsim.strategi", "did you mean 'strategy'"]),
        ({"strategy": "maxvr"}, ["'maxvr'", "did you mean 'maxvar'"]),
        ({"strategy": "max_variance"}, ["dfsim calls it 'maxvar'"]),
        ({"strategy": ["maxvar", "topk"]}, ["no strategy is called"]),
        ({"strategy": "maxvar", "params": {"keep_fraction": 1}}, ["keep_fraction", "keep_frac"]),
        ({"strategy": "maxvar", "params": {"keep_frac": 7}}, ["keep_frac=7", "(0"]),
        ({"strategy": "maxvar", "params": {"keep_frac": "half"}}, ["keep_frac='half'"]),
        ({"strategy": "maxvar", "params": {"keep_frac": None}}, ["keep_frac=None"]),
        ({"strategy": "maxvar", "params": {"keep_frac": [0.5, 1]}}, ["one value", "not a list"]),
        ({"strategy": "maxvar", "params": {"keep_frac": []}}, ["keep_frac"]),
        ({"strategy": "maxvar", "params": {"topk": {"fraction": 1}}}, ["'topk' is not among"]),
        ({"strategy": "maxvar", "params": 5}, ["dfsim.params"]),
        ({"strategy": "nosuch.py:Mine"}, ["nosuch.py does not exist"]),
        ({"params": {"keep_frac": 1}}, ["keep_frac", "+dfsim.strategy"]),
        ({"params": {"maxvar": {"keep_frac": 1}}}, ["maxvar.keep_frac", "+dfsim.shadow"]),
        ({"shadow": ["maxvar", "topk"], "params": {"fraction": 1}}, ["STRATEGY.fraction"]),
        ({"shadow": ["maxvr"]}, ["did you mean 'maxvar'"]),
        ({"shadow": 5}, ["dfsim.shadow"]),
        ({"rescale": "kpt"}, ["+dfsim.rescale=kpt", "did you mean 'kept'", "none, kept, mean_one"]),
        ({"rescale": True}, ["+dfsim.rescale=True"]),
        ({"on_empty": "skip"}, ["+dfsim.on_empty=skip", "skip_update"]),
        ({"on_empty": None}, ["+dfsim.on_empty=None"]),
        ({"tie_seed": -1}, ["+dfsim.tie_seed=-1", "whole number ≥ 0"]),
        ({"tie_seed": True}, ["+dfsim.tie_seed=True"]),
        ({"tie_seed": "1"}, ["+dfsim.tie_seed=1", "whole number"]),
        ({"capture": "folder"}, ["+dfsim.capture=folder", "+dfsim.capture.dir="]),
        ({"capture": {}}, ["+dfsim.capture.dir=FOLDER"]),
        ({"capture": {"dir": None}}, ["+dfsim.capture.dir=FOLDER"]),
        ({"capture": {"dir": "x", "evry": 2}}, ["+dfsim.capture.evry", "did you mean 'every'"]),
        ({"capture": {"dir": "x", "tokens": "some"}}, ["tokens=some", "auto, none, all"]),
        ({"capture": {"dir": "x", "every": 0}}, ["every=0", "≥ 1"]),
        ({"capture": {"dir": "x", "every": 1.5}}, ["every=1.5"]),
        ({"capture": {"dir": "x", "queue_steps": 0}}, ["queue_steps=0"]),
        ({"capture": {"dir": "x", "text": "yes"}}, ["text=yes", "true or false"]),
        ({"capture": {"dir": "x", "on_error": "stop"}}, ["on_error=stop", "warn, raise"]),
        ({"promotion": "nowhere"}, ["nowhere can't be read", "dfsim promote"]),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(given, words):
    text = refusal(read_settings, given)
    for word in words:
        assert word in text
    assert "-p " not in text  # the command line's words, not verl's


def test_a_promotion_brings_every_setting(promotion):
    found = read_settings({"promotion": str(promotion / "promotion.json")})
    assert found.strategy == build("maxvar", {"keep_frac": 0.25}, tie_seed=3)
    assert (found.rescale, found.on_empty) == ("kept", "keep_all")
    assert found.promotion.digest == read_settings({"promotion": str(promotion)}).promotion.digest
    assert found.record()["promotion"] == found.promotion.digest
    shadowed = read_settings({"promotion": str(promotion), "shadow": ["maxvar", "topk"]})
    assert [(s.name, s.tie_seed) for s in shadowed.shadows] == [("topk", 3)]


@pytest.mark.parametrize(
    "beside",
    [
        {"strategy": "maxvar"},
        {"rescale": "none"},
        {"on_empty": "deliver"},
        {"tie_seed": 3},
        {"params": {"keep_frac": 0.5}},
        {"params": {"maxvar": {"keep_frac": 0.5}}},
    ],
)
def test_nothing_may_contradict_a_promotion(promotion, beside):
    text = refusal(read_settings, {"promotion": str(promotion), **beside})
    assert "promotion file holds" in text
    assert f"+dfsim.{next(iter(beside))}" in text
    assert "drop" in text


@pytest.mark.parametrize("name", WEIGHING)
def test_a_record_rebuilds_the_strategy(name):
    strategy = build(name, tie_seed=4)
    record = json.loads(json.dumps(strategy_record(strategy)))
    assert rebuild(record) == strategy


def test_a_swept_name_survives_its_record():
    (_, second) = read_settings({"shadow": "topk", "params": {"fraction": [0.1, 0.2]}}).shadows
    again = rebuild(json.loads(json.dumps(strategy_record(second))))
    assert again == second
    assert again.name == "topk[fraction=0.2]"


# Overrides, as Hydra reads them


@pytest.fixture(scope="module")
def parse():
    pytest.importorskip("hydra")
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create()

    def read(items):
        found = {}
        for item in items:
            override = parser.parse_override(item)
            assert override.is_add()
            assert not override.is_sweep_override()
            found[override.key_or_group] = override.value()
        return found

    return read


paths = st.text(st.sampled_from("ab /'\",=\\{}[]():;~-_.%#@é"), min_size=1, max_size=12)


@pytest.mark.live
@given(paths)
@example('a b/c\'s "d", e=f')
@example("back\\slash")
@example("ends\\")
@SOME
def test_quoted_text_is_the_same_text_to_hydra(parse, text):
    assert parse([f"+dfsim.x={quoted(text)}"]) == {"dfsim.x": text}


@pytest.mark.live
def test_settings_reach_hydra_as_they_were_given(parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    items = dfsim_overrides(
        strategy="own dir/my, file.py:Mine",
        params=["a=1e-6", "b=[0.25, 0.5]", "metric=efficiency", "flag=true"],
        shadow=["maxvar@paper", "it's=odd.py:Mine"],
        capture=Path("a b") / "it's, here=there",
        label="346k-parameter run: not evidence",
    )
    here = Path.cwd()
    assert parse(items) == {
        "dfsim.strategy": f"{here}/own dir/my, file.py:Mine",
        "dfsim.params.a": 1e-6,
        "dfsim.params.b": [0.25, 0.5],
        "dfsim.params.metric": "efficiency",
        "dfsim.params.flag": True,
        "dfsim.shadow": ["maxvar@paper", f"{here}/it's=odd.py:Mine"],
        "dfsim.capture.dir": f"{here}/a b/it's, here=there",
        "dfsim.capture.label": "346k-parameter run: not evidence",
    }
    assert parse(dfsim_overrides(promotion=Path("p q"))) == {"dfsim.promotion": f"{here}/p q"}
    assert dfsim_overrides() == ()
    assert dfsim_overrides(label="no capture, no label") == ()


@pytest.mark.live
@pytest.mark.parametrize("text", ["a,b", "it's", "x=y", "(x)", "a b"])
def test_a_text_parameter_reaches_hydra_as_it_was_given(parse, text):
    assert parse(dfsim_overrides(params=[f"note={text}"])) == {"dfsim.params.note": text}
