"""A loss in transformers' Trainer and TRL's SFTTrainer, with weights of labels from the batches."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS
from ntl.losses.sums import means

if TYPE_CHECKING:
    from ntl.losses.module import NumberTokenLoss

_SMOOTHING = (
    "transformers ignores label_smoothing_factor={0} if there is a loss of one's own; this loss has "
    "label_smoothing={1}: create it with label_smoothing={0}, or leave the factor out"
)
_JOINED = "joined rows that fill the last batch of an evaluation count twice: set per_device_eval_batch_size=1"


class NumberTokenLossMixin:
    """Makes a trainer minimise a `NumberTokenLoss`: ``class NTLTrainer(NumberTokenLossMixin, SFTTrainer)``.

    The loss is computed as in transformers' Trainer, from the logits of one forward pass, whatever the trainer itself
    does. CE and the number loss are means over the optimizer step, however its batches are cut; batches may have
    ``loss_weights``, as of `NumberTokenLoss.forward`. Both are logged as ``ce`` and ``ntl``, ``eval_ce`` and
    ``eval_ntl``, and the terms of further heads as ``ce/head2`` and so on.

    Args:
        number_token_loss: The loss, or ``ntl.objectives.MultiToken``. All other arguments go to the trainer.

    Raises:
        ValueError: The trainer has another loss: a ``loss_type`` such as TRL's "dft", or a ``compute_loss_func``.
    """

    args: Any
    state: Any
    accelerator: Any

    def __init__(self, *args: Any, number_token_loss: "NumberTokenLoss", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        loss_type = getattr(self.args, "loss_type", "nll")  # TRL's
        sharding = getattr(self.accelerator, "parallelism_config", None)
        for is_other, name in (
            (loss_type not in ("nll", "chunked_nll"), f"loss_type={loss_type!r}"),
            (self.compute_loss_func is not None, "compute_loss_func"),
            (sharding and sharding.sp_enabled, "sequence parallelism, which takes the model's own loss"),
        ):
            if is_other:
                raise ValueError(f"there is a number_token_loss, and {name}: leave out one, as a trainer has one loss")
        self.number_token_loss = number_token_loss
        self.compute_loss_func: Any = number_token_loss.compute_loss_func
        # The values of `JointLoss.flat` since the last log line, of batches of training and of evaluation.
        self._sums: dict[bool, torch.Tensor] = {}
        if (dropped := self.args.label_smoothing_factor) not in (0, number_token_loss.smoothing):
            warnings.warn(_SMOOTHING.format(dropped, number_token_loss.smoothing), stacklevel=2)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        weights, state = inputs.get(LOSS_WEIGHTS), self.accelerator.gradient_state
        inputs = {name: value for name, value in inputs.items() if name != LOSS_WEIGHTS}
        if not model.training:
            num_items_in_batch = None  # each batch of an evaluation is a mean of its own
            if "labels" in inputs and state.end_of_dataloader and state.remainder > 0 and self.args.world_size > 1:
                inputs["labels"] = labels = inputs["labels"].clone()  # without the rows that fill the last batch
                if len(labels) == 1 < self.args.eval_batch_size and "position_ids" in inputs:
                    warnings.warn(_JOINED, stacklevel=2)
                first = state.remainder - self.args.process_index * len(labels)
                labels[max(first, 0) :] = getattr(self.number_token_loss, "ignore_index", IGNORE_INDEX)
        inputs |= {"use_cache": False} if hasattr(getattr(model, "module", model), "config") else {}
        if hasattr(self.number_token_loss, "progress"):
            self.number_token_loss.progress = self.state.global_step / max(self.state.max_steps, 1)
        self.compute_loss_func = partial(self._loss, model.training, weights)
        # That of transformers, which a trainer such as SFTTrainer overrides.
        classes = (base for base in type(self).__mro__ if base.__module__.startswith("transformers."))
        trainer: Any = next(base for base in classes if base.__name__ == "Trainer")
        return trainer.compute_loss(self, model, inputs, return_outputs, num_items_in_batch)

    def _loss(
        self, training: bool, weights: Any, outputs: Any, labels: Any, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        given = {"loss_weights": weights, "num_items_in_batch": num_items_in_batch}
        joint = self.number_token_loss.parts(outputs, labels, **given)
        self._sums[training] = self._sums.get(training, 0.0) + torch.stack([value.double() for value in joint.flat])
        return joint.total

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        items = super()._get_num_items_in_batch(batch_samples, device)  # pyright: ignore[reportAttributeAccessIssue]
        if items is None:
            return None
        # In place of the labels that the trainer counts, the weights of those that the loss counts.
        first = int(getattr(self, "_loss_shifts_labels", True))
        labels = [batch.get("shift_labels", batch["labels"][..., first:]) for batch in batch_samples]
        counted: Any = sum((ids != IGNORE_INDEX).sum() for ids in labels)
        ours: Any = sum(self.number_token_loss.counts(batch) for batch in batch_samples)
        sums = torch.cat([ours.flatten(), counted.view(1)]).to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            sums = self.accelerator.reduce(sums, reduction="sum")
        return items.sum() * sums[:-1].view(ours.shape) / sums[-1].clamp(min=1)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._sums.pop(False, None)  # what a prediction before has left
        return super().evaluation_loop(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        for name in [*logs]:  # loss, eval_loss, eval_NAME_loss
            if (name == "loss" or name.endswith("_loss")) and (name == "loss") in self._sums:
                sums = self._sums.pop(name == "loss")
                if self.accelerator.num_processes > 1:
                    sums = self.accelerator.reduce(sums, reduction="sum")
                logs |= {name[:-4] + part: value for part, value in means(sums.tolist()).items()}
        super().log(logs, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
