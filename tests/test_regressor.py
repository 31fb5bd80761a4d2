"""NumberRegressor, as a person with a table of texts and numbers uses it."""

import copy
import json
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from ntl import NumberRegressor
from ntl.config import compose
from ntl.decoding import NumberReader
from ntl.evaluation import read_predictions
from ntl.evaluation.interval import Calibration
from ntl.results import read_record
from ntl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore:validation has . of the texts")
PLACES = {"old town": 250, "harbour": 120, "suburb": 0}


def flats(count: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """README's made-up rents."""
    draw = random.Random(seed)
    texts, rents = list[str](), list[int]()
    for _ in range(count):
        width, length, floor = draw.randrange(3, 10), draw.randrange(3, 13), draw.randrange(20)
        place = draw.choice([*PLACES])
        texts.append(f"{width} by {length} m, {place}, floor {floor}")
        rents.append(20 * width * length + 5 * floor + PLACES[place] + draw.randrange(-20, 21))
    return texts, np.array(rents, dtype=float)


def steps(count: int, **settings: Any) -> NumberRegressor:
    return NumberRegressor(**{"read": "greedy", "max_steps": count, "device": "cpu", **settings})


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> NumberRegressor:
    """One that has learned what numbers are, and little more."""
    texts, y = flats(120)
    return steps(60, read="median", validation=0.25, folder=tmp_path_factory.mktemp("runs")).fit(texts, y)


@pytest.mark.filterwarnings("ignore:.*of the probability")
class TestFitted:
    def test_intervals_hold_the_number_and_grow_with_their_level(self, fitted: NumberRegressor) -> None:
        texts, y = flats(6, seed=1)
        number, low, high = fitted.predict(texts, interval=0.9).T
        assert (number == fitted.predict(texts)).all()
        assert (low < number).all()
        assert (number < high).all()
        _, lower, higher = fitted.predict(texts, interval=0.5).T
        assert (higher - lower < high - low).all()
        with pytest.raises(ValueError, match=r"level 0\.99 need 99 validation texts, and there are 30; give more"):
            fitted.predict(texts, interval=0.99)
        for wrong in ("x", 1.5, 0, np.nan, True):
            for ask in (fitted.predict, partial(fitted.report, y=y)):
                with pytest.raises(ValueError, match=rf"^interval={wrong!r}: give a level above 0 and below 1"):
                    ask(texts, interval=wrong)

    def test_unbounded_intervals_say_why(self, fitted: NumberRegressor) -> None:
        model = copy.copy(fitted)
        model._calibration = Calibration([1.0] * 15 + [math.inf] * 5)
        with pytest.warns(UserWarning, match=r"^5 of 20 validation answers .* level 0\.9 are unbounded; train longer"):
            _, low, high = model.predict(["7 by 4 m"], interval=0.9)[0]
        assert (low, high) == (-np.inf, np.inf)
        assert np.isfinite(model.predict(["7 by 4 m"], interval=0.7)).all()

    def test_what_is_set_after_a_fit_is_for_the_next(self, fitted: NumberRegressor, tmp_path: Path) -> None:
        texts, _ = flats(3, seed=1)
        model = copy.copy(fitted).set_params(template="{text}, {text}", scale="log", read="mean", decimals=9)
        model.set_params(device="nowhere", model=None, settings="x", seed=-1)
        assert model.predict(texts, interval=0.8).tolist() == fitted.predict(texts, interval=0.8).tolist()
        assert model._words(head=True) == fitted._words(head=True)
        model.save(tmp_path)
        assert {**NumberRegressor.load(tmp_path).get_params(), "settings": ()} == {
            **fitted.get_params(),
            "folder": None,
        }

    def test_text_that_is_lost_is_told(self, fitted: NumberRegressor) -> None:
        with pytest.warns(UserWarning, match="2 of 3 texts have unknown tokens; choose another tokenizer"):
            fitted.predict(["7 by 4 m", "7 \N{SNOWMAN} 4 m", "7 by 4 </s>"])  # a special token is text, as in training
        assert fitted._reader.max_input_length == compose(fitted._words()).trainer.max_input_length

    def test_its_answers_are_those_of_the_run(self, fitted: NumberRegressor) -> None:
        rows = [json.loads(line) for line in (fitted._rows / "validation.jsonl").read_text().splitlines()]
        told = [float(row["prediction"]) for row in read_predictions(fitted.run_ / "predictions.jsonl")[1]]
        assert fitted.predict([row["question"] for row in rows]).tolist() == told

    def test_a_saved_one_is_the_same_and_transformers_loads_it(self, fitted: NumberRegressor, tmp_path: Path) -> None:
        texts, _ = flats(6, seed=1)
        fitted.save(tmp_path)
        loaded, copied = NumberRegressor.load(tmp_path), pickle.loads(pickle.dumps(fitted))
        for each in (loaded, copied):
            assert (each.predict(texts, interval=0.8) == fitted.predict(texts, interval=0.8)).all()
        names = {**fitted.get_params(), "folder": None}
        assert {**loaded.get_params(), "settings": ()} == names
        model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
        reader = NumberReader(model, tokenizer, max_new_tokens=fitted.longest_)
        assert (reader.read(texts, how="median") == fitted.predict(texts)).all()

    def test_a_distribution_is_in_the_unit_of_y_and_sampled_by_a_seed(self, fitted: NumberRegressor) -> None:
        texts, _ = flats(3, seed=1)
        assert [each.median for each in fitted.distribution(texts)] == fitted.predict(texts).tolist()
        drawn = fitted.sample(texts, n=4, seed=7)
        assert drawn.shape == (3, 4)
        assert (drawn == fitted.sample(texts, n=4, seed=7)).all()
        assert (drawn != fitted.sample(texts, n=4, seed=8)).any()

    def test_a_report_compares_readings_with_ridge_and_constants(
        self, fitted: NumberRegressor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MPLBACKEND", "agg")
        texts, y = flats(20, seed=1)
        table, axes = fitted.report(texts, y)
        readings = ["greedy", "digit_median", "median (chosen)", "mean"]
        assert [*table.index] == [*readings, "ridge", "constant (median)", "constant (mean)"]
        number, low, high = fitted.predict(texts, interval=0.9).T
        assert table.MAE["median (chosen)"] == pytest.approx(np.abs(number - y).mean())
        assert table.coverage["median (chosen)"] == ((low <= y) & (y <= high)).mean()
        assert table.width["median (chosen)"] == pytest.approx((high - low).mean())
        said = capsys.readouterr().out
        assert "Ridge regression on characters has less error" in said
        assert str(table.index[2]) in said
        assert len(axes) == 2
        assert axes[1].lines[1].get_xydata().shape == (9, 2)

    def test_another_kind_of_x_is_an_error(self, fitted: NumberRegressor) -> None:
        for wrong in ([], ["  "], [3.5], [["a", "b"]], "a text", pd.DataFrame({"other": ["a"]})):
            with pytest.raises(ValueError):
                fitted.predict(wrong)


def test_bad_input_is_a_value_error(tmp_path: Path) -> None:
    texts, y = flats(30)
    inputs: list[tuple[Any, Any, str]] = [
        (texts, y[:-1], "inconsistent numbers of samples"),
        (texts, [*y[:-1], np.nan], "y contains NaN"),
        (texts, [*y[:-1], np.inf], "y contains infinity"),
        (texts, np.zeros((30, 2, 2)), "dim 3"),
        (texts, np.ones(30), "constant"),
        ([*texts[:-1], " "], y, r"X\[29\] is an empty text"),
        (texts[:1], y[:1], "minimum of 2 is required"),
        (["one text"] * 30, y, "1 different texts cannot be divided so"),
    ]
    for X, wrong, message in inputs:
        with pytest.raises(ValueError, match=message):
            steps(1).fit(X, wrong)
    wrong_settings = [("read", "mode"), ("scale", "sqrt"), ("loss", "cee"), ("validation", 1), ("model", "./nowhere")]
    for name, value in [*wrong_settings, ("settings", ["trainer.lrr=1"])]:
        with pytest.raises(ValueError):
            steps(1, **{name: value}).fit(texts, y)
    for name, value, message in (
        ("model", None, "^model=None: give a folder, a hub id, a model or"),
        ("model", 5, "^model=5: give a folder"),
        ("model", GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1)), r"^model: it .* give \[model, tokenizer"),
        ("decimals", -1, "^decimals=-1: choose auto, or a whole number"),
        ("decimals", 2.5, r"^decimals=2\.5: choose auto"),
        ("settings", "trainer.lr=1", r"^settings='trainer\.lr=1': give a list, such as"),
    ):
        with pytest.raises(ValueError, match=message):
            steps(1, **{name: value}).fit(texts, y)
    with pytest.raises(NotFittedError):
        steps(1).predict(texts)
    for content in ("", "{", "[]", "{}", '{"params": {}, "state": {}}'):
        with pytest.raises(ValueError, match=f"^{tmp_path}: give a folder that NumberRegressor.save wrote; "):
            NumberRegressor.load(tmp_path)
        (tmp_path / "regressor.json").write_text(content)


