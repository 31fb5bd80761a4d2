"""What transformers' Trainer is given: its arguments, and what it does beside its steps.

That is checkpoints at given steps, at the best one and on a signal, and probes.
"""

import json
import math
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import distributed
from transformers import Seq2SeqTrainingArguments, TrainerCallback

from ntl.config import DecodingConfig
from ntl.config.trainer import TrainerConfig
from ntl.decoding.predictions import decode_in_training
from ntl.evaluation import number_metrics
from ntl.evaluation.metrics import Better, find_metric
from ntl.runs.folder import Best, best_of, processes
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError
from ntl.system.machine import uses_bf16

# How long a rank waits for another: the first rank prepares the data while the others wait. If a rank dies, torchrun
# ends all of them, so a long timeout does no harm.
RANK_TIMEOUT_SECONDS = 24 * 3600

SCHEDULER = {"plateau": "reduce_lr_on_plateau", "constant": "constant_with_warmup"}
# submitit has Slurm send SIGUSR2 before the time limit of a job.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
# What a rank requests at the end of a step, in increasing order: the maximum over all ranks counts.
SAVE, STOP = 1, 2
GROUP_EXAMPLES = 20  # examples that a probe reads of each group
ALL = "all"  # the only group of a data set without groups


def training_arguments(
    trainer: TrainerConfig,
    checkpoints: Path,
    device: torch.device,
    *,
    seed: int,
    watch: str,
    layers: Sequence[str] = (),
) -> Seq2SeqTrainingArguments:
    """Build the training arguments of transformers for a run that writes its checkpoints to the folder ``checkpoints``.

    ``watch`` is the metric of a plateau schedule. ``layers`` are class names of the model's blocks; under ``fsdp`` each
    block is gathered separately. UserError: ``trainer.parallel`` is set for a single process.
    """
    several, on_cpu = processes() > 1, device.type == "cpu"
    if trainer.parallel != "auto" and not several:
        raise UserError(
            f"trainer.parallel={trainer.parallel}: this is one process; start several with `torchrun --standalone "
            "--nproc-per-node 2 train.py ...`, or on Slurm with hydra.launcher.tasks_per_node=2, or leave trainer= out."
        )
    sharding: dict[str, Any] = {}
    if trainer.parallel == "fsdp":
        # transformers annotates fsdp as a string, for its command line, but also accepts a boolean.
        # FULL_STATE_DICT, because sharded files come with an index that torch reads as a pickle.
        settings = {"version": 2, "state_dict_type": "FULL_STATE_DICT", "transformer_layer_cls_to_wrap": list(layers)}
        sharding = {"fsdp": True, "fsdp_config": settings}
    optimizer: dict[str, Any] = {} if trainer.optim == TrainerConfig.optim else {"optim": trainer.optim}
    plateau = {"factor": trainer.factor, "patience": trainer.patience}
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(checkpoints),
        max_steps=trainer.max_steps,
        per_device_train_batch_size=trainer.batch_size,
        per_device_eval_batch_size=trainer.eval_batch_size,
        gradient_accumulation_steps=trainer.accumulation_steps,
        learning_rate=trainer.lr,
        weight_decay=trainer.weight_decay,
        max_grad_norm=trainer.max_grad_norm,
        lr_scheduler_type=SCHEDULER.get(trainer.schedule, trainer.schedule),
        lr_scheduler_kwargs=plateau if trainer.schedule == "plateau" else {},
        warmup_steps=trainer.warmup_steps,
        metric_for_best_model=f"eval_{watch}",
        greater_is_better=find_metric(watch).better is Better.higher,
        eval_strategy="steps" if trainer.eval_steps else "no",
        eval_steps=trainer.eval_steps or None,
        save_strategy="steps" if trainer.save_steps else "no",
        save_steps=trainer.save_steps or max(trainer.max_steps, 1),
        save_only_model=not trainer.max_steps,
        save_total_limit=None,  # ObjectiveTrainer prunes checkpoints itself, after the new one is complete
        logging_steps=trainer.logging_steps,
        logging_nan_inf_filter=False,
        seed=seed,
        data_seed=seed,
        bf16=uses_bf16(trainer.bf16, device),
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and several else None,
        ddp_timeout=RANK_TIMEOUT_SECONDS,
        ddp_find_unused_parameters=False,
        average_tokens_across_devices=False,
        dataloader_num_workers=trainer.num_workers,
        dataloader_pin_memory=not on_cpu,
        accelerator_config={"non_blocking": not on_cpu},  # a copy from pinned memory need not wait for the GPU
        remove_unused_columns=False,
        label_names=["labels"],
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        **sharding,
        **optimizer,
    )
    # One process uses one device; otherwise transformers would split each batch over threads (nn.DataParallel).
    arguments._n_gpu = min(arguments.n_gpu, 1)
    arguments.mixed_precision = (
        "bf16" if arguments.bf16 else "no"
    )  # else the setting of `accelerate launch` would count
    return arguments


