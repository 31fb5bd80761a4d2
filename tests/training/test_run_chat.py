"""``dataset.format=chat`` and ``scripts/predict.py --chat``: one template in training, decoding and scoring."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ntl.config import Config, UserError, compose
from ntl.decoding import NumberReader
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training.predictor import predict
from ntl.training.train import train

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "predict.py"))["main"]
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture(scope="module")
def given(chat_tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny Llama and its tokenizer, and conversations whose answer is always 7."""
    folder, tokenizer = tmp_path_factory.mktemp("given") / "llama", chat_tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2}
    settings = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **shape)
    settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = None, 0, None
    LlamaForCausalLM(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    turns = [[("user", f"What is {n}+{n % 3}?"), ("assistant", "7")] for n in range(60)]
    rows = [{"messages": [{"role": role, "content": text} for role, text in pair]} for pair in turns]
    rows[0]["messages"].insert(0, SYSTEM)
    (folder.parent / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def settings(given: Path) -> Callable[..., Config]:
    """The config of a run of a second from that folder on those conversations."""
    data = ["dataset=file", f"dataset.path={given.parent / 'rows.jsonl'}", "dataset.format=chat", "loss=ntl_was"]
    model = ["model=hf", f"model.path={given}", "scale=tiny", "model.dropout=0"]
    steps = ["trainer.max_steps=40", "trainer.batch_size=16", "trainer.warmup_steps=0", "trainer.save_steps=40"]
    places = [f"data_dir={given.parent / 'data'}", f"output_dir={given.parent / 'outputs'}", "device=cpu"]
    return lambda *more: compose([*data, *model, *steps, "trainer.lr=1e-2", "tracking=none", *places, *more])


@pytest.fixture(scope="module")
def trained(settings: Callable[..., Config]) -> Path:
    """The folder of that run."""
    return train(settings()).parent


@pytest.mark.slow
def test_an_answer_ends_with_the_turn(trained: Path) -> None:
    """Though the end token is another one: answers are 7, not 7777."""
    _, rows = read_predictions(trained / "predictions.jsonl")
    assert {row["prediction"] for row in rows} == {"7"}
    record = read_record(trained / "record.json")
    assert record.metrics["test/accuracy"] == 1
    assert record.config["dataset"]["format"] == "chat"
    expected = predict(trained, ["decoding=expectation"], say=[].append)
    assert all(
        row["represented"] > 0.5 and abs(float(row["prediction"]) - 7) < 0.5 for row in read_predictions(expected)[1]
    )


def test_a_template_that_opens_answers_is_told_before_training(
    settings: Callable[..., Config], chat_tokenizer, tmp_path: Path
) -> None:
    """A decoding by number reads an answer from its first token."""
    chat_tokenizer(opening="<think>\n\n</think>\n\n").save_pretrained(tmp_path / "tokenizer")
    words = ["decoding=expectation", f"tokenizer.path={tmp_path / 'tokenizer'}", f"output_dir={tmp_path / 'outputs'}"]
    with pytest.raises(UserError, match=r"decoding=expectation dataset\.format=chat: the chat template writes '<"):
        train(settings(*words))
    assert not list((tmp_path / "outputs").glob("*/*"))


@pytest.mark.slow
def test_a_run_answers_through_its_template_and_its_checkpoint_when_asked_to(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkpoint,) = trained.glob("checkpoints/checkpoint-40")
    tokenizer, model = AutoTokenizer.from_pretrained(checkpoint), AutoModelForCausalLM.from_pretrained(checkpoint)
    found = []
    for words in ([str(trained)], [str(trained), "--chat"], [str(checkpoint), "--chat"]):
        main([*words, "What is 1+1?", "is 2?", "--json", "decoding.max_new_tokens=5"])
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
    main([str(checkpoint), "What is 1+1?", "decoding.max_new_tokens=2"])
    hint = [line for line in capsys.readouterr().err.splitlines() if "chat template" in line]
    assert len(hint) == 1
    assert "--chat" in hint[0]
