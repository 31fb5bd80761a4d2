"""Given weights and their tokenizer: a run changes nothing unasked, and its checkpoints have all of it."""

import json
import math
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from given import save
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from ntl import NumberTokenLoss
from ntl.config import Config, UserError, compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.config.loss import MTPConfig
from ntl.decoding import NumberReader
from ntl.decoding.predictor import of_run, predict, restore
from ntl.evaluation import read_predictions
from ntl.models.mtp import add_heads
from ntl.results import read_record
from ntl.runs.folder import RUN, read_json
from ntl.runs.parts import RunParts
from ntl.system.hub import digest, weight_files
from ntl.system.machine import uses_bf16
from ntl.training.objective import build_objective
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
SHAPE |= {"intermediate_size": 24, "max_position_embeddings": 128}
QWEN = {"layer_types": ["full_attention"] * 2, "head_dim": 8}
DATA = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
STEPS = ["trainer.max_steps=3", "trainer.batch_size=8", "trainer.save_steps=3", "trainer.warmup_steps=1"]
STEPS += ["trainer.eval_steps=3", "trainer.eval_rows=8", "decoding.max_new_tokens=6", "tracking=none", "device=cpu"]
WRITTEN = ("dtype", "transformers_version", "architectures")


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., Path]:
    """``given(architecture, tokenizer, **settings)``: a folder as a model is published in, with a generation config."""

    def make(architecture: str, tokenizer: str, **settings: Any) -> Path:
        folder = save(tokenizer, tmp_path / "given")
        reader = AutoTokenizer.from_pretrained(folder)
        ends = reader.convert_tokens_to_ids(["<|end|>", "<|other|>"])
        ids = {"bos_token_id": 0, "eos_token_id": ends, "pad_token_id": reader.pad_token_id}
        torch.manual_seed(0)
        config = AutoConfig.for_model(architecture, vocab_size=len(reader) + 3, **{**SHAPE, **ids, **settings})
        model: Any = AutoModelForCausalLM.from_config(config)
        model.generation_config = GenerationConfig(**{**ids, "do_sample": True, "temperature": 0.6, "max_length": 99})
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    places = [f"output_dir={tmp_path / 'outputs'}", f"data_dir={tmp_path / 'data'}"]
    return lambda *words: compose([*DATA, *STEPS, *places, *words])


def contents(folder: Path, name: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads((folder / name).read_bytes()).items() if key not in WRITTEN}


def test_a_loss_of_places_needs_a_tokenizer_that_writes_digits_alone(given, command) -> None:
    def objective(name: str) -> Any:
        config = command("model=hf", f"model.path={given('llama', name)}", "loss=ntil")
        return build_objective(RunParts(config))

    assert objective("smollm2")
    with pytest.raises(UserError, match=r"^loss=ntil: .*: tokenizer=digit, or load_tokenizer"):
        objective("llama3")


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
@pytest.mark.slow
def test_the_checkpoint_is_the_given_folder_with_other_weights(name: str, given, command, caplog) -> None:
    folder = given("granite", name, attention_dropout=0.05)
    record = train(command("model=granite_3_2_2b", f"model.path={folder}", "tokenizer=digit", "loss=ntl_was"))
    checkpoint = record.parent / "checkpoints" / "checkpoint-3"
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert contents(checkpoint, file) == contents(folder, file)
    assert (checkpoint / "chat_template.jinja").read_bytes() == (folder / "chat_template.jinja").read_bytes()
    assert ("writes several digits as one token" in caplog.text) == (name == "llama3")
    assert "the model's own generation config has do_sample=True, temperature=0.6, which is not used." in caplog.text
    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModelForCausalLM.from_pretrained(checkpoint)
    before = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
    assert model.get_input_embeddings().weight.shape == before.shape
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(folder).chat_template
    _, rows = read_predictions(record.parent / "predictions.jsonl")
    questions = RunParts(command("model=granite_3_2_2b")).prepared.rows("test")
    for row, example in zip(rows, questions, strict=True):
        inputs = tokenizer(example["question"], return_tensors="pt")
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert tokenizer.decode(output, skip_special_tokens=True).strip() == row["prediction"]


@pytest.mark.slow
def test_modules_for_multi_token_prediction_are_carried(given, command: Callable[..., Any], caplog) -> None:
    folder = given("qwen3_5_text", "smollm2", **QWEN)
    model: Any = add_heads(AutoModelForCausalLM.from_pretrained(folder), MTPConfig(kind="sequential", heads=3))
    model.save_pretrained(folder)
    before = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("mtp.")}
    words = ["model=qwen3_5_0_8b", f"model.path={folder}", "tokenizer=digit", "loss=ce"]
    checkpoint = train(command(*words)).parent / "checkpoints" / "checkpoint-3"
    assert caplog.text.count("objective=mtp objective.kind=sequential trains them") == 1
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    after = load_file(checkpoint / "model.safetensors")
    assert {name: value for name, value in after.items() if name.startswith("mtp.")}.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model._is_stateful = False  # transformers refuses Qwen3.5 otherwise, even without any stateful layer
    prompt = torch.tensor([[5, 6, 7]])
    tokens = [model.generate(prompt, max_new_tokens=8, do_sample=False, use_mtp=use).tolist() for use in (False, True)]
    assert tokens[0] == tokens[1]


