"""The rehearsal's model: a character tokenizer and a two-layer llama, warmed up and cached."""

from __future__ import annotations

import hashlib
import inspect
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

from . import task

PAD, END, USER, ASSISTANT = "<pad>", "<end>", "<user>", "<assistant>"
CHARACTERS = "0123456789+ " + task.ALPHABET + task.ALPHABET.upper()
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<assistant>{{ message.content }}<end>"
    "{% else %}<user>{{ message.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SIZE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
# The warm-up. The shares of math, logic, and science set how far each of them gets.
STEPS, BATCH, LEARNING_RATE, SHARES, SEED = 260, 128, 2e-3, (0.62, 0.3, 0.08), 0


def cache_folder() -> Path:
    """Return the folder for what is expensive to make: ``DFSIM_CACHE`` or ``~/.cache/dfsim``."""
    return Path(os.environ.get("DFSIM_CACHE") or Path.home() / ".cache" / "dfsim")


def prepared_model() -> Path:
    """Return the folder of the warmed-up model and its tokenizer, making it once.

    The folder's name is a digest of this module and the task, so a change of either makes a new
    model. It appears in one piece: of two processes that make it at once, one wins.
    """
    recipe = inspect.getsource(task) + Path(__file__).read_text()
    folder = cache_folder() / "rehearsal" / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        warm_up(partial)
        partial.rename(folder)
    except OSError:
        if not folder.exists():  # another process was first
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def build_tokenizer() -> Any:
    """Return a Hugging Face tokenizer with one token for each character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [PAD, END, USER, ASSISTANT]
    vocabulary = {token: index for index, token in enumerate([*special, *CHARACTERS])}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def warm_up(folder: Path) -> None:
    """Train the model on worked problems and save it with its tokenizer in `folder`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    numbers = random.Random(SEED)
    tokenizer = build_tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            **SIZE,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=STEPS, pct_start=0.1
    )
    ids = tokenizer.get_vocab()
    for _ in range(STEPS):
        rows = [
            _worked(task.problem(domain, numbers), ids)
            for domain in numbers.choices(task.DOMAINS, SHARES, k=BATCH)
        ]
        width = max(len(tokens) for tokens, _ in rows)
        tokens = torch.tensor([[*row, *[ids[PAD]] * (width - len(row))] for row, _ in rows])
        asked = torch.tensor(
            [[-100] * n + row[n:] + [-100] * (width - len(row)) for row, n in rows]
        )
        optimizer.zero_grad()
        model(input_ids=tokens, labels=asked).loss.backward()
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _worked(problem: task.Problem, ids: dict[str, int]) -> tuple[list[int], int]:
    """Return the tokens of a solved problem and how many of them are its prompt."""
    prompt = [ids[USER], *[ids[c] for c in problem.question], ids[ASSISTANT]]
    return [*prompt, *[ids[c] for c in problem.answer], ids[END]], len(prompt)