def test_a_fit_that_fails_leaves_no_fitted_estimator() -> None:
    texts, y = flats(30)
    model = steps(1).fit(texts, y)
    with pytest.raises(ValueError):
        model.set_params(loss="cee").fit(texts, 1000 * y)
    for call in (model.predict, model.distribution, model.sample):
        with pytest.raises(NotFittedError):
            call(texts)


def test_thirty_rows_of_columns_are_enough_but_for_an_interval() -> None:
    draw = random.Random(0)
    table = pd.DataFrame({"area": [draw.randrange(20, 90) for _ in range(30)], "new": True, "left out": None})
    y = table.area * 12 + 0.25
    with pytest.warns(UserWarning, match="validation has 3 of the texts, too few to choose step and reading by; give"):
        model = steps(1, read="auto", template="{area} m2, new: {new}").fit(table, y)
    lines = [json.loads(line) for line in (model._rows / "train.jsonl").read_text().splitlines()]
    held_out = (model._rows / "validation.jsonl").read_text()
    assert not any(line["question"] in held_out for line in lines)  # equal texts are on one side
    areas = [int(line["question"].removesuffix(" m2, new: True")) for line in lines]
    assert len({*areas}) == round(0.9 * table.area.nunique())
    assert [float(line["answer"]) for line in lines] == [area * 12 + 0.2 for area in areas]  # 0.1% of the deviation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has learned nothing
        predicted = model.predict(table.head())
        assert predicted.tolist() == model.predict(table.head()[["new", "area"]]).tolist()
    for level in (0.5, 0.9):
        with pytest.raises(ValueError, match=rf"level {level} need 9 validation texts, and there are 3"):
            model.predict(table, interval=level)
    assert "also in validation" not in (model._rows / "log.txt").read_text()
    with pytest.raises(ValueError, match="area"):
        model.predict(table[["new"]])


