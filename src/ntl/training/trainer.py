"""A Trainer that normalizes the loss of an objective and writes checkpoints with a manifest."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import StackDataset
from transformers import EvalPrediction, PrinterCallback, Trainer, TrainerState

from ntl.config.trainer import TORCH_OPTIMIZERS, is_decoded
from ntl.decoding.predictions import decode_validation
from ntl.losses import JointLoss
from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS
from ntl.losses.sums import DIAGNOSTICS, FLAT, HEAD, diagnostic_means, means
from ntl.runs.folder import DATA, KEEP, RUN, STATE, WEIGHTS, latest_complete, prune, read_json, write_manifest
from ntl.runs.parts import RunParts
from ntl.system.errors import Diverged, UserError, one_line_when_edited
from ntl.training.batches import INDEX, CollateNumbered, EpochSampler, micro_batches
from ntl.training.callbacks import SaveAt, training_arguments
from ntl.training.objective import build_masking, build_objective
from ntl.training.weights import all_finite, load_model, load_sharded, save_model, whole_state

# How many diagnostic sums follow the losses of a step or an example, of an objective that has them.
NUM_DIAGNOSED = len(DIAGNOSTICS) + 1
EVALUATION_TIMES = (
    *("eval_runtime", "eval_samples_per_second", "eval_steps_per_second"),
    "eval_model_preparation_time",  # of a model that was not trained
)
METERS = "meters.json"  # in a checkpoint: what a resumed run goes on counting from
# What transformers calls to read files of a checkpoint.
READERS = {
    "_load_from_checkpoint": f"{WEIGHTS}, {METERS} or {STATE}",
    "_init_training_state": STATE,
    "_load_optimizer_and_scheduler": "optimizer.pt or scheduler.pt",
    "_load_rng_state": "rng_state.pth",
}
# torch's own sampler makes a list of all indices, over 1 GiB for 26 million; a larger data set uses EpochSampler.
SHUFFLED_IN_MEMORY = 2**20


class ObjectiveTrainer(Trainer):
    """Trains an objective (``ntl.objectives``), whose forward returns a `JointLoss`.

    The total of the loss is divided by counts that the trainer passes to the forward. With ``normalization=step`` they
    are the counts of the whole optimizer step, over all accumulated batches and ranks; with ``micro_batch`` each batch
    is divided by its own counts. ``run`` is stored in each checkpoint (``ntl.training.resume.describe``), and
    ``started`` is ``time.monotonic()`` at the start of this process' work on the run.
    """

    accelerator: Any
    # For transformers: compute_loss already accounts for gradient accumulation.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        parts: RunParts,
        checkpoints: Path,
        *,
        run: Mapping[str, Any] | None = None,
        callbacks: Sequence[Any] = (),
        started: float | None = None,
    ) -> None:
        config, objective, train = parts.config.trainer, build_objective(parts), parts.encoded("train")
        if config.max_tokens_per_batch and getattr(objective, "router_weight", 0):
            raise UserError(
                f"trainer.max_tokens_per_batch={config.max_tokens_per_batch} model={parts.config.model.name}: the "
                "router loss of a mixture of experts is of a whole batch; set it to 0, and lower batch_size."
            )
        parts.warn_of_lost_text("train")
        own_cache = getattr(parts.model.config, "use_cache", None)
        super().__init__(
            model=objective,
            args=training_arguments(
                config,
                checkpoints,
                parts.device,
                seed=parts.config.seed,
                watch=parts.config.objective.watch,
                layers=sorted(parts.model._no_split_modules or ()),
            ),
            train_dataset=StackDataset(train, range(len(train))),  # pyright: ignore[reportArgumentType]
            eval_dataset=parts.encoded("validation").first(config.eval_rows),
            data_collator=CollateNumbered(parts.collator, parts.collate_training),
            compute_metrics=self._evaluation_metrics,
            callbacks=list(callbacks),
        )
        if own_cache is not None:  # transformers switches it off, in checkpoints as well
            parts.model.config.use_cache = own_cache
        if self.args.fsdp and not self.is_fsdp_enabled:
            raise UserError("trainer.parallel=fsdp: accelerate cannot shard a model on the CPU; use trainer=ddp there.")
        if self.args.fsdp and self.args.bf16:  # accelerate's policy also rounds labels, counts, losses and gradients
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
            self.accelerator.state.fsdp_plugin.mixed_precision_policy = policy
        if self.args.process_index:  # transformers seeds all ranks alike, and they would draw the same dropout
            torch.manual_seed(self.args.seed + self.args.process_index)
        # It prints every log line; ntl.training.record.ProgressLines prints fewer.
        self.remove_callback(PrinterCallback)
        self.parts, self.config, self.run = parts, config, run or {}
        self.saves = SaveAt(parts.config.keep_steps, config.best if config.max_steps else "", config.early_stopping)
        self.add_callback(self.saves)
        self.masking = build_masking(parts)
        # This rank's steps since the loss was last known to be finite, and the losses of their batches, which stay on
        # their device, so that recording them does not wait for the GPU.
        self.recent: list[tuple[int, list[torch.Tensor]]] = []
        # Sums between two log lines: the losses of the steps, then the values of `JointLoss.flat`.
        # With masking, the numbers of masked tokens and of all tokens follow.
        self.num_losses = 1 + len(FLAT) + 2 * len(HEAD) * getattr(self.model, "num_heads", 0)
        self.meters = self._zeros(self.num_losses + (2 if self.masking else 0))
        self.metered_since = 0
        # `diagnostic_sums` of the step that is logged next; 0 at all other steps.
        self.diagnosed = self._zeros(NUM_DIAGNOSED)
        self.seen = self._zeros(2).long()  # examples and tokens of this rank
        self.started = time.monotonic() if started is None else started
        self.seconds_before = 0.0  # wall time of the earlier processes, up to the checkpoint that was resumed from

    def _zeros(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64, device=self.args.device)

    # ---- the order of the data

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        dataset = self.parts.encoded("train")
        if len(dataset) <= SHUFFLED_IN_MEMORY and not self.config.length_bucketing:
            return super()._get_train_sampler(train_dataset)
        # The batches of all ranks at a step have similar lengths together, so the sampler gets their total size.
        seed, batch_size = self.args.data_seed or 0, self._train_batch_size * self.args.world_size
        sampler = EpochSampler(dataset, seed=seed, batch_size=batch_size, by_length=self.config.length_bucketing)
        self.add_callback(sampler)
        return sampler

    # ---- the loss

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> tuple[list, Any]:
        if self.state.global_step >= self.args.max_steps or self.saves.is_over:
            # Resumed from the last step, as after a kill while decoding: transformers would take one step more.
            return [], None
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        indices = [batch.pop(INDEX) for batch in batches]
        self.recent.append((self.state.global_step + 1, []))
        if self.masking:
            step, size, ranks = self.state.global_step, self._train_batch_size, self.args.world_size
            for number, (batch, examples) in enumerate(zip(batches, indices, strict=True)):
                # Ranks take batches in turn, so that this is the row of one process with larger batches.
                row = (number * ranks + self.args.process_index) * size
                self.meters[-2:] += self.masking(batch, step=step, first_row=row, examples=examples)
        # (2,): labelled tokens and number labels of this optimizer step, over all ranks
        counts = torch.stack([self._count(batch) for batch in batches]).sum(0)
        return batches, self.accelerator.reduce(counts, reduction="sum")

    def _count(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        weights = {LOSS_WEIGHTS: batch[LOSS_WEIGHTS]} if LOSS_WEIGHTS in batch else {}
        return self._objective().count(batch["labels"], **weights)

    def training_step(
        self, model: nn.Module, inputs: dict[str, torch.Tensor], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        inputs = self._prepare_inputs(inputs)
        if self.config.normalization == "micro_batch":
            num_items_in_batch = self._count(inputs)
        parts, losses = micro_batches(inputs, self.config.max_tokens_per_batch), []
        for number, (_, part) in enumerate(parts, 1):
            # Ranks average their gradients once, however many parts each of them has.
            with self.accelerator.no_sync(model) if number < len(parts) else nullcontext():
                losses.append(super().training_step(model, part, num_items_in_batch))
        return torch.stack(losses).sum()

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        objective = self._objective()
        step, every = self.state.global_step, self.state.logging_steps
        # Whether the step ends with a log line.
        objective.diagnosing = self.args.logging_strategy == "steps" and (step + 1) % every == 0
        objective.progress = step / self.args.max_steps
        joint: JointLoss = model(**inputs, counts=num_items_in_batch)
        # Objectives that predict no tokens have none.
        if objective.diagnosing and getattr(objective, "diagnosed", None) is not None:
            self.diagnosed += objective.diagnosed
        loss = joint.total
        if self.config.normalization == "micro_batch":
            loss = loss / self.current_gradient_accumulation_steps
        elif self.args.world_size > 1:
            # DDP and FSDP average the ranks' gradients; the counts are already of all ranks.
            loss = loss * self.args.world_size
        self.recent[-1][1].append(loss.detach())
        tokens = inputs["attention_mask"].sum()
        if "decoder_input_ids" in inputs:
            tokens = tokens + (inputs["labels"] != IGNORE_INDEX).sum()
        self.seen += torch.stack([torch.full_like(tokens, len(inputs["labels"])), tokens])
        self.meters[: self.num_losses] += torch.stack([loss.detach(), *joint.flat]).double()
        return (loss, joint) if return_outputs else loss

    def examples_and_tokens_seen(self) -> tuple[int, int]:
        """Return the examples and tokens trained on, over all ranks, repeats included. Every rank must call this."""
        examples, tokens = self.accelerator.reduce(self.seen, reduction="sum").tolist()
        return examples, tokens

    def wall_time(self) -> float:
        """Return the seconds of this process and of the earlier ones up to the checkpoint resumed from."""
        return self.seconds_before + time.monotonic() - self.started

    def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
        indices, sums = [], []
        for chosen, part in micro_batches(self._prepare_inputs(inputs), self.config.max_tokens_per_batch):
            with torch.no_grad(), self.compute_loss_context_manager():
                joint: JointLoss = model(**part)
            values = torch.stack([loss.double() for loss in joint.flat], dim=1)
            if (diagnosed := getattr(self._objective(), "diagnosed", None)) is not None:
                values = torch.cat([values, diagnosed.double()], dim=1)
            indices.append(chosen)
            sums.append(values)
        rows = torch.cat(sums)[torch.cat(indices).argsort()]
        return None, rows, rows[:, :1]

    def _evaluation_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Return the means over all examples, whatever the batch size and ranks, and the metrics of decoded ones.

        The predictions are (N, 5 or more) values of `JointLoss.flat`, then of a language model `diagnostic_sums`.
        """
        sums = np.asarray(prediction.predictions, dtype=np.float64).sum(axis=0).tolist()
        end = len(sums) - (NUM_DIAGNOSED if len(sums) > len(FLAT) else 0)
        decoded = decode_validation(self.parts) if is_decoded(self.config) and math.isfinite(sum(sums)) else {}
        return {**means(sums[:end]), **diagnostic_means(sums[end:]), **decoded}

    def _objective(self) -> Any:
        return self.accelerator.unwrap_model(self.model)

    # ---- logging

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            logs = {**logs, **self._read_and_reset_meters()}
            self._stop_unless_finite("training", logs["loss"])
        elif any(name in logs for name in EVALUATION_TIMES):
            # These are measured with time.time(), which may be set back.
            logs = {name: value for name, value in logs.items() if name not in EVALUATION_TIMES}
            ce, ntl = logs.get("eval_ce", 0.0), logs.get("eval_ntl", 0.0)
            logs = {**logs, "eval_loss": ce + self._objective().number_weight * ntl}
            self._stop_unless_finite("validation", logs["eval_loss"])
        super().log(logs, *args, **kwargs)

    def _stop_unless_finite(self, which: str, loss: float) -> None:
        if not math.isfinite(loss):
            raise self._diverged(f"the {which} loss is {loss}")
        if which == "training":
            del self.recent[:-1]  # the update of the last one may still have broken the weights

    def _diverged(self, what: str) -> Diverged:
        broken = [step for step, losses in self.recent if not all(map(torch.isfinite, losses))]
        step = [*broken, *(step for step, _ in self.recent[-1:]), self.state.global_step][0]
        checkpoint, _ = latest_complete(Path(str(self.args.output_dir)))
        last = f"the last good checkpoint is {checkpoint}" if checkpoint else "no checkpoint was saved before"
        return Diverged(f"{what} at step {step}; {last}; a lower trainer.lr or trainer.max_grad_norm may help.")

    def _read_and_reset_meters(self) -> dict[str, float]:
        loss, *parts = self.accelerator.reduce(torch.cat([self.meters, self.diagnosed]), reduction="sum").tolist()
        steps = max(self.state.global_step - self.metered_since, 1)
        self.meters, self.diagnosed = torch.zeros_like(self.meters), torch.zeros_like(self.diagnosed)
        self.metered_since = self.state.global_step
        losses, diagnosed = means(parts[: self.num_losses - 1]), diagnostic_means(parts[-NUM_DIAGNOSED:])
        if self.masking:
            masked, tokens = parts[self.num_losses - 1 : -NUM_DIAGNOSED]
            losses["masked"] = masked / tokens
        return {"loss": loss / steps / self.args.world_size, **losses, **diagnosed}

    # ---- checkpoints

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """Save the model, without the objective around it, in a folder that ``from_pretrained`` reads."""
        model = self._objective().model
        # Every rank takes part in gathering the weights.
        state = whole_state(model) if self.is_fsdp_enabled else None
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            save_model(model, folder, state)
            # Not transformers' processing_class, which changes the model's configs.
            self.parts.tokenizer.save_pretrained(folder)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save a checkpoint; its manifest comes last, and older checkpoints are deleted after that."""
        meters, seen = self.accelerator.reduce(self.meters, reduction="sum").tolist(), self.examples_and_tokens_seen()
        # Also checked here, because the training may have diverged since the last log line.
        self._stop_unless_finite("training", meters[0])
        if not all_finite(self._objective()):
            raise self._diverged("a weight is no longer finite")
        super()._save_checkpoint(model, trial)
        # Every rank writes its own random state, and the manifest names them all.
        self.accelerator.wait_for_everyone()
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            # Under FSDP, transformers also writes the weights as a pickle, which nothing reads.
            (folder / "pytorch_model_fsdp.bin").unlink(missing_ok=True)
            counted = {"meters": meters, "since": self.metered_since, "seen": seen, "seconds": self.wall_time()}
            for name, value in {METERS: counted, DATA: self.parts.fingerprint["files"], RUN: dict(self.run)}.items():
                (folder / name).write_text(json.dumps(value))
            if self.state.global_step in self.parts.config.keep_steps:
                (folder / KEEP).touch()
            write_manifest(folder)
            prune(folder, keep=self.config.keep_checkpoints, best=self.saves.best.step)

    def save_as_it_is(self) -> None:
        """Save the checkpoint of step 0, without an optimizer: the model of a run that trains nothing."""
        self._save_checkpoint(self._objective(), None)

    def gather_model(self) -> None:
        """Replace a model sharded by FSDP with an unsharded one; generation would gather its weights at every token."""
        if self.is_fsdp_enabled:
            config, state = self.parts.model.config, whole_state(self.parts.model)
            del self.parts.model
            model: Any = self.parts.model
            model.config = config  # it has the mean and the spread of a regression head's targets
            model.load_state_dict(state)
            model.to(self.args.device)

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """As transformers'. UserError: the checkpoint is not what was written."""
        for name, files in READERS.items() if resume_from_checkpoint else ():
            read = one_line_when_edited(Path(resume_from_checkpoint), files)
            setattr(self, name, read(getattr(self, name)))
        return super().train(resume_from_checkpoint, **options)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        folder = Path(resume_from_checkpoint)
        # Without one of these, transformers begins with a new one.
        for name in ("optimizer.*", "scheduler.pt", "rng_state*.pth"):
            if not any(folder.glob(name)):
                raise FileNotFoundError(f"there is no {name}")
        (load_sharded if self.is_fsdp_enabled else load_model)(self._objective().model, folder)
        TrainerState.load_from_json(str(folder / STATE))  # transformers does it next
        counted = read_json(folder / METERS)
        self.metered_since, self.seconds_before = index(counted["since"]), float(counted["seconds"])
        if self.is_world_process_zero():  # the sums are over all ranks
            self.meters += torch.tensor(counted["meters"], dtype=torch.float64, device=self.args.device)
            self.seen += torch.tensor(counted["seen"], device=self.args.device)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        state: Any = self.state  # just read; these follow from the config
        state.compute_steps(self.args, self.args.max_steps)
        state.stateful_callbacks = {"TrainerControl": self.control.state()}
        super()._load_optimizer_and_scheduler(checkpoint)
        optimizer: Any = self.optimizer
        for parameter, own in optimizer.state.items() if self.config.optim in TORCH_OPTIMIZERS else ():
            # A fused step reads and writes beyond tensors of another shape or layout.
            form = parameter.shape, parameter.stride()
            if any(name != "step" and (value.shape, value.stride()) != form for name, value in own.items()):
                raise ValueError(f"a parameter has the shape {[*parameter.shape]}, and its state another")
        if checkpoint:
            index(getattr(self.lr_scheduler, "last_epoch", 0))  # counted on from here
        taken = max((int(own["step"]) for own in optimizer.state.values() if "step" in own), default=0)
        if self.config.optim != "sgd" and taken != self.state.global_step:
            raise UserError(
                f"{checkpoint}: its optimizer has taken {taken} steps, and its state is of step "
                f"{self.state.global_step}; remove this folder, and the same command resumes from the one before."
            )
