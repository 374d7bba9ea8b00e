#!/usr/bin/env bash
# For a machine with one NVIDIA GPU, verl 0.9.1 and vLLM: two steps with a small real model, captured,
# delivered, proven and verified. NOT RUN YET by this project, which has had no such machine: what
# the tests run is the same trainer on a CPU. Needs MODEL on disk or a hub in reach.
#
#   tests/gpu/check.sh [OUT]
set -euo pipefail
out="${1:-gpu_check}"
model="${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}"
strategy="${STRATEGY:-softmax}"
if [ -e "$out" ]; then
  echo "$out exists; name a folder to create" >&2
  exit 2
fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"

dfsim doctor

echo "== training on the GPU, sampling on the CPU, tiny model"
dfsim rehearse --device cuda --steps 2 --prompts 6 --responses 6 \
  --strategy "$strategy" --shadow all --capture "$out/tiny"
dfsim verify "$out/tiny"

echo "== $model with vLLM"
cat > "$out/reward.py" <<'PY'
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    right = float(str(ground_truth) in solution_str)
    return {"score": right, "acc": right}
PY
python3 - "$out" <<'PY'
import random
import sys

import polars as pl

numbers = random.Random(0)
rows = []
for index in range(64):
    a, b = numbers.randrange(100), numbers.randrange(100)
    question = f"What is {a} * {b}? Answer with the number only."
    rows.append(
        {
            "data_source": "arithmetic",
            "domain": "hard" if a * b > 2000 else "easy",
            "prompt": [{"role": "user", "content": question}],
            "reward_model": {"style": "rule", "ground_truth": str(a * b)},
            "extra_info": {"index": index},
        }
    )
pl.DataFrame(rows).write_parquet(f"{sys.argv[1]}/train.parquet")
PY
python3 -m verl.trainer.main_ppo \
  data.train_files="$out/train.parquet" data.val_files="$out/train.parquet" \
  data.train_batch_size=16 data.max_prompt_length=128 data.max_response_length=64 \
  actor_rollout_ref.model.path="$model" \
  actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.ppo_mini_batch_size=8 \
  actor_rollout_ref.actor.use_dynamic_bsz=true actor_rollout_ref.actor.optim.lr=1e-6 \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
  actor_rollout_ref.rollout.calculate_log_probs=true \
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=true \
  reward.custom_reward_function.path="$out/reward.py" \
  algorithm.adv_estimator=grpo \
  trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.logger='[console,file]' \
  trainer.val_before_train=false trainer.total_epochs=1 trainer.total_training_steps=2 \
  trainer.resume_mode=disable trainer.default_local_dir="$out/checkpoints" \
  trainer.v1.trainer_mode=dfsim_sync "+dfsim.strategy=$strategy" '+dfsim.shadow=all' \
  "+dfsim.capture.dir='$out/real'"
dfsim verify "$out/real"
dfsim replay "$out/real" --strategy all
