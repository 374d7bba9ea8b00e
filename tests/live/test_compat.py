"""On which runs of verl dfsim works, by verl's own configuration, losses and seams."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from verl_config import composed

from dfsim.live.core.backend import RunConfig
from dfsim.live.verl.compat import (
    GROUP_ESTIMATORS,
    POLICY_LOSSES,
    check_run,
    check_verl_version,
    policy_loss_mode,
)
from dfsim.live.verl.run_config import recorded_settings, run_config
from dfsim.live.verl.settings import read_settings
from dfsim.strategies.build import build
from dfsim.traces.errors import DfsimError


def refusal(call, *args):
    with pytest.raises(DfsimError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    return text


# verl's own configuration


@pytest.fixture(scope="module")
def verl_default():
    return composed("algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=8")


@pytest.fixture
def config(verl_default):
    return copy.deepcopy(verl_default)


@pytest.mark.live
def test_the_promise_of_three_words_holds_for_verls_default(config):
    check_run(config, build("ar"))
    check_run(config, None)
    asked = composed(
        "trainer.v1.trainer_mode=dfsim_sync",
        *("+dfsim.capture.dir=x", "+dfsim.strategy=maxvar", "+dfsim.params.keep_frac=0.5"),
    )
    found = read_settings(asked["dfsim"])
    assert found.strategy.params["keep_frac"] == 0.5
    assert found.capture.dir == Path("x")


@pytest.mark.live
@pytest.mark.parametrize(
    ("path", "value", "strategy", "words"),
    [
        ("algorithm.adv_estimator", "gae", None, ["adv_estimator=gae", "use one of"]),
        ("algorithm.adv_estimator", "rlo", "none", ["did you mean 'rloo'"]),
        ("actor_rollout_ref.hybrid_engine", False, None, ["hybrid_engine=true"]),
        ("trainer.v1.sync.parameter_sync_step", 2, None, ["=2", "set it to 1"]),
        (
            *("actor_rollout_ref.actor.policy_loss.loss_mode", "bypass_mode", "none"),
            ["ignores rollout_is_weights", "loss_mode=vanilla"],
        ),
        (
            *("actor_rollout_ref.actor.policy_loss.loss_mode", "geo_mean", "ar"),
            ["geo_mean", "ar weighs tokens"],
        ),
    ],
)
def test_a_run_that_could_not_work_is_refused(config, path, value, strategy, words):
    *parents, name = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[name] = value
    text = refusal(check_run, config, build(strategy) if strategy else None)
    for word in words:
        assert word in text


@pytest.mark.live
def test_what_matters_only_for_delivery_is_left_alone_without(config):
    loss = config["actor_rollout_ref"]["actor"]["policy_loss"]
    loss["loss_mode"] = "bypass_mode"
    check_run(config, None)
    loss["loss_mode"] = "geo_mean"
    check_run(config, build("maxvar"))
    check_run(config, build("dump_ucb+maxvar"))
    assert policy_loss_mode(config) == "geo_mean"
    loss["loss_mode"] = None
    assert policy_loss_mode(config) == "vanilla"


@pytest.mark.live
def test_the_recorded_settings_are_verls(config):
    found = recorded_settings(config)
    actor = config["actor_rollout_ref"]["actor"]
    same = {
        "ppo_mini_batch_size": actor["ppo_mini_batch_size"],
        "ppo_epochs": actor["ppo_epochs"],
        "loss_agg_mode": actor["loss_agg_mode"],
        "use_kl_loss": actor["use_kl_loss"],
        "entropy_coeff": actor["entropy_coeff"],
        "optimizer": actor["optim"]["optimizer"],
        "lr": actor["optim"]["lr"],
        "weight_decay": actor["optim"]["weight_decay"],
        "clip_grad": actor["optim"]["clip_grad"],
        "train_batch_size": config["data"]["train_batch_size"],
        "max_response_length": config["data"]["max_response_length"],
        "temperature": config["actor_rollout_ref"]["rollout"]["temperature"],
        "norm_adv_by_std_in_grpo": config["algorithm"]["norm_adv_by_std_in_grpo"],
    }
    assert None not in same.values()
    assert {name: found[name] for name in same} == same
    assert (found["n"], found["adv_estimator"], found["loss_mode"]) == (8, "grpo", "vanilla")
    config["data"]["train_files"] = ["a.parquet", "b.parquet"]
    assert recorded_settings(config)["train_files"] == ["a.parquet", "b.parquet"]
    json.dumps(found, allow_nan=False)


@pytest.mark.live
def test_a_session_gets_verls_settings_as_plain_values(config):
    run = run_config(config)
    assert (run.n, run.train_batch_size) == (8, config["data"]["train_batch_size"])
    assert run.max_response_length == config["data"]["max_response_length"]
    assert (run.loss_agg_mode, run.seed) == ("token-mean", 0)
    assert (run.ppo_epochs, run.critic_warmup) == (1, 0)
    assert (run.no_report, run.plain_pg_loss, run.dynamic_batches) == (None, True, False)


@pytest.mark.live
@pytest.mark.parametrize(
    ("path", "value", "plain", "reports"),
    [
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "gspo", False, True),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", "mine", False, False),
        ("actor_rollout_ref.actor.loss_agg_mode", "seq-mean-token-sum", False, True),
        ("algorithm.rollout_correction.bypass_mode", True, False, True),
        ("algorithm.rollout_correction.rollout_rs", "token", False, True),
        ("actor_rollout_ref.actor.ppo_epochs", 2, True, True),
    ],
)
def test_where_pg_loss_is_a_witness_and_where_a_loss_reports(config, path, value, plain, reports):
    *parents, name = path.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    place[name] = value
    run = run_config(config)
    assert (run.plain_pg_loss, run.no_report is None) == (plain, reports)


@pytest.mark.live
def test_estimators_and_losses_are_verls_own():
    pytest.importorskip("verl")
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, AdvantageEstimator

    verls = {e.value for e in AdvantageEstimator}
    assert set(GROUP_ESTIMATORS) <= verls
    assert not {"gae", "reinforce_plus_plus", "remax"} & set(GROUP_ESTIMATORS)
    own = {name for name in POLICY_LOSS_REGISTRY if not name.startswith("dfsim_")}
    assert own == {*POLICY_LOSSES, "bypass_mode"}


@pytest.mark.live
@pytest.mark.parametrize("estimator", GROUP_ESTIMATORS)
def test_every_accepted_estimator_gets_past_the_first_step(estimator):
    # A live step asks for it before any trace exists.
    record = {"adv_estimator": estimator, "n": 8, "ppo_mini_batch_size": 4}
    options = RunConfig(record, n=8, train_batch_size=4).batch_options
    assert options["advantage_config"].eps == 1e-6
    assert options["mini_batch_rows"] == 32


@pytest.mark.live
@pytest.mark.torch
@pytest.mark.parametrize("mode", POLICY_LOSSES)
def test_weights_of_zero_silence_every_loss_that_is_accepted(mode, config):
    torch = pytest.importorskip("torch")
    pytest.importorskip("verl")
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
    from verl.workers.config import ActorConfig, PolicyLossConfig

    loss_config = PolicyLossConfig(loss_mode=mode, dro_beta=1.0)
    actor = ActorConfig(
        strategy="fsdp2", rollout_n=8, use_dynamic_bsz=True, policy_loss=loss_config
    )
    draw = torch.Generator().manual_seed(0)
    old, new, advantage = (torch.randn(4, 9, generator=draw) for _ in range(3))
    new = (old + 0.01 * new).requires_grad_()
    given = {
        "old_log_prob": old,
        "log_prob": new,
        "advantages": advantage,
        "response_mask": torch.ones(4, 9),
        "config": actor,
    }
    found = []
    for weight in (0.0, 1.0):
        loss, _ = POLICY_LOSS_REGISTRY[mode](**given, rollout_is_weights=torch.full((4, 9), weight))
        (grad,) = torch.autograd.grad(loss, new)
        found.append(float(grad.abs().max()))
    # geo_mean takes the geometric mean of the weights with a guard against log 0
    assert found[0] <= (1e-7 if mode == "geo_mean" else 0.0) * found[1]
    assert found[1] > 0.0


def test_other_versions_of_verl_are_refused():
    check_verl_version("0.9.1")
    for other in ("0.9.0", "0.9.10", "0.10.0", "0.9.1.dev0"):
        text = refusal(check_verl_version, other)
        assert f"verl {other} is not supported" in text
        assert "0.9.1" in text
        assert "dfsim doctor" in text
