"""A scikit-learn estimator: numbers from texts by a language model, fine-tuned and read as ``train.py`` does it."""

import json
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Self
from weakref import finalize

import numpy as np

from ntl.system.errors import needs

with needs("train"):
    import pandas as pd
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.model_selection import GroupShuffleSplit
    from sklearn.utils import Bunch
    from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from ntl.config import compose
from ntl.config.cli import explain
from ntl.config.decoding import TreeConfig
from ntl.data.frame import columns_of, texts_of
from ntl.decoding.checks import EXTRA_TOKENS
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.predictor import ask, of_run
from ntl.decoding.reader import NumberReader, warn_of_text
from ntl.evaluation import read_predictions
from ntl.evaluation.compare import compare, references
from ntl.evaluation.interval import LEVEL, Calibration, least_answers
from ntl.numbers.numeral import MOST, Numeral, values_of
from ntl.results import read_record
from ntl.runs.folder import checkpoint_at
from ntl.system.files import write_atomically
from ntl.system.machine import kept_random_state, pick_device
from ntl.system.messages import printed
from ntl.training.train import train

READINGS = {"greedy": "greedy", "digit_median": "digit_median", "median": "median", "mean": "expectation"}
SEARCHES = ("median", "mean")  # of the distribution of whole numbers, which takes longer
STATE = ("columns_", "n_outputs_", "n_validation_", "reading_", "longest_", "most_", "middle_")  # is saved as it is
SPLITS, FITTED = ("train", "validation"), "regressor.json"
VALIDATION_TEXTS = 500  # at most, since each is read in several ways


