"""scripts/predict.py: questions, test splits decoded again, and decodings that are interrupted."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.decoding.batches import Journal
from ntl.evaluation import evaluate as evaluation
from ntl.evaluation import read_predictions, score_predictions
from ntl.results import read_record
from ntl.system.errors import Busy, UserError
from ntl.training import run
from ntl.training.folder import is_taken, only_one
from ntl.training.predictor import main, predict


def questions(data: Path, count: int = 30) -> list[str]:
    return [json.loads(line)["question"] for line in (data / "test.jsonl").read_text().splitlines()[:count]]


@pytest.fixture
def asked(trained_once: Path, prepared, small, capsys: pytest.CaptureFixture[str]):
    """``asked(*words)``: the objects that the run prints as JSON lines."""

    def ask(*words: str, model: Path = trained_once) -> list[dict]:
        capsys.readouterr()
        assert main([str(model), *words, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    ask.run, ask.data = trained_once, prepared(small())
    return ask


def test_answers_are_those_of_the_test_split_in_order(asked, tmp_path: Path) -> None:
    expected = [row["prediction"] for row in read_predictions(asked.run / "predictions.jsonl")[1]]
    texts = questions(asked.data)
    (tmp_path / "q.txt").write_text("\n\n".join(texts) + "\n")
    before = {path: path.stat().st_mtime_ns for path in asked.run.rglob("*")}
    found = asked("--file", str(tmp_path / "q.txt"), "decoding.batch_size=4")
    assert [line["question"] for line in found] == texts
    assert [line["answer"] for line in found] == expected
    assert found == asked(*texts)
    assert {path: path.stat().st_mtime_ns for path in asked.run.rglob("*")} == before


def test_standard_input(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = questions(asked.data, 3)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    assert asked("--file", "-") == asked(*texts)


@pytest.mark.parametrize("more", [(), ("decoding=expectation", "decoding.num_beams=20")])
def test_a_checkpoint_alone_answers_as_its_run(asked, more: tuple[str, ...]) -> None:
    texts, length = questions(asked.data, 5), "decoding.max_new_tokens=6"
    (checkpoint,) = asked.run.glob("checkpoints/checkpoint-12")
    found = asked(*texts, *more, length, model=checkpoint)
    assert found == asked(*texts, *more, length)
    for line in found if more else []:
        low, high = line["interval"]
        assert low <= high
        assert float(line["answer"]) == pytest.approx(line["mean"], abs=0.005)


def test_text_has_the_question_and_the_interval(asked, capsys: pytest.CaptureFixture[str]) -> None:
    question, settings = questions(asked.data, 1)[0], ["decoding=expectation", "decoding.num_beams=20"]
    (line,) = asked(question, *settings)
    assert main([str(asked.run), question, *settings]) == 0
    low, high = line["interval"]
    assert capsys.readouterr().out == f"{question}\n  {line['answer']} [{low:.12g}, {high:.12g}]\n"


def test_no_data_is_needed(asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(asked.run), "house 1 2 3 =", f"data_dir={tmp_path / 'none'}"]) == 0
    assert "at most 32 tokens" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


WRONG = {
    ("",): "question 1 is empty",
    ("what 1 2", "dataset=gsm8k"): "give one of them",
    ("1", "1 " * 200): r"question 2 has 400 tokens, and the model reads 115 beside an answer of 14",
    ("--file", "none.txt"): "--file none.txt: No such file",
    ("--file", "/dev/null"): "--file /dev/null: no question in it",
    ("what?", "loss=ce"): "only decoding",
    ("x=3",): "x=3: only decoding",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_line(asked, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=WRONG[words]) as caught:
        asked(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "line"), [([], "ask it a question"), (["why?", "dataset=gsm8k"], "only decoding, device may be set")]
)
def test_a_mistake_with_a_stored_model_is_one_line(trained_once: Path, words: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        main([str(trained_once / "checkpoints" / "checkpoint-12"), *words])


def test_a_question_may_have_an_equals_sign(asked) -> None:
    (line,) = asked("x=3 and y=4: what is x+y?")
    assert line["question"] == "x=3 and y=4: what is x+y?"


OTHER = [
    "dataset=multiplication",
    "dataset.train_rows=96",
    "dataset.validation_rows=20",
    "dataset.test_rows_per_cell=2",
]


def test_another_data_set_has_a_file_of_its_own(finished: Path) -> None:
    before = (finished / "predictions.jsonl").read_bytes(), (finished / "record.json").read_bytes()
    path = predict(finished, [*OTHER, "decoding.max_new_tokens=6"], say=[].append)
    header, rows = read_predictions(path)
    assert path.name.startswith("predictions-greedy-1-multiplication-")
    assert (header["dataset"], {row["split"] for row in rows}) == ("multiplication", {"interpolate", "extrapolate"})
    assert ((finished / "predictions.jsonl").read_bytes(), (finished / "record.json").read_bytes()) == before
    assert read_record(finished / "record.json").config["dataset"]["name"] == "noisy_numbers"


def test_the_runs_own_decoding_gives_its_file_byte_for_byte(small, capsys: pytest.CaptureFixture[str]) -> None:
    finished = run(
        small("dataset.noise_sd=0", "trainer.max_steps=200", "trainer.lr=1e-2", "decoding.batch_size=8")
    ).parent
    path = finished / "predictions.jsonl"
    before = path.read_bytes()
    assert len({row["prediction"] for row in read_predictions(path)[1]}) > 3
    path.unlink()
    capsys.readouterr()
    assert main([str(finished), "device=cpu", "--json"]) == 0
    assert path.read_bytes() == before
    printed = capsys.readouterr()
    metrics = json.loads(printed.out)
    record = read_record(finished / "record.json").metrics
    assert metrics.keys() == {name for name in record if not name.startswith("validation")}
    for name, value in metrics.items():
        assert (value is None) == (record[name] is None)
        assert value is None or value == pytest.approx(record[name], rel=1e-6)
    assert "decoded test: 30 examples" in printed.err


def test_another_decoding_has_a_file_of_its_own(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict(finished, ["decoding.num_beams=1", "decoding=greedy"], say=[].append).name == "predictions.jsonl"
    before = (finished / "predictions.jsonl").read_bytes()
    assert main([finished.name, "decoding=beam", "decoding.num_beams=2", "--outputs", str(finished.parent)]) == 0
    header, rows = read_predictions(finished / "predictions-beam-2.jsonl")
    assert (header["decoding"]["name"], header["decoding"]["num_beams"], len(rows)) == ("beam", 2, 30)
    assert (finished / "predictions.jsonl").read_bytes() == before
    assert "unparsable" in capsys.readouterr().out


def test_drafts_give_the_answers_of_greedy_decoding(small) -> None:
    """Of a run with heads; one without them is refused."""
    heads = ["objective=mtp", "objective.heads=3", "model.n_layer=4", "trainer.lr=1e-2"]
    folder = run(small(*heads)).parent
    drafted = predict(folder, ["decoding=speculative"], say=[].append)
    assert drafted.name == "predictions-speculative-1.jsonl"
    rows, greedy = (read_predictions(path)[1] for path in (drafted, folder / "predictions.jsonl"))
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in greedy]
    assert all(row["speculation"]["tokens"] >= row["speculation"]["forwards"] for row in rows)
    metrics = score_predictions(drafted).metrics
    assert 1 <= metrics["test/tokens_per_forward"] <= 3
    assert 1 >= metrics["test/accepted/head2"] >= metrics["test/accepted/head3"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["expectation", "median"])
def test_a_number_of_the_model_s_own_distribution(name: str, finished: Path, small) -> None:
    """Also of a run that was trained so, which is the same run."""
    assert run_id(small(f"decoding={name}")) == finished.name
    trained = run(small(f"decoding={name}", "decoding.num_beams=30", f"output_dir={finished.parent / name}")).parent
    path = predict(finished, [f"decoding={name}", "decoding.num_beams=30"], say=[].append)
    assert path.name == f"predictions-{name}-30.jsonl"
    header, rows = read_predictions(path)
    assert (header["decoding"]["name"], len(rows)) == (name, 30)
    assert all(0 <= row["covered"] <= 1 for row in rows)
    metrics = score_predictions(path).metrics
    assert 0 < metrics["test/covered"] < 1
    record = read_record(trained / "record.json").metrics
    assert record["test/covered"] == pytest.approx(metrics["test/covered"])
    assert predict(trained, say=[].append).name == "predictions.jsonl"
    assert read_predictions(trained / "predictions.jsonl")[0]["decoding"] == header["decoding"]


def test_as_the_model_says_is_on_record(finished: Path, small, capsys: pytest.CaptureFixture[str]) -> None:
    config = small("decoding=model", f"output_dir={finished.parent / 'own'}")
    path = run(config)
    assert path.parent.name == finished.name  # a decoding is no part of what a run is
    decoding = read_record(path).config["decoding"]
    assert (decoding["name"], decoding["own"]) == ("model", {})
    assert read_predictions(path.parent / "predictions.jsonl")[0]["decoding"] == decoding
    assert "generation config says nothing: greedy." in capsys.readouterr().out
    assert run(config) == path
    assert "It was decoded" not in capsys.readouterr().out
    assert predict(finished, ["decoding=model"], say=[].append).name == "predictions-model-0.jsonl"


def test_the_tables_are_those_of_evaluate(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(finished)])
    predicted = capsys.readouterr().out
    evaluation.main([str(finished)])
    assert capsys.readouterr().out == predicted


def test_an_unfinished_training_never_takes_the_finished_runs_name(finished: Path) -> None:
    before = (finished / "predictions.jsonl").read_bytes()
    (finished / "checkpoints" / "checkpoint-12" / "manifest.json").unlink()
    said: list[str] = []
    assert predict(finished, say=said.append).name == "predictions-greedy-1-checkpoint-6.jsonl"
    assert (finished / "predictions.jsonl").read_bytes() == before
    assert any("checkpoint-6: not the last of the 12 steps" in line for line in said)


@pytest.mark.parametrize(
    "arguments",
    [["no-such-run"], ["{run}", "loss=ce"], ["{run}", "decoding.num_beams=0"], ["{run}", "decoding=speculative"]],
)
def test_a_mistake_is_one_line_exit_code_2_and_needs_no_torch(arguments: list[str], finished: Path, command) -> None:
    arguments = [argument.replace("{run}", str(finished)) for argument in arguments]
    done = command("scripts/predict.py", *arguments, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    imported, said = [], []
    for line in done.stderr.splitlines():
        (imported if line.startswith("import time:") else said).append(line)
    assert (done.returncode, len(said), done.stdout) == (2, 1, "")
    assert said[0].startswith("error: ")
    assert imported
    assert not any(line.rpartition("|")[2].strip() in ("torch", "transformers") for line in imported)


def test_it_has_the_run_for_itself_as_long_as_it_decodes(finished: Path, tmp_path: Path, monkeypatch) -> None:
    """Under whatever name the folder is given."""
    link = tmp_path / "link"
    link.symlink_to(finished)
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with only_one(finished):
        for folder in (finished, link):
            with pytest.raises(Busy, match="another process is working on this run"):
                predict(folder)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    add, taken = Journal.add, []
    monkeypatch.setattr(Journal, "add", lambda *batch: (taken.append(is_taken(finished)), add(*batch)))
    predict(link)
    assert taken == [True]
    assert not is_taken(finished)


@pytest.mark.slow
def test_beside_a_run_that_decodes_it_is_refused_with_one_line(settings, command, beside_a_decoding) -> None:
    words = settings("decoding=median", "decoding.num_beams=20", "decoding.batch_size=1")
    config = compose(words)
    folder = Path(config.output_dir) / run_id(config)
    second = beside_a_decoding(folder, words, lambda: command("scripts/predict.py", str(folder)))
    assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1), second.stderr
    assert second.stderr.startswith(f"error: {folder}: another process is working on this run; wait for it")
    assert predict(folder, say=[].append) == folder / "predictions.jsonl"
    record = read_record(folder / "record.json")
    assert score_predictions(folder / "predictions.jsonl").predictions_sha256 == record.predictions_sha256


BESIDE = ("beside=expectation", "beside.expectation.num_beams=20", "beside.expectation.batch_size=16")
# Batches of 30 examples: greedy, then by expectation.
GREEDY, BY_EXPECTATION = 5, 2


def end_after_a_batch(patch: pytest.MonkeyPatch) -> list[int]:
    """From here on every batch that is answered ends the run; their sizes."""
    add, decoded = Journal.add, []

    def once(self: Journal, batch: int, answers: list) -> None:
        add(self, batch, answers)
        decoded.append(len(answers))
        raise KeyboardInterrupt

    patch.setattr(Journal, "add", once)
    return decoded


@pytest.mark.slow
@pytest.mark.parametrize("name", ["expectation", "median"])
def test_a_number_of_a_distribution_is_the_same_line_after_a_kill(
    name: str, small, without_times, monkeypatch, tmp_path: Path
) -> None:
    """Same bytes, and so the same sha256 in the record."""
    settings = [f"decoding={name}", "decoding.num_beams=20", "decoding.batch_size=16"]
    straight = run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
    end_after_a_batch(monkeypatch)
    config = small(*settings, f"output_dir={tmp_path / 'ended'}")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run(config)
    again = run(config)
    for file in ("predictions.jsonl", "metrics.jsonl"):
        assert (again.parent / file).read_bytes() == (straight.parent / file).read_bytes()
    assert without_times(again) == without_times(straight)


@pytest.mark.slow
def test_no_batch_is_decoded_twice(small, without_times, monkeypatch, capsys, tmp_path: Path) -> None:
    config = small("decoding.batch_size=7", *BESIDE, f"output_dir={tmp_path / 'straight'}")
    straight = run(config)
    assert not list(straight.parent.glob(".*"))
    decoded = end_after_a_batch(monkeypatch)
    config = small("decoding.batch_size=7", *BESIDE, f"output_dir={tmp_path / 'ended'}")
    for _ in range(GREEDY + BY_EXPECTATION):
        with pytest.raises(KeyboardInterrupt):
            run(config)
    monkeypatch.setattr(Journal, "add", lambda *arguments: pytest.fail("decoded again"))
    again = run(config)
    assert decoded == [7, 7, 7, 7, 2, 16, 14]
    assert "decoding test: 28 were decoded before" in capsys.readouterr().out
    assert without_times(again) == without_times(straight)
    for name in ("predictions.jsonl", "predictions-expectation-20.jsonl", "metrics.jsonl"):
        assert (again.parent / name).read_bytes() == (straight.parent / name).read_bytes()
    assert not list(again.parent.glob(".*"))


def test_batches_that_two_processes_wrote_go_to_their_own_examples(finished: Path, monkeypatch, capsys) -> None:
    """Two decode the same batches beside each other, as where the file system has no locks, and are killed."""
    settings = ["decoding=expectation", "decoding.num_beams=20", "decoding.batch_size=7"]
    path = predict(finished, settings)
    expected = path.read_bytes()
    assert len({row["covered"] for row in read_predictions(path)[1]}) == 30
    with monkeypatch.context() as patch:
        for _ in range(2):
            end_after_a_batch(patch)
            with pytest.raises(KeyboardInterrupt):
                predict(finished, settings)
    (journal,) = finished.glob(".*.answers")
    key, *lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    journal.write_bytes(b"".join([key, lines[0], lines[0], lines[1], lines[1]]))
    assert predict(finished, settings).read_bytes() == expected
    assert "14 were decoded before" in capsys.readouterr().out


def test_a_decoding_of_another_kind_begins_anew(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        end_after_a_batch(patch)
        with pytest.raises(KeyboardInterrupt):
            predict(finished, ["decoding.batch_size=20", "decoding.max_new_tokens=3"])
    said: list[str] = []
    path = predict(finished, ["decoding.batch_size=10", "decoding.max_new_tokens=3"], say=said.append)
    assert not any("already" in line for line in said)
    assert path.is_file()
    assert not list(finished.glob(".*"))
