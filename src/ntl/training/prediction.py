"""From a trained model to predictions.jsonl and its scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.config import DecodingConfig, UserError
from ntl.config.identity import plain
from ntl.config.target import locate
from ntl.decoding.batches import batches
from ntl.decoding.generation import own_settings
from ntl.decoding.journal import Journal
from ntl.evaluation import constant_baselines, score_predictions, token_matches, write_predictions
from ntl.training.progress import DecodingLines
from ntl.training.ranks import from_all, is_first, my_share, rank_and_size

if TYPE_CHECKING:
    from ntl.training.session import Session

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10
JOURNAL = ".answers"
# What a record keeps of a decoding that is not its own: a record is small.
BESIDE_METRICS = (
    "accuracy",
    "mae",
    "rmse",
    "r2",
    "pearson",
    "mape_clipped",
    "mape_median",
    "within_1_percent",
    "rmse_truth",
    "covered",
)


def max_new_tokens(session: "Session") -> int:
    """How many tokens an answer may have: what ``decoding`` says, else by the longest answer of the training data."""
    return session.config.decoding.max_new_tokens or session.encoded("train").about["longest_answer"] + EXTRA_TOKENS


def check_lengths(session: "Session") -> None:
    """Raise ``UserError`` unless every example, and every answer that may be generated, has a position in the model.

    An encoder-decoder with relative positions reads any length.
    """
    config: Any = session.model.config
    positions = None if config.is_encoder_decoder else getattr(config, "max_position_embeddings", None)
    if positions is None:
        return
    dataset, limit = session.dataset, session.config.trainer.max_input_length
    generated = dict.fromkeys(dataset.test_splits, max_new_tokens(session) if session.model.can_generate() else 0)
    for split in dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about = session.encoded(split).about
        question = about["longest_question"]
        # The last token that is generated is never read.
        needed = max(session.collator.longest_input(about), question + generated.get(split, 0) - 1)
        if needed > positions:
            raise UserError(
                f"model={session.config.model.name}: it reads {positions} tokens, and {dataset.name} {split} needs "
                f"{needed}, answers included, of them {question} for its longest question; lower "
                f"trainer.max_input_length, now {limit}, below that, or take another model or tokenizer."
            )


def predictions_name(decoding: DecodingConfig, *more: str) -> str:
    """The file of a decoding that is not the run's own."""
    return f"{'-'.join(['predictions', decoding.name, str(decoding.num_beams), *more])}.jsonl"


def decode_beside(session: "Session", names: Sequence[str]) -> dict[str, float]:
    """Decode by these of ``config.beside``, too: "<split>/<metric>@<name>" for each of ``BESIDE_METRICS``."""
    found = {}
    for name in names:
        decoding = session.config.beside[name]
        session.say(f"decoding by {name}:")
        path = session.folder / predictions_name(decoding)
        scores = decode_splits(session, session.dataset.test_splits, path, decoding)
        metrics = scores.metrics if scores else {}
        for split in session.dataset.test_splits:
            known = [metric for metric in BESIDE_METRICS if f"{split}/{metric}" in metrics]
            found.update({f"{split}/{metric}@{name}": metrics[f"{split}/{metric}"] for metric in known})
    return found


def decode_splits(session: "Session", splits: Sequence[str], path: Path, decoding: DecodingConfig | None = None) -> Any:
    """Decode every example of the splits, write the predictions file, and score it from what was written.

    ``decoding`` is the run's own unless another is given. Of several processes each decodes its share; the first one
    writes and scores, and the others get None. Where the weights are a checkpoint's, what was answered before a kill is
    not decoded again, until `forget_answers`.
    """
    config = decoding or session.config.decoding
    _tell_of_own_settings(session, config)
    rows: list[dict[str, Any]] = []
    count_malformed: Any = getattr(session.tokenizer, "count_malformed", None)
    for split in splits:
        texts, examples = session.rows(split), session.encoded(split)
        share = my_share(len(texts))
        chosen = [examples[index] for index in share]
        ids = [[texts[share[place]]["id"] for place in batch] for batch in batches(chosen, config.batch_size)]
        journal = _journal(session, split, path, config, ids) if session.weights else None
        mine = locate(config._target_)(
            config,
            model=session.model,
            tokenizer=session.tokenizer,
            examples=chosen,
            collate=session.collator.prompts,
            max_new_tokens=max_new_tokens(session),
            progress=DecodingLines(session.say, split, len(share), journal.examples if journal else 0),
            journal=journal,
        )
        predictions = from_all(mine)
        if predictions is None:
            continue
        for index, (row, prediction) in enumerate(zip(texts, predictions, strict=True)):
            line: dict[str, Any] = _line(session, split, row, prediction.text) | prediction.about
            if session.dataset.metrics == "text":
                line |= _token_counts(prediction.token_ids, examples[index]["answer_ids"])
            if count_malformed is not None:
                line["malformed"] = count_malformed(prediction.token_ids)
            rows.append(line)
        session.say(f"decoded {split}: {len(texts):,} examples")
    if not is_first():
        return None
    baselines = {}
    if session.dataset.metrics == "number":
        baselines = constant_baselines(session.dataset.train_targets(session.data_dir))
    header = {
        "schema": 1,
        "dataset": session.config.dataset.name,
        "metrics": session.dataset.metrics,
        "decoding": described(session, config),
        "baselines": baselines,
    }
    write_predictions(path, header, rows)
    return score_predictions(path)


def described(session: "Session", decoding: DecodingConfig) -> dict[str, Any]:
    """A decoding's settings, and where the model's own generation config acts, what that says: "own"."""
    return plain(decoding) | ({"own": plain(own_settings(session.model))} if decoding.obeys_model else {})


def _tell_of_own_settings(session: "Session", decoding: DecodingConfig) -> None:
    own = own_settings(session.model, decoding.num_beams)
    words = ", ".join(f"{name}={value}" for name, value in own.items())
    if decoding.obeys_model:
        session.say(f"decoding={decoding.name}: the model's own generation config says {words or 'nothing: greedy'}.")
    elif words:
        session.say(
            f"decoding={decoding.name}: the model's own generation config has {words}, and none of it acts; "
            "decoding=model obeys it."
        )


def _journal(session: "Session", split: str, path: Path, config: DecodingConfig, ids: list[list[str]]) -> Journal:
    rank, size = rank_and_size()
    key = {
        "weights": session.weights,
        "decoding": plain(config),
        "max_new_tokens": max_new_tokens(session),
        "examples": session.dataset.content_key(split, session.data_dir),
    }
    journal = Journal(path.with_name(f".{path.stem}.{split}.{rank}-of-{size}{JOURNAL}"), key, ids)
    if journal.answers:
        session.say(f"decoding {split}: {journal.examples:,} are answered already")
    return journal


def forget_answers(folder: Path, predictions: str = "*") -> None:
    """What was kept for the predictions file of this stem, or for all: they are whole."""
    for path in folder.glob(f".{predictions}.*{JOURNAL}"):
        path.unlink(missing_ok=True)


def _token_counts(generated: Sequence[int], label: Any) -> dict[str, int]:
    return {f"tokens_{name}": count for name, count in token_matches(generated, label.tolist())._asdict().items()}


def _line(session: "Session", split: str, row: Any, prediction: str) -> dict[str, str]:
    dataset, question = session.dataset, row["question"]
    known = {
        "group": dataset.group(row["id"]),
        "truth": dataset.truth(question),
        "shortcut": dataset.shortcut(question),
    }
    line = {"split": split, "id": row["id"], "answer": row["answer"], "prediction": prediction}
    return line | {name: value for name, value in known.items() if value is not None}