# Where a run's tokenizer comes from.


def test_one_is_trained_on_the_text_and_kept_and_a_named_folder_wins_over_the_models(
    parts: Callable[..., Any], trained_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"dataset": "multiplication"}
    first = parts(f"data_dir={tmp_path}", **own)
    question = first.rows("train")[0]["question"]
    tokens = first.tokenizer.tokenize(question)
    assert first.tokenizer.unk_token not in tokens
    assert [token for token in tokens if token.isdigit()] == [sign for sign in question if sign.isdigit()]
    (folder,) = [path for path in (tmp_path / ".tokenizers").iterdir() if not path.name.startswith(".")]
    assert folder.name.startswith("multiplication-digit-")
    monkeypatch.delattr("ntl.runs.parts.train_tokenizer")
    for more in ([], ["seed=2", "loss=ce"]):
        assert parts(f"data_dir={tmp_path}", *more, **own).tokenizer.get_vocab() == first.tokenizer.get_vocab()
    mine = trained_once / "tokenizer"
    for named, models in ((mine, tmp_path), ("", mine)):
        made = parts(f"data_dir={tmp_path / 'none'}")
        made.config.tokenizer.path, made.config.model.path = str(named), str(models)
        assert made.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(mine).get_vocab()


# ``scale=finetune`` from local weights, ``trainer.max_steps=0``, and the optimizers of transformers by name.


TUNED = ["dataset=noisy_numbers", "dataset.seed=0", "dataset.train_rows=96"]
TUNED += ["dataset.validation_rows=20", "dataset.test_rows=30"]


@pytest.fixture
def finetune(trained_once: Path, data_dir: Path, tmp_path: Path) -> Callable[..., Config]:
    """The config of ``scale=finetune`` with the weights and the tokenizer of a finished run."""
    weights = shutil.copytree(trained_once / "checkpoints" / "checkpoint-12", tmp_path / "weights")
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}", "device=cpu"]
    given = ["model=hf", "tokenizer=digit", f"model.path={weights}", "trainer.max_input_length=64"]
    return lambda *overrides: compose([*TUNED, *places, *given, *overrides])


@pytest.mark.slow
def test_from_local_weights_to_the_record(finetune, caplog) -> None:
    config = finetune("trainer.epochs=3", "trainer.lr=1e-3")
    path, weights = train(config), Path(config.model.path)
    record, lines = read_record(path), read_metrics(path.parent / METRICS)
    evaluations = [line for line in lines if "eval_loss" in line]
    assert [line["step"] for line in evaluations] == [3, 6, 9]  # 96 rows in batches of 32
    assert all("eval_accuracy" in line for line in evaluations)
    assert "3 epochs of 96 examples are 9 steps." in caplog.messages
    trainer = record.config["trainer"]
    assert (trainer["epochs"], trainer["max_steps"], trainer["eval_steps"], trainer["warmup_steps"]) == (3, 9, 3, 1)
    assert (record.steps, record.examples_seen) == (9, 3 * 96)
    best = record.model["best"]
    assert (best["metric"], best["value"]) == ("accuracy", max(line["eval_accuracy"] for line in evaluations))
    assert record.metrics["validation/accuracy"] == best["value"]
    assert record.model["bf16"] is uses_bf16("auto", torch.device("cpu"))
    assert record.model["precision"] == ("bf16 autocast, fp32 weights" if record.model["bf16"] else "fp32")
    assert record.model["parameters"] == AutoModelForCausalLM.from_pretrained(weights).num_parameters()
    assert record.model["weights"] == {"sha256": digest(weight_files(weights))}
    assert record.config["model"]["path"] == f"sha256:{record.model['weights']['sha256']}"


@pytest.mark.slow
def test_weights_are_scored_as_they_are(finetune, trained_once: Path, caplog) -> None:
    config = finetune("trainer.max_steps=0")
    path = train(config)
    record, source = read_record(path), read_record(trained_once / "record.json")
    assert (record.steps, record.examples_seen) == (0, 0)
    assert {name: record.metrics[name] for name in source.metrics if name.startswith("test/")} == {
        name: value for name, value in source.metrics.items() if name.startswith("test/")
    }
    answers = [read_predictions(folder / "predictions.jsonl")[1] for folder in (path.parent, trained_once)]
    assert answers[0] == answers[1]
    assert "validation/accuracy" in record.metrics
    assert "best" not in record.model
    assert "random weights" not in caplog.text
    checkpoint = path.parent / "checkpoints" / "checkpoint-0"
    assert not (checkpoint / "optimizer.pt").exists()
    # It is decoded again like any other run, and an interrupted one is finished by the same command.
    assert predict(path.parent) == path.parent / "predictions.jsonl"
    metrics, lines = record.metrics, (path.parent / METRICS).read_text()
    path.unlink()
    assert read_record(train(config)).metrics == metrics
    assert (path.parent / METRICS).read_text() == lines


