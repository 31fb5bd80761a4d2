"""Language modelling on plain text: whole runs on a corpus of a hundred sentences."""

import json
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ntl import NumberTokenLoss
from ntl.config import Config, UserError, compose
from ntl.config.folders import CONFIG_DIR
from ntl.decoding import NumberReader
from ntl.decoding.predictor import of_run, predict, restore
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.runs.parts import RunParts
from ntl.training.train import train


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 documents of one to three lines, with numbers in them."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = [
        [f"Day {day}: {day % 7} of {number} ships came.", "None left."][: 1 + day % 2]
        for day in range(100)
        for number in (day, 3, 17)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in lines))
    return path


@pytest.fixture
def text(settings: Callable[..., list[str]], corpus: Path) -> Callable[..., Config]:
    """The config of a run of a second on the corpus."""

    def make(*overrides: str) -> Config:
        own = [each for each in settings() if not each.startswith("dataset")]
        return compose([*own, "dataset=text", f"dataset.path={corpus}", "trainer.max_input_length=24", *overrides])

    return make


@pytest.mark.slow
def test_an_epoch_is_all_blocks(text) -> None:
    config = text()
    config.trainer.epochs = 1
    record = read_record(train(config))
    blocks = len(RunParts(text(), print).encoded("train"))
    assert record.data["rows"]["train"] != blocks
    assert record.examples_seen == blocks


@pytest.mark.slow
def test_from_the_file_to_the_record(text, corpus: Path) -> None:
    config = text()
    path = train(config)
    record = read_record(path)
    assert (record.config["decoding"]["name"], record.steps) == ("likelihood", 12)
    assert sum(record.data["rows"].values()) == 300
    metrics: Any = record.metrics
    assert metrics["test/perplexity"] == pytest.approx(math.exp(metrics["test/ce"]))
    assert metrics["test/count"] == record.data["rows"]["test"]
    assert 0 <= metrics["test/digit_accuracy"] <= 1
    header, rows = read_predictions(path.with_name("predictions.jsonl"))
    assert [row["id"] for row in rows] == [f"test/{number:05d}" for number in range(len(rows))]
    parts, _ = restore(path.parent, say=lambda line: None)
    assert header["bytes"] == {"test": sum(len(row["answer"].encode()) for row in parts.rows("test"))}
    # Decoded again, the same file.
    before = path.with_name("predictions.jsonl").read_bytes()
    assert predict(path.parent, ["decoding=likelihood"], say=lambda line: None).read_bytes() == before
    with pytest.raises(UserError, match="this run learned plain text, without questions"):
        of_run(path.parent)


# Sentences with a number, and several numbers, from a file to the record.


evaluate = runpy.run_path(str(CONFIG_DIR.parent / "scripts" / "evaluate.py"))["main"]
LEARNED = ["model.n_embd=32", "trainer.max_steps=100", "trainer.lr=1e-2", "trainer.save_steps=50"]
SENTENCE = ["dataset.answers=sentence", "decoding.interval_rows=9"]
NUMBERS = ["dataset.answers=numbers", "trainer.best=mae", "trainer.eval_steps=50"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words", "scored"),
    [
        ("The total is 122 dollars.", SENTENCE, {"mae": 0, "mae:median": 0, "mae:ridge": 0, "coverage_90": 1}),
        ("128, 0, 4096", [*NUMBERS, "objective=mtp", "decoding=beam"], {"mae": 0, "mae/2": 0, "mae/3": 0}),
        ('{"sum": 6, "product": 8}', [*NUMBERS, "objective.mask.fraction=0.1"], {"mae": 0, "mae/1": 0, "mae/2": 0}),
    ],
)
def test_answers_as_they_come_are_learned_and_scored(
    answer: str, words: list[str], scored: dict[str, float], settings: Callable, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n}?", "answer": answer}) + "\n" for n in range(200)))
    own = [each for each in settings(*LEARNED) if not each.startswith("dataset")]
    record = train(compose([*own, "dataset=file", f"dataset.path={path}", "loss=ntl_was", *words]))
    folder, metrics = record.parent, read_record(record).metrics
    assert {name: metrics[f"test/{name}"] for name in scored} == pytest.approx(scored, abs=1e-3)
    assert metrics["test/accuracy"] == 1
    assert {row["prediction"] for row in read_predictions(folder / "predictions.jsonl")[1]} == {answer}
    loss = NumberTokenLoss.from_tokenizer(AutoTokenizer.from_pretrained(folder / "tokenizer"), shift=True)
    assert loss.coverage([answer]).share == 1
    capsys.readouterr()
    evaluate([str(folder), "--worst", "3", "--json"])
    assert json.loads(capsys.readouterr().out) == {"test": []}


# ``dataset.format=chat`` and ``scripts/predict.py --chat``: one template in training, decoding and scoring.


