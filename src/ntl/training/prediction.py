"""From a trained model to predictions.jsonl and its scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.config import UserError
from ntl.config.identity import plain
from ntl.config.target import locate
from ntl.data.collate import collator_for
from ntl.evaluation import constant_baselines, score_predictions, write_predictions

if TYPE_CHECKING:
    from ntl.training.session import Session

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10


def decode_splits(session: "Session", splits: Sequence[str], path: Path) -> Any:
    """Decode every example of the splits, write the predictions file, and score it from what was written."""
    config = session.config.decoding
    max_new_tokens = session.encoded("train").about["longest_answer"] + EXTRA_TOKENS
    rows: list[dict[str, str]] = []
    for split in splits:
        texts = session.rows(split)
        predictions = locate(config._target_)(
            config,
            model=session.model,
            tokenizer=session.tokenizer,
            examples=session.encoded(split),
            collate=collator_for(session.model.config).prompts,
            max_new_tokens=max_new_tokens,
        )
        for row, prediction in zip(texts, predictions, strict=True):
            rows.append(_line(session, split, row, prediction))
        session.say(f"decoded {split}: {len(texts):,} examples")
    baselines = {}
    if session.dataset.metrics == "number":
        baselines = constant_baselines(session.dataset.train_targets(session.data_dir))
    header = {
        "schema": 1,
        "dataset": session.config.dataset.name,
        "metrics": session.dataset.metrics,
        "decoding": plain(config),
        "baselines": baselines,
    }
    write_predictions(path, header, rows)
    return score_predictions(path)


def _line(session: "Session", split: str, row: Any, prediction: str) -> dict[str, str]:
    known = {"group": session.dataset.group(row["id"]), "truth": session.dataset.truth(row["question"])}
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": prediction}
    return line | {name: value for name, value in known.items() if value is not None}


def predict(folder: Path, overrides: Sequence[str] = ()) -> Path:
    """Decode the newest whole checkpoint of a run again, with other ``decoding`` settings.

    Returns:
        The predictions file: ``predictions.jsonl`` when the decoding is the run's own, else a file named after it.
    """
    from ntl.training.restore import restore

    session = restore(folder, overrides)
    own = not overrides
    name = (
        "predictions.jsonl"
        if own
        else f"predictions-{session.config.decoding.name}-{session.config.decoding.num_beams}.jsonl"
    )
    path = folder / name
    if not session.dataset.test_splits:
        raise UserError(f"{folder}: the data set {session.config.dataset.name} has no test split to decode.")
    decode_splits(session, session.dataset.test_splits, path)
    return path