def test_several_numbers_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of greedy answers some are right and one has no number, which counts: digit medians, all near, are better."""
    texts, y = flats(30)

    def read(path: Path) -> Any:
        header, rows = read_predictions(path)
        for at, row in enumerate(rows):
            near = ", ".join(str(float(each) + 1) for each in row["answer"].split(", "))
            right = "none" if at == 1 else row["answer"]
            row["prediction"] = right if path.name == "predictions.jsonl" else near
        return header, rows

    monkeypatch.setattr("ntl.regressor.read_predictions", read)
    model = steps(1, read="auto").fit(texts, np.stack([y, y / 8], axis=1))
    assert model.reading_ == "digit_median"
    lines = (model._rows / "train.jsonl").read_text().splitlines()
    learned = [json.loads(line)["answer"].split(", ") for line in lines]
    assert model.middle_.tolist() == np.median(np.array(learned, dtype=float), axis=0).tolist()
    with pytest.warns(UserWarning, match="answers have no number"):
        assert model.predict(texts[:4]).shape == (4, 2)
    for wrong in (model.distribution, model.sample, lambda X: model.predict(X, interval=0.5)):
        with pytest.raises(ValueError, match="one number for each text"):
            wrong(texts)


def test_checks_of_scikit_learn() -> None:
    """Those that need no numeric array, which check_estimator leaves out for estimators of texts."""
    for name in (
        *("estimator_cloneable", "estimator_repr", "no_attributes_set_in_init", "parameters_default_constructible"),
        *("get_params_invariance", "set_params", "valid_tag_types", "mixin_order", "estimator_tags_renamed"),
        "do_not_raise_errors_in_init_or_set_params",
    ):
        getattr(estimator_checks, f"check_{name}")("NumberRegressor", NumberRegressor())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*answers have no number")
def test_model_selection() -> None:
    texts, y = flats(30)
    pipeline = make_pipeline(FunctionTransformer(lambda X: [f"{text}:" for text in X]), steps(1))
    assert len(cross_val_score(pipeline, texts, y, cv=2)) == 2
    search = GridSearchCV(steps(1), {"lr": [1e-3]}, cv=2).fit(np.array(texts), pd.Series(y))
    assert search.best_estimator_.lr == 1e-3
    assert search.predict(np.array(texts)).shape == (30,)
    assert not hasattr(clone(search.best_estimator_), "run_")
    where = search.best_estimator_.run_
    assert where.is_dir()
    again = copy.copy(search.best_estimator_)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del search
        assert where.is_dir()  # a copy has it
        del again
    assert not where.is_dir()
    assert not [each for each in told if issubclass(each.category, ResourceWarning)]


def test_a_fit_is_the_run_of_train_py(fitted: NumberRegressor, tmp_path: Path) -> None:
    """Its record has the overrides: with them, train.py makes the same run elsewhere."""
    record = read_record(fitted.run_ / "record.json")
    words = [*record.overrides, f"output_dir={tmp_path}"]
    again = train(compose(words), words).parent
    assert again.name == fitted.run_.name
    for name in ("metrics.jsonl", "predictions.jsonl"):
        assert (again / name).read_bytes() == (fitted.run_ / name).read_bytes()


@pytest.mark.slow
def test_train_py_makes_the_same_run_and_continues_a_killed_one(tmp_path: Path) -> None:
    """The process is killed at its first checkpoint."""
    texts, y = flats(200)
    settings = {"read": "median", "settings": ["trainer.eval_steps=20", "trainer.save_steps=20"]}
    program = f"""
