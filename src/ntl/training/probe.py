"""How soon a model is near the right answers: a few test examples, decoded again and again while it trains."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ntl.config import DecodingConfig
from ntl.decoding.generation import generate
from ntl.evaluation import number_metrics
from ntl.training.prediction import max_new_tokens

if TYPE_CHECKING:
    from ntl.training.session import Session

GROUP_EXAMPLES = 20
ALL = "all"  # the one group of a data set that has none


class Probe(TrainerCallback):
    """Every ``steps`` steps the greedy answers to the first ``GROUP_EXAMPLES`` examples of each group of a test set.

    A probe is one entry ``{"step", "probe": {group: MAPE in percent}}`` of the trainer's history, which a checkpoint
    keeps, and one line of metrics.jsonl; a group whose MAPE is undefined is left out. Nothing of the training changes:
    the random state is put back, and no weight is touched.
    """

    def __init__(self, session: "Session", steps: int, path: Path) -> None:
        self.session = session
        self.steps = steps
        self.path = path
        split = session.dataset.test_splits[0]
        groups: dict[str, list[int]] = {}
        rows = session.rows(split)
        for index, row in enumerate(rows):
            chosen = groups.setdefault(session.dataset.group(row["id"]) or ALL, [])
            if len(chosen) < GROUP_EXAMPLES:
                chosen.append(index)
        examples = session.encoded(split)
        indices = [index for group in sorted(groups) for index in groups[group]]
        self.groups = [group for group in sorted(groups) for _ in groups[group]]
        self.answers = [rows[index]["answer"] for index in indices]
        self.examples = [examples[index] for index in indices]

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Before the checkpoint of the same step is written."""
        if state.global_step % self.steps:
            return
        entry: dict[str, Any] = {"step": state.global_step, "probe": self.mape()}
        state.log_history.append(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def mape(self) -> Mapping[str, float]:
        """group -> mean absolute percentage error of the model as it is now."""
        model: Any = self.session.model
        with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
            answers = generate(
                DecodingConfig(name="greedy"),
                model=model,
                tokenizer=self.session.tokenizer,
                examples=self.examples,
                collate=self.session.collator.prompts,
                max_new_tokens=max_new_tokens(self.session),
            )
        found = {}
        for group in dict.fromkeys(self.groups):
            of_group = [index for index, name in enumerate(self.groups) if name == group]
            texts, right = ([source[i] for i in of_group] for source in ([a.text for a in answers], self.answers))
            found[group] = number_metrics(texts, right)["mape"]
        return {group: round(value, 4) for group, value in found.items() if math.isfinite(value)}