def test_another_precision_on_another_device_is_refused(small, run_interrupted, monkeypatch) -> None:
    config = small("trainer.bf16=auto")
    run_interrupted(config, 3)
    checkpoint = Path(config.output_dir) / run_id(config) / "checkpoints" / "checkpoint-3"
    used = read_json(checkpoint / RUN)["bf16"]
    assert used is uses_bf16("auto", torch.device("cpu"))
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: not used)
    with pytest.raises(UserError, match=r"with trainer\.bf16=auto this device computes in"):
        train(config)


# ---- language modelling on plain text


@pytest.fixture
def text(settings: Callable[..., list[str]], tmp_path: Path) -> Config:
    """The config of a run of a second on 300 documents of one to three lines, with numbers in them."""
    path = tmp_path / "corpus.txt"
    lines = [
        [f"Day {day}: {day % 7} of {number} ships came.", "None left."][: 1 + day % 2]
        for day in range(100)
        for number in (day, 3, 17)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in lines))
    own = [each for each in settings() if not each.startswith(("dataset", "trainer.max_steps"))]
    return compose([*own, "dataset=text", f"dataset.path={path}", "trainer.max_input_length=24", "trainer.epochs=1"])


@pytest.mark.slow
def test_plain_text_from_the_file_to_the_record(text: Config) -> None:
    path = train(text)
    record = read_record(path)
    parts, _ = restore(path.parent)
    assert record.data["rows"]["train"] != len(parts.encoded("train"))
    assert record.examples_seen == len(parts.encoded("train")), "an epoch is all blocks"
    assert record.config["decoding"]["name"] == "likelihood"
    assert sum(record.data["rows"].values()) == 300
    metrics: Any = record.metrics
    assert metrics["test/perplexity"] == pytest.approx(math.exp(metrics["test/ce"]))
    assert metrics["test/count"] == record.data["rows"]["test"]
    assert 0 <= metrics["test/digit_accuracy"] <= 1
    header, rows = read_predictions(path.with_name("predictions.jsonl"))
    assert [row["id"] for row in rows] == [f"test/{number:05d}" for number in range(len(rows))]
    assert header["bytes"] == {"test": sum(len(row["answer"].encode()) for row in parts.rows("test"))}
    # Decoded again, the same file.
    before = path.with_name("predictions.jsonl").read_bytes()
    assert predict(path.parent, ["decoding=likelihood"]).read_bytes() == before
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


predict_main = runpy.run_path(str(CONFIG_DIR.parent / "scripts" / "predict.py"))["main"]
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


@pytest.mark.slow
def test_a_run_on_conversations_and_its_checkpoint_answer_through_their_template(chat_settings, capsys) -> None:
    """An answer ends with the turn, though the end token is another one: answers are 7, not 7777."""
    chat_trained = train(chat_settings()).parent
    capsys.readouterr()
    _, rows = read_predictions(chat_trained / "predictions.jsonl")
    assert {row["prediction"] for row in rows} == {"7"}
    record = read_record(chat_trained / "record.json")
    assert record.metrics["test/accuracy"] == 1
    assert record.config["dataset"]["format"] == "chat"
    expected = predict(chat_trained, ["decoding=expectation"])
    assert all(
        row["represented"] > 0.5 and abs(float(row["prediction"]) - 7) < 0.5 for row in read_predictions(expected)[1]
    )
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
    for how in ("greedy", "digit_median", "median"):
        assert reader.read(["What is 1+1?"], how=how).tolist() == [7]
    with pytest.raises(ValueError, match=r"prompt 1 has the special token <\|im_start\|>.*chat=True"):
        NumberReader(model, tokenizer).read(["<|im_start|>user\nWhat is 1+1?<|im_end|>"])
    predict_main([str(checkpoint), "What is 1+1?", "decoding.max_new_tokens=2"])
    hint = [line for line in capsys.readouterr().err.splitlines() if "has a chat template" in line]
    assert len(hint) == 1
    assert "--chat" in hint[0]


def test_a_template_that_opens_answers_is_told_before_training(chat_settings, chat_tokenizer, tmp_path: Path) -> None:
    """A decoding by number reads an answer from its first token."""
    chat_tokenizer(opening="<think>\n\n</think>\n\n").save_pretrained(tmp_path / "tokenizer")
    words = ["decoding=expectation", f"tokenizer.path={tmp_path / 'tokenizer'}", f"output_dir={tmp_path / 'outputs'}"]
    with pytest.raises(UserError, match=r"decoding=expectation dataset\.format=chat: the chat template writes '<"):
        train(chat_settings(*words))
    assert not list((tmp_path / "outputs").glob("*/*"))
