"""Translation of the trainer config into the training arguments of transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import Seq2SeqTrainingArguments

from ntl.config import Config
from ntl.config.trainer import Parallel, Schedule, TrainerConfig
from ntl.evaluation.metrics import Better, find_metric
from ntl.system.errors import UserError
from ntl.system.machine import pick_device, uses_bf16
from ntl.training.checkpoints import processes

# How long a rank waits for another: the first rank prepares the data while the others wait. If a rank dies, torchrun
# ends all of them, so a long timeout does no harm.
RANK_TIMEOUT_SECONDS = 24 * 3600

SCHEDULER = {Schedule.plateau: "reduce_lr_on_plateau", Schedule.constant: "constant_with_warmup"}


def training_arguments(config: Config, checkpoints: Path, layers: Sequence[str] = ()) -> Seq2SeqTrainingArguments:
    """Build the training arguments of transformers for a run that writes its checkpoints to the folder ``checkpoints``.

    ``layers`` are class names of the model's blocks; under ``Parallel.fsdp`` each block is gathered separately.
    UserError: probes are asked for with several processes, or ``trainer.parallel`` with a single one.
    """
    trainer, several = config.trainer, processes() > 1
    if config.probe_steps and several:
        raise UserError("probe_steps: works on one device; leave it out, or train on one device.")
    if trainer.parallel is not Parallel.auto and not several:
        raise UserError(
            f"trainer.parallel={trainer.parallel.name}: this is one process; start several with `torchrun --standalone "
            "--nproc-per-node 2 train.py ...`, or on Slurm with hydra.launcher.tasks_per_node=2, or leave trainer= out."
        )
    on_cpu = pick_device(config.device).type == "cpu"
    sharding: dict[str, Any] = {}
    if trainer.parallel is Parallel.fsdp:
        # transformers annotates fsdp as a string, for its command line, but also accepts a boolean.
        # FULL_STATE_DICT, because sharded files come with an index that torch reads as a pickle.
        settings = {"version": 2, "state_dict_type": "FULL_STATE_DICT", "transformer_layer_cls_to_wrap": list(layers)}
        sharding = {"fsdp": True, "fsdp_config": settings}
    optimizer = {} if trainer.optim == TrainerConfig.optim else {"optim": trainer.optim}
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
        lr_scheduler_type=SCHEDULER.get(trainer.schedule, trainer.schedule.name),
        lr_scheduler_kwargs=plateau if trainer.schedule is Schedule.plateau else {},
        warmup_steps=trainer.warmup_steps,
        metric_for_best_model=f"eval_{config.objective.watch}",
        greater_is_better=find_metric(config.objective.watch).better is Better.higher,
        eval_strategy="steps" if trainer.eval_steps else "no",
        eval_steps=trainer.eval_steps or None,
        save_strategy="steps" if trainer.save_steps else "no",
        save_steps=trainer.save_steps or max(trainer.max_steps, 1),
        save_only_model=not trainer.max_steps,
        save_total_limit=None,  # ObjectiveTrainer prunes checkpoints itself, after the new one is complete
        logging_steps=trainer.logging_steps,
        logging_nan_inf_filter=False,
        seed=config.seed,
        data_seed=config.seed,
        bf16=uses_bf16(trainer.bf16, pick_device(config.device)),
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and several else None,
        ddp_timeout=RANK_TIMEOUT_SECONDS,
        ddp_find_unused_parameters=False,
        average_tokens_across_devices=False,
        dataloader_num_workers=trainer.num_workers,
        dataloader_pin_memory=not on_cpu,
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
    return arguments