predict_main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "predict.py"))["main"]
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture(scope="module")
def chat_given(chat_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama and its tokenizer, and conversations whose answer is always 7."""
    folder, tokenizer = tmp_path_factory.mktemp("given") / "llama", chat_tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2}
    shaped = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **shape)
    shaped.bos_token_id, shaped.eos_token_id, shaped.pad_token_id = None, 0, None
    LlamaForCausalLM(shaped).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    turns = [[("user", f"What is {n}+{n % 3}?"), ("assistant", "7")] for n in range(60)]
    rows = [{"messages": [{"role": role, "content": text} for role, text in pair]} for pair in turns]
    rows[0]["messages"].insert(0, SYSTEM)
    (folder.parent / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def chat_settings(chat_given: Path) -> Callable[..., Config]:
    """The config of a run of a second from that folder on those conversations."""
    data = ["dataset=file", f"dataset.path={chat_given.parent / 'rows.jsonl'}", "dataset.format=chat", "loss=ntl_was"]
    model = ["model=hf", f"model.path={chat_given}", "scale=tiny", "model.dropout=0"]
    steps = ["trainer.max_steps=40", "trainer.batch_size=16", "trainer.warmup_steps=0", "trainer.save_steps=40"]
    places = [f"data_dir={chat_given.parent / 'data'}", f"output_dir={chat_given.parent / 'outputs'}", "device=cpu"]
    return lambda *more: compose([*data, *model, *steps, "trainer.lr=1e-2", "tracking=none", *places, *more])


@pytest.fixture(scope="module")
def chat_trained(chat_settings: Callable[..., Config]) -> Path:
    """The folder of that run."""
    return train(chat_settings()).parent


@pytest.mark.slow
def test_an_answer_ends_with_the_turn(chat_trained: Path) -> None:
    """Though the end token is another one: answers are 7, not 7777."""
    _, rows = read_predictions(chat_trained / "predictions.jsonl")
    assert {row["prediction"] for row in rows} == {"7"}
    record = read_record(chat_trained / "record.json")
    assert record.metrics["test/accuracy"] == 1
    assert record.config["dataset"]["format"] == "chat"
    expected = predict(chat_trained, ["decoding=expectation"], say=[].append)
    assert all(
        row["represented"] > 0.5 and abs(float(row["prediction"]) - 7) < 0.5 for row in read_predictions(expected)[1]
    )


def test_a_template_that_opens_answers_is_told_before_training(
    chat_settings: Callable[..., Config], chat_tokenizer, tmp_path: Path
) -> None:
    """A decoding by number reads an answer from its first token."""
    chat_tokenizer(opening="<think>\n\n</think>\n\n").save_pretrained(tmp_path / "tokenizer")
    words = ["decoding=expectation", f"tokenizer.path={tmp_path / 'tokenizer'}", f"output_dir={tmp_path / 'outputs'}"]
    with pytest.raises(UserError, match=r"decoding=expectation dataset\.format=chat: the chat template writes '<"):
        train(chat_settings(*words))
    assert not list((tmp_path / "outputs").glob("*/*"))


@pytest.mark.slow
def test_a_run_answers_through_its_template_and_its_checkpoint_when_asked_to(
    chat_trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoint,) = chat_trained.glob("checkpoints/checkpoint-40")
    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModelForCausalLM.from_pretrained(checkpoint)
    found = []
    for words in ([str(chat_trained)], [str(chat_trained), "--chat"], [str(checkpoint), "--chat"]):
        predict_main([*words, "What is 1+1?", "is 2?", "--json", "decoding.max_new_tokens=5"])
        printed = capsys.readouterr()
        found.append([json.loads(line)["answer"] for line in printed.out.splitlines()])
        assert "has a chat template" not in printed.err
    assert found == [["7", "7"]] * 3
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 1+1?"}], add_generation_prompt=True, return_tensors="pt"
    )
    written = model.generate(**prompt, max_new_tokens=2, do_sample=False)[0, -2:]
    assert tokenizer.decode(written) == "7<|im_end|>"
    reader = NumberReader(model, tokenizer, chat=True, max_new_tokens=5)
    assert [reader.read(["What is 1+1?"], how=how).tolist() for how in ("greedy", "digit_median", "median")] == [
        [7]
    ] * 3
    with pytest.raises(ValueError, match=r"prompt 1 has the special token <\|im_start\|>.*chat=True"):
        NumberReader(model, tokenizer).read(["<|im_start|>user\nWhat is 1+1?<|im_end|>"])
    predict_main([str(checkpoint), "What is 1+1?", "decoding.max_new_tokens=2"])
    hint = [line for line in capsys.readouterr().err.splitlines() if "chat template" in line]
    assert len(hint) == 1
    assert "--chat" in hint[0]