from tests.test_regressor import flats, steps
steps(60, folder={str(tmp_path / "a")!r}, **{settings!r}).fit(*flats(200))
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment)
    while not [*tmp_path.glob("a/*/*/checkpoints/checkpoint-20/manifest.json")]:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    model = steps(60, folder=tmp_path / "a", **settings).fit(texts, y)
    assert "Continuing from" in (model._rows / "log.txt").read_text()
    record = read_record(model.run_ / "record.json")
    words = [*record.overrides, f"output_dir={tmp_path / 'b'}"]
    subprocess.run([sys.executable, "train.py", *words], cwd=ROOT, env=environment, check=True, capture_output=True)
    again = tmp_path / "b" / model.run_.name
    for name in ("metrics.jsonl", "predictions.jsonl"):
        assert (again / name).read_bytes() == (model.run_ / name).read_bytes()


@pytest.mark.slow
def test_of_made_up_rents_it_beats_ridge_and_its_intervals_hold() -> None:
    """README's example; 900 of 1,000 intervals hold the number, but for chance in these and in validation."""
    (texts, y), (new, right) = flats(4000), flats(1000, seed=1)
    model = NumberRegressor("tiny", max_steps=1000, device="cpu").fit(texts, y)
    table, _ = model.report(new, right)
    (chosen,) = (name for name in table.index if "chosen" in name)
    assert table.MAE[chosen] < 0.5 * table.MAE["ridge"]
    validation = len(model._calibration.scores)
    deviation = (0.9 * 0.1 * (1 / len(new) + 1 / validation)) ** 0.5
    assert abs(table.coverage[chosen] - 0.9) < 3 * deviation