class SaveAt(TrainerCallback):
    """Saves a checkpoint at the given steps and at every new best evaluation, in addition to ``save_steps``.

    It stops ``patience`` evaluations after the best one (0: never). Everything follows from the trainer's history,
    which each checkpoint has: a resumed run decides as it would have, which EarlyStoppingCallback does not. The
    Trainer's own ``metric_for_best_model`` is what the plateau watches. Without a ``metric``, none is the best.
    """

    def __init__(self, steps: Sequence[int], metric: str, patience: int) -> None:
        self.steps, self.metric, self.patience, self.best = steps, metric, patience, Best()

    @property
    def is_over(self) -> bool:
        """Whether the training has been without improvement for too long."""
        return 0 < self.patience <= self.best.since

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.best = best_of(state.log_history, self.metric)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save |= state.global_step in self.steps

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.best = best_of(state.log_history, self.metric)
        control.should_save |= self.is_over or self.best.step == state.global_step
        control.should_training_stop |= self.is_over


class StopOnSignal(TrainerCallback):
    """Save a checkpoint and stop after the current step when a signal arrives; a second one has its usual effect.

    It is a context manager that installs the signal handlers, and the callback that acts on a signal. SIGTERM does not
    stop the training if it already had a handler, as submitit installs one in a Slurm job: the job is then about to be
    killed, and would count as failed if it ended by itself.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._save = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopOnSignal":
        with suppress(ValueError):  # only the main thread may install handlers; in another, signals keep their effect
            self._previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and callable(self._previous[number]):
            self._save = True
            return
        self.received = number
        self.__exit__()

    def call_previous_handler(self) -> None:
        """Call the received signal's previous handler, if any; submitit's requeues the job and does not return."""
        previous = self._previous.get(self.received or 0)
        if callable(previous):
            previous(self.received, None)

    def requested(self, device: torch.device) -> int:
        """Return what any rank requests: STOP, SAVE or 0. Every rank must call this at the same step."""
        request = STOP if self.received is not None else SAVE if self._save else 0
        if not distributed.is_initialized():
            return request
        # A signal reaches the ranks at different steps. A rank that stopped alone would leave the others waiting.
        flag = torch.tensor(request, device=device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return int(flag)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        request = self.requested(args.device)
        self._save = False
        control.should_save |= request > 0
        control.should_training_stop |= request == STOP


class Probe(TrainerCallback):
    """Scores greedy answers to the first examples of each group of the first test split, every ``steps`` steps.

    A probe is one entry ``{"step", "probe": {group: MAPE in percent}}`` of the trainer's history, which a checkpoint
    keeps, and one line of the run's metrics.jsonl, ``path``. It does not affect the training.
    """

    def __init__(self, parts: RunParts, steps: int, path: Path) -> None:
        self.parts, self.steps, self.path = parts, steps, path
        split = parts.dataset.test_splits[0]
        self.rows, encoded = parts.rows(split), parts.encoded(split)
        groups: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(parts.dataset.group(row["id"]) or ALL, []).append(index)
        self.in_group = {group: indices[:GROUP_EXAMPLES] for group, indices in sorted(groups.items())}
        self.examples = [encoded[index] for indices in self.in_group.values() for index in indices]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe before the checkpoint of the same step is written, so that the checkpoint includes the probe."""
        if state.global_step % self.steps == 0:
            entry: dict[str, Any] = {"step": state.global_step, "probe": self.mape()}
            state.log_history.append(entry)
            if state.is_world_process_zero:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")

    def mape(self) -> dict[str, float]:
        """Return group -> mean absolute percentage error, in percent; a group where it is undefined is left out."""
        answers = iter(decode_in_training(self.parts, DecodingConfig(name="greedy"), self.examples))
        errors = {}
        for group, indices in self.in_group.items():
            correct = [self.rows[index]["answer"] for index in indices]
            errors[group] = number_metrics([next(answers).text for _ in indices], correct)["mape"]
        return {group: round(value, 4) for group, value in errors.items() if math.isfinite(value)}