class NumberRegressor(RegressorMixin, BaseEstimator):
    """Predicts numbers from texts by a language model, which `fit` fine-tunes (docs/regressor.md).

    ``X`` is a list, array or Series of texts (n,), or a DataFrame; ``y`` has finite numbers, (n,), or several for each
    text, (n, k). A fit is a run of ``train.py``. ValueError: bad input, as in scikit-learn.

    Args:
        model: Folder or hub id of a language model, or a model and its tokenizer; "tiny": a GPT-2 from scratch.
        loss, lora_rank, seed, device: As ``loss=``, ``model.lora.rank=``, ``seed=`` and ``device=`` of train.py.
        read: greedy, digit_median, median or mean; ``auto``: the one with the least error on validation rows.
        scale: ``log`` fits log10 of numbers of one sign, which may span many powers of ten.
        decimals: How many the model learns; ``auto``: the fewest that change y by at most 0.1% of its deviation.
        template: For columns, "{area} m2, {place}", by default lines "column: value"; for texts, "Rating of {text}:".
        validation: Share of the different texts, at most 500, held out for step, reading and intervals.
        lr, epochs, batch_size, max_steps: None: as in train.py, 3 epochs of given weights, 500 steps of "tiny".
        folder: Where the run is kept, and resumed after a kill; None: it is deleted with the estimator.
        settings, progress: Further settings of train.py, ["trainer.max_tokens_per_batch=640"]; whether a fit prints.
    """

    def __init__(
        self,
        model: Any = "tiny",
        *,
        loss: str = "ce",
        read: str = "auto",
        scale: str = "linear",
        decimals: int | str = "auto",
        template: str = "",
        validation: float = 0.1,
        lora_rank: int = 0,
        lr: float | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        max_steps: int | None = None,
        seed: int = 1,
        device: str = "auto",
        folder: str | Path | None = None,
        settings: Sequence[str] = (),
        progress: bool = False,
    ) -> None:
        self.model, self.loss, self.read, self.scale, self.decimals = model, loss, read, scale, decimals
        self.template, self.validation, self.lora_rank = template, validation, lora_rank
        self.lr, self.epochs, self.batch_size, self.max_steps = lr, epochs, batch_size, max_steps
        self.seed, self.device, self.folder, self.settings, self.progress = seed, device, folder, settings, progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fine-tune on texts (n,) and numbers (n,) or (n, k), choose the step and the reading, calibrate intervals."""
        self.__dict__ = {name: item for name, item in vars(self).items() if name[-1] != "_"}  # a fit that fails is none
        self.params_ = Bunch(**self.get_params(deep=False))  # what is set later is for the next fit
        y = check_array(y, ensure_2d=False, dtype="float64", ensure_min_samples=2, input_name="y")
        check_consistent_length(X, y)
        self.columns_ = columns_of(X, self.template)
        texts, y_NK = np.array(texts_of(X, self.columns_, self.template), dtype=object), y.reshape(len(y), -1)
        self.numeral_, self.n_outputs_ = Numeral.of(y_NK, self.decimals, self.scale), y_NK.shape[1]
        answers = self.numeral_.texts(y_NK)
        self.longest_ = max(map(len, answers)) + EXTRA_TOKENS
        lines = [json.dumps({"question": a, "answer": b}) + "\n" for a, b in zip(texts, answers, strict=True)]
        if not 0 < (share := float(self.validation)) < 1 or len({*texts}) < 2:
            raise ValueError(f"validation={share:g}: {len({*texts})} different texts cannot be divided so")
        share = min(share, VALIDATION_TEXTS / len({*texts}))
        split = GroupShuffleSplit(1, test_size=share, random_state=self.seed).split(texts, groups=texts)
        train_rows, validation_rows = map(np.sort, next(split))
        self.middle_ = np.median(self.numeral_.write(y_NK[train_rows]).round(self.numeral_.decimals), axis=0)
        self.n_validation_ = len({*texts[validation_rows]})
        if self.n_validation_ < least_answers(LEVEL):
            few = f"validation has {self.n_validation_} of the texts, too few to choose step and reading by"
            warnings.warn(f"{few}; give more texts, or a larger validation=", stacklevel=2)
        files = {"train": [lines[row] for row in train_rows], "validation": [lines[row] for row in validation_rows]}
        self._root = Path(self.folder or mkdtemp(prefix="ntl-")).absolute()
        if not self.folder:  # it goes with what is fitted
            finalize(self.params_, rmtree, self._root, ignore_errors=True)
        self._rows = self._root / sha256(json.dumps([files, self.read]).encode()).hexdigest()[:12]
        for name, rows in files.items():
            write_atomically(self._rows / f"{name}.jsonl", "".join(rows))
        self.run_ = self._train(self._words())
        record = read_record(self.run_ / "record.json")
        self.most_, decoding = record.config["trainer"]["max_input_length"], record.config["decoding"]["name"]
        self.reading_ = next(reading for reading, name in READINGS.items() if name == decoding)
        if self.n_outputs_ > 1 and self.read == "auto":  # of one number, train.py has chosen
            right, errors = self.numeral_.write(y_NK[validation_rows]), dict[str, float]()
            for name, file in (("greedy", "predictions"), ("digit_median", "predictions-digit_median-1")):
                rows = read_predictions(self.run_ / f"{file}.jsonl")[1]
                predicted = values_of([row["prediction"] for row in rows], self.n_outputs_)
                errors[name] = float(np.abs(np.where(np.isnan(predicted), self.middle_, predicted) - right).mean())
            self.reading_ = min(errors, key=errors.__getitem__)
        stored = read_predictions(self.run_ / "predictions.jsonl")[0].get("calibration")
        self._calibration = Calibration.from_header(stored or {"scores": [], "least_spread": None})
        self._load(checkpoint_at(self.run_, record.scored_step))
        return self

    def _words(self, *, head: bool = False) -> list[str]:
        """The settings of train.py, or with ``head`` those of a regression head on the same rows."""
        params, files = self.params_, {"path": "train", "validation_path": "validation", "test_path": "validation"}
        if isinstance(params.settings, str):
            raise ValueError(f"settings={params.settings!r}: give a list, such as [{params.settings!r}]")
        words = ["dataset=file", *(f"dataset.{key}={self._rows / name}.jsonl" for key, name in files.items())]
        end = "_regression" if head else ""
        if isinstance(params.model, str) and params.model == "tiny":
            words += [f"model=gpt2_tiny{end}", "trainer.best=loss", "trainer.eval_steps=100", "trainer.save_steps=100"]
        else:
            source: Any = params.model
            if not isinstance(source, str | Path):
                is_pair = isinstance(source, list | tuple) and len(source) == 2
                parts: list[Any] = [*source] if is_pair else [source]
                if not all(hasattr(part, "save_pretrained") for part in parts):
                    raise ValueError(f"model={source!r:.50}: give a folder, a hub id, a model or [model, tokenizer]")
                if not (is_pair or parts[0].name_or_path):
                    raise ValueError("model: it was not loaded from anywhere, so give [model, tokenizer]")
                source = self._rows / "start"
                for part in parts if is_pair else [*parts, AutoTokenizer.from_pretrained(parts[0].name_or_path)]:
                    part.save_pretrained(source)
            words += [f"model=hf{end}", f"model.path={source}", "trainer.eval_decoded=false"]
        values = {f"trainer.{name}": getattr(params, name) for name in ("lr", "epochs", "batch_size", "max_steps")}
        values |= {"model.lora.rank": params.lora_rank or None, "seed": params.seed, "device": params.device}
        values |= {"output_dir": self._rows, "data_dir": self._root / "data"}
        words += [f"{key}={value}" for key, value in values.items() if value is not None]
        return [*words, *([] if head else [f"loss={params.loss}", *self._decoding()]), *params.settings]

    def _decoding(self) -> list[str]:
        several, words = self.n_outputs_ > 1, [f"decoding.max_new_tokens={self.longest_}"]
        if self.read not in (known := ["auto", *(name for name in READINGS if not several or name not in SEARCHES)]):
            raise ValueError(f"read={self.read!r}: choose one of {', '.join(known)}")
        if several:
            auto = ["decoding=greedy", "extra_decodings=digit_median"]
            return [*words, "dataset.answers=numbers", *(auto if self.read == "auto" else [f"decoding={self.read}"])]
        if self.n_validation_ >= least_answers(LEVEL):
            words.append(f"decoding.interval_rows={VALIDATION_TEXTS}")
        digits = min(self.numeral_.decimals + 1, MOST)  # a mean lies between numbers
        if self.read == "auto":
            searches = [f"extra_decodings.{READINGS[name]}.decimals={digits}" for name in SEARCHES]
            return [*words, "decoding=auto", "extra_decodings=all", *searches]
        search = [f"decoding.decimals={digits}"] if self.read in SEARCHES else []
        return [*words, f"decoding={READINGS[self.read]}", *search]

    def _train(self, words: Sequence[str]) -> Path:
        with (self._rows / "log.txt").open("a+", encoding="utf-8") as log:
            start = log.tell()
            try:
                with nullcontext() if self.progress else redirect_stdout(log), printed(), kept_random_state():
                    run = train(compose(words), words).parent
            except Exception as error:
                if line := explain(error):  # bad input
                    raise ValueError(line) from error
                raise
            log.seek(start)
            for line in log.read().splitlines():
                if any(part in line for part in ("are truncated", "unknown tokens", "number token is", "never more")):
                    warnings.warn(line, stacklevel=3)
        return run

    def _load(self, folder: Path) -> None:
        is_pair = AutoConfig.from_pretrained(folder).is_encoder_decoder
        auto: Any = AutoModelForSeq2SeqLM if is_pair else AutoModelForCausalLM
        model = auto.from_pretrained(folder).to(pick_device(self.params_.device))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self._reader = NumberReader(model, tokenizer, max_new_tokens=self.longest_, max_input_length=self.most_)
        self._reader.special = []  # they are text, as in training
        self._searched: tuple[list[str], list[NumberDistribution]] = ([], [])

    def predict(self, X: Any, interval: float | None = None) -> np.ndarray:
        """The number of each text, (n,) or (n, k); with ``interval``, a level such as 0.9, (n, 3): number, low, high.

        An interval holds the true number with this probability, on average over texts like those of the fit. Warnings
        tell of unbounded intervals, and of answers without a number, which count as the median of the training numbers.
        """
        texts = self._texts(X)
        if interval is not None and (lacking := self._lacking(interval)):  # before the model reads
            raise ValueError(lacking)
        written, spreads = self._read(texts, self.reading_)
        number = self.numeral_.read(written)
        return number if interval is None else np.stack([number, *self._ends(written, spreads, interval)], axis=1)

    def distribution(self, X: Any) -> list[NumberDistribution]:
        """The model's distribution of the number of each text: mean, median, interval, crps."""
        dists, read = self._search(self._texts(X)), self.numeral_.read
        numbers = [dict(zip(map(str, read(dist.values).tolist()), dist.probabilities, strict=True)) for dist in dists]
        return [NumberDistribution.of(masses, dist.covered) for masses, dist in zip(numbers, dists, strict=True)]

    def sample(self, X: Any, n: int = 100, seed: int = 0) -> np.ndarray:
        """Draws from the distribution of each text, (texts, n), the same ones for a seed."""
        dists = self.distribution(X)
        seeds = np.random.default_rng(seed).integers(1 << 32, size=len(dists)).tolist()
        return np.stack([dist.sample(n, seed=text_seed) for dist, text_seed in zip(dists, seeds, strict=True)])

    def report(self, X: Any, y: Any, *, interval: float = 0.9, head: bool = False) -> tuple[pd.DataFrame, Any]:
        """Print and return errors on texts that the model has not seen, and draw predictions and calibration.

        The table has every reading, ridge regression on characters, constants and, with ``head``, a regression head,
        which is trained now. Coverage is the share of intervals that hold the true number, width their mean width. The
        second item is two matplotlib axes, or None.
        """
        texts, y = self._texts(X), check_array(y, ensure_2d=False, dtype="float64", input_name="y")
        check_consistent_length(texts, y)
        levels = [] if self._lacking(interval) else sorted({interval, *(tenths / 10 for tenths in range(1, 10))})
        read = {name: self._read(texts, name) for name in READINGS}
        ends = {level: self._ends(*read[self.reading_], level) for level in levels}
        written = {name: values for name, (values, _) in read.items()} | self._others(texts, head)
        numbers = {name: self.numeral_.read(values) for name, values in written.items()}
        return compare(y, numbers, self.reading_, ends, interval, powers=self.numeral_.sign != 0)

    def _texts(self, X: Any) -> list[str]:
        check_is_fitted(self, "reading_")
        return texts_of(X, self.columns_, self.params_.template)

    def _search(self, texts: list[str]) -> list[NumberDistribution]:
        """The distributions of the numbers as they are written; those of the last texts are kept."""
        self._check_one()
        if self._searched[0] != texts:
            self._searched = texts, (read := self._reader.distribution(texts))
            warn_of_text(read, "train longer", stacklevel=5)
        return self._searched[1]

    def _read(self, texts: list[str], how: Any) -> tuple[np.ndarray, Sequence[float | None]]:
        """Numbers as they are written, (n,) or (n, k), and the spreads of their distributions, (n,)."""
        spreads: Any = [None] * len(texts)
        if how in SEARCHES:
            dists = [dist if dist.represented else None for dist in self._search(texts)]
            moments = [dist.moments(TreeConfig.trim) if dist else (np.nan, np.nan) for dist in dists]
            means, spreads = np.array(moments).T
            written = np.array([dist.median if dist else np.nan for dist in dists]) if how == "median" else means
        else:
            written = values_of(self._reader.texts(texts, how), self.n_outputs_)
            written = written if self.n_outputs_ > 1 else written[:, 0]
        if lacking := int(np.isnan(written).reshape(len(texts), -1).any(axis=1).sum()):
            many = f"{lacking:,} of {len(texts):,} answers have no number"
            warnings.warn(f"{many}: they count as the median of the training numbers", stacklevel=3)
        return np.where(np.isnan(written), self.middle_, written), spreads

    def _ends(self, written: np.ndarray, spreads: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Low and high ends, (n,) each."""
        intervals = [self._calibration.interval(level, *pair) for pair in zip(written.tolist(), spreads, strict=True)]
        low, high = np.array([interval or [-np.inf, np.inf] for interval in intervals]).T
        more = self.numeral_.lost + 1e-12 * (np.abs(low) + np.abs(high))  # what lies at an end is within
        ends = self.numeral_.read(low - more), self.numeral_.read(high + more)
        return np.minimum(*ends), np.maximum(*ends)

    def _lacking(self, level: Any) -> str:
        """What intervals of this level lack; "" for nothing, and a warning where they are unbounded."""
        self._check_one()
        if not isinstance(level, int | float | np.floating) or not 0 < float(level) < 1:
            raise ValueError(f"interval={level!r}: give a level above 0 and below 1, such as 0.9")
        scores = self._calibration.scores
        if len(scores) < (least := max(least_answers(float(level)), least_answers(LEVEL))):
            needed = f"intervals of level {level} need {least:,} validation texts"
            return f"{needed}, and there are {self.n_validation_:,}; give more texts, or a larger validation="
        if np.isinf(self._calibration.radius(float(level), 0.0)):
            many = f"{np.isinf(scores).sum():,} of {len(scores):,} validation answers have no number"
            warnings.warn(f"{many}, so that intervals of level {level} are unbounded; train longer", stacklevel=3)
        return ""

    def _check_one(self) -> None:
        if (count := self.n_outputs_) > 1:
            raise ValueError(f"intervals, distributions and reports are of one number for each text, not of {count}")

    def _others(self, texts: list[str], head: bool) -> dict[str, np.ndarray]:
        """Values of a regression head, ridge regression and constants, where the rows of the fit still are."""
        files = [self._rows / f"{name}.jsonl" for name in SPLITS]
        if head and not files[0].is_file():
            raise ValueError("head=True: the rows that it learns from are not kept with the model; fit again")
        if not files[0].is_file():
            return {}
        others = references(files[0], files[1], texts)
        if head:
            run = of_run(self._train(self._words(head=True)))
            others["regression head"] = [answer["answer"] for answer in ask(run, texts)]
        return {name: values_of(answers, 1)[:, 0] for name, answers in others.items()}

    def save(self, folder: str | Path) -> None:
        """Write a fitted model to a folder that transformers loads, too: weights, tokenizer and regressor.json."""
        check_is_fitted(self, "reading_")
        params, source = {**self.params_, "folder": None}, self.params_.model
        params["model"] = str(source if isinstance(source, str | Path) else folder)
        stored = {"params": params, "state": {name: getattr(self, name) for name in STATE}}
        stored |= {"numeral": vars(self.numeral_), "calibration": self._calibration.header}
        for part in (self._reader.model, self._reader.tokenizer):
            part.save_pretrained(folder)
        write_atomically(Path(folder) / FITTED, json.dumps(stored, indent=1, default=lambda array: array.tolist()))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The fitted model that `save` wrote. It has no rows: `report` has readings only."""
        try:
            stored = json.loads((Path(folder) / FITTED).read_text(encoding="utf-8"))
            self = cls(**stored["params"])
            vars(self).update({name: stored["state"][name] for name in STATE})
            self.params_ = Bunch(**stored["params"])
            self.numeral_, self.middle_ = Numeral(**stored["numeral"]), np.array(self.middle_)
            self._calibration, self._rows = Calibration.from_header(stored["calibration"]), Path(folder)
            self._load(Path(folder))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{folder}: give a folder that NumberRegressor.save wrote; {error!r:.60}") from error
        return self