def charges(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Charges of capacitors in coulombs, over sixteen powers of ten."""
    draw, prefixes = random.Random(seed), {"p": -12, "n": -9, "u": -6, "m": -3, "": 0}
    texts, values = list[str](), list[float]()
    for _ in range(count):
        farads, volts = draw.randrange(1, 1000), draw.randrange(1, 1000)
        small, large = draw.choice([*prefixes]), draw.choice(["m", "", "k"])
        texts.append(f"{farads} {small}F at {volts} {large}V")
        values.append(farads * 10.0 ** prefixes[small] * volts * {"m": 1e-3, "": 1.0, "k": 1e3}[large])
    return texts, np.array(values)


@pytest.mark.slow
def test_a_logarithmic_scale_reads_sixteen_powers_of_ten() -> None:
    (texts, y), (new, right) = charges(4000, 0), charges(100, 1)
    assert np.ptp(np.log10(y)) > 16
    with pytest.warns(UserWarning, match="powers of ten"):
        plain = NumberRegressor("tiny", max_steps=150, read="median", device="cpu").fit(texts, y)
    model = NumberRegressor("tiny", max_steps=600, read="median", scale="log", device="cpu").fit(texts, y)
    found = {}
    for name, each in (("linear", plain), ("log", model)):
        number, low, high = each.predict(new, interval=0.9).T
        covered = ((low <= right) & (right <= high)).mean()
        assert covered > 0.9 - 3 * (0.9 * 0.1 * (1 / len(new) + 1 / 400)) ** 0.5
        number, low, high = (np.log10(np.clip(values, y.min(), 1e12)) for values in (number, low, high))
        found[name] = np.abs(number - np.log10(right)).mean(), (high - low).mean()
        print(f"{name}: error {found[name][0]:.3f}, width {found[name][1]:.3f} powers of ten, coverage {covered:.3f}")
    assert found["log"][0] < 0.2 * found["linear"][0]
    assert found["log"][1] < 0.2 * found["linear"][1]
    assert (model.sample(new[:3], n=20) > 0).all()
    scores = model.report(new, right)[0].to_dict()
    assert scores["powers of ten"]["median (chosen)"] == pytest.approx(found["log"][0])
    negative = steps(1, scale="log").fit(texts[:30], -y[:30])
    assert (negative.predict(new[:5]) < 0).all()


PEAK = """
import resource
from tests.test_regressor import flats, steps
steps(20, batch_size=16).fit(*flats({rows}))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_ten_times_the_rows_take_no_more_memory() -> None:
    peaks = []
    for rows in (1_000, 10_000):
        command = [sys.executable, "-c", PEAK.format(rows=rows)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    print(peaks)
    assert peaks[1] - peaks[0] < 100  # MiB; texts and ridge regression's own table of characters


@pytest.mark.slow
def test_given_weights_adapters_and_a_regression_head(fitted: NumberRegressor, tmp_path: Path) -> None:
    texts, y = flats(60)
    fitted.save(tmp_path)
    network, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    answers = []
    for model in (str(tmp_path), network, [network, tokenizer]):
        again = steps(2, model=model, lora_rank=2, batch_size=8).fit(texts, y)
        answers.append(again.predict(texts[:5]).tolist())
    assert answers[0] == answers[1] == answers[2]
    with warnings.catch_warnings(action="ignore"):
        assert "regression head" in again.report(texts, y, head=True)[0].index
