"""The size of every model choice and the memory of a step, from shapes alone."""

import json
import re
from typing import Any

import pytest

from ntl.config import UserError, build, compose
from ntl.config.cli import report
from ntl.config.folders import choices
from ntl.config.model import GPT2Config
from ntl.costs import estimate as module
from ntl.costs.estimate import estimate, main, shape, text

PUBLISHED = {
    "t5_small": (60_506_624, 32_128),
    "t5_base": (222_903_552, 32_128),
    "t5_3b": (2_851_598_336, 32_128),
    "gpt2_small": (124_439_808, 50_257),
    "gpt2_medium": (354_823_168, 50_257),
    "gpt2_large": (774_030_080, 50_257),
    "gpt2_xl": (1_557_611_200, 50_257),
    "granite_3_2_2b": (2_533_531_648, 49_155),
    "granite_3_1_moe_1b": (1_334_628_352, 49_155),
    "qwen3_5_0_8b": (752_393_024, 248_320),
    # The language model's head is tied in T5 and GPT-2. T5's regression head has two layers of its width, GPT-2's has
    # one
    # without a bias.
    "t5_small_regression": (60_506_624 + 512 * 512 + 512 + 512 + 1, 32_128),
    "gpt2_small_regression": (124_439_808 + 768, 50_257),
    "xval": (213_440_257, 32_101),
    "rt": (222_903_552 + (32_420 - 32_128) * 768, 32_420),
}


def gpt2_tiny(rows: int) -> int:
    """Return the size: tokens and 128 positions of width 64, two blocks of attention, feed-forward and layer norms."""
    block = 64 * 192 + 192 + 64 * 64 + 64 + 64 * 256 + 256 + 256 * 64 + 64 + 4 * 64
    return rows * 64 + 128 * 64 + 2 * block + 2 * 64


def t5_tiny(rows: int) -> int:
    """Return the size: two heads of 32, one attention per encoder layer, two per decoder layer, 32 position buckets."""
    attention, feed_forward = 4 * 64 * 64, 2 * 64 * 256
    encoder = attention + feed_forward + 2 * 64
    decoder = 2 * attention + feed_forward + 3 * 64
    return rows * 64 + 2 * (encoder + decoder) + 2 * (32 * 2 + 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    built = shape(compose([f"model={name}"]))
    assert (built.parameters, built.embedding_rows, built.note) == (*PUBLISHED[name], "")
    assert type(built.parameters) is int


@pytest.mark.parametrize(("name", "count"), [("gpt2_tiny", gpt2_tiny), ("t5_tiny", t5_tiny)])
@pytest.mark.parametrize("rows", [256, 100])
def test_a_stand_in_has_the_rows_of_its_tokenizer_at_most(name: str, count, rows: int) -> None:
    built = shape(compose([f"model={name}", f"tokenizer.vocab_size={rows}"]))
    assert (built.parameters, built.embedding_rows) == (count(rows), rows)
    assert f"tokenizer.vocab_size={rows}" in built.note


def is_stand_in(name: str) -> bool:
    return "tiny" in name or "mini" in name


def test_every_published_choice_is_above() -> None:
    assert {name for name in choices("model") if not is_stand_in(name)} == set(PUBLISHED)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(filter(is_stand_in, choices("model"))))
def test_every_stand_in_has_an_estimate(name: str) -> None:
    result = estimate(compose([f"model={name}", "dataset=arithmetic", "trainer.batch_size=4"]))
    # The hidden states alone take more than this: batch x question x width x layers.
    assert result["bytes"]["activations"] > 4 * 4 * result["question_tokens"] * 64 * 2
    assert result["bytes"]["peak"] > result["bytes"]["activations"] + result["bytes"]["weights_float32"]


def test_bytes_by_hand() -> None:
    result = estimate(compose(["model=gpt2_tiny"]))
    assert gpt2_tiny(256) == 124_672
    kept = {name: size for name, size in result["bytes"].items() if name not in ("activations", "peak")}
    assert kept == {
        "weights_float32": 498_688,
        "weights_bfloat16": 249_344,
        "gradients": 498_688,
        "adamw_state": 997_376,
        "training": 1_994_752,
    }
    assert result["bytes"]["peak"] <= result["bytes"]["training"] + result["bytes"]["activations"]
    assert "gpt2_tiny: 124,672 parameters, 256 tokens (with tokenizer.vocab_size=256 rows" in text(result)
    assert ["training", "1.9", "MiB"] in [line.split() for line in text(result).splitlines()]


@pytest.mark.slow
def test_what_changes_the_memory() -> None:
    def peak(*options: str) -> int:
        given = ["model=gpt2_tiny", "model.n_layer=1", "trainer.batch_size=64", *options]
        return estimate(compose(given))["bytes"]["peak"]

    plain = peak()
    assert peak("trainer.gradient_checkpointing=true", "trainer.bf16=true") < 0.8 * plain
    assert peak("trainer.batch_size=32") < 0.6 * plain
    # Plain attention with dropout saves its scores: (batch, heads, length, length).
    assert peak("device=cpu", "model.dropout=0.1") > plain + 4 * 64 * 2 * 128 * 128


@pytest.mark.slow
def test_lora_trains_its_own_weights_alone() -> None:
    config = compose(["model=gpt2_small", "model.lora.rank=4"])
    assert isinstance(config.model, GPT2Config)
    config.model.n_layer = 1
    result = estimate(config)
    assert result["parameters"] == 50_257 * 768 + 1024 * 768 + 12 * 768**2 + 13 * 768 + 2 * 768
    # Both adapter matrices of the block's four layers: 768 to 3 x 768, 768 to 768, 768 to 4 x 768 and back.
    trained = result["trained_parameters"]
    assert trained == 4 * 768 * (4 + 2 + 5 + 5)
    assert (result["bytes"]["gradients"], result["bytes"]["adamw_state"]) == (4 * trained, 8 * trained)
    assert result["bytes"]["weights_float32"] == 4 * (result["parameters"] + trained)
    assert f"{trained:,} parameters are trained" in text(result)


@pytest.mark.slow
def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    def result(batch: int, memory_gib: float) -> dict[str, Any]:
        given = ["model=gpt2_tiny", "model.n_layer=1", f"trainer.batch_size={batch}"]
        return estimate(compose(given), memory_gib=memory_gib)

    fits = result(1, memory_gib=0.5)["largest_batch"]
    assert result(fits, 0.5)["bytes"]["peak"] <= 2**29 < result(fits + 1, 0.5)["bytes"]["peak"]
    assert result(1, memory_gib=0.001)["largest_batch"] == 0


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        (["scale.positions=512"], (0, 0), (128, 24)),
        (["scale.positions=512", "dataset=multirc", "trainer.max_input_length=300"], (0, 0), (257, 256)),
        (["scale.positions=64", "dataset=multirc"], (0, 0), (33, 32)),
        ([], (50, 7), (50, 7)),
    ],
)
def test_lengths(options: list[str], given: tuple[int, int], expected: tuple[int, int]) -> None:
    config = compose(["model=gpt2_tiny", *options])
    assert module._lengths(config, shape(config).model, *given) == expected  # pyright: ignore[reportPrivateUsage]


def test_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(module, "build", lambda *args, **named: built.append(build(*args, **named)) or built[-1])
    estimate(compose(["model=t5_small", "model.num_layers=1", "model.pretrained=false"]))
    model = built[0]
    for tensor in (*model.parameters(), *model.buffers()):
        assert tensor.untyped_storage().device.type == "meta"


@pytest.mark.slow
@pytest.mark.timeout(600)  # as building their weights would not
def test_every_published_model_is_estimated() -> None:
    for name in PUBLISHED:
        assert estimate(compose([f"model={name}", "dataset=arithmetic"]))["bytes"]["activations"] > 0


LARGE = ["t5_3b", "gpt2_xl", "granite_3_2_2b", "granite_3_1_moe_1b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_what_a_model_requires_agrees_with_its_estimate(name: str) -> None:
    """With the longest answers, those of GSM8K, a batch fits at each size, with 1 GiB left for what is not counted."""
    options: list[str] = []
    for clause in compose([f"model={name}"]).model.requires.split(", or "):
        options += re.findall(r"[\w.]+=\w+", clause)
        (size,) = re.findall(r"of (\d+) GB", clause)
        config = compose([f"model={name}", "dataset=gsm8k", "scale=paper", *options])
        assert estimate(config, memory_gib=int(size) * 1e9 / 2**30 - 1)["largest_batch"] >= 4


@pytest.mark.slow
def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["model=gpt2_small", "--json", "loss=ce"])
    assert json.loads(capsys.readouterr().out)["parameters"] == 124_439_808
    main(["model=gpt2_xl", "model.n_layer=1", "model.pretrained=false"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gpt2_xl: 112,793,600 parameters, 50,257 tokens")
    assert lines[1].startswith("requires trainer.bf16=true on one GPU of 40 GB")
    main(["model=gpt2_tiny", "--memory", "0.5", "--question-tokens", "9", "--answer-tokens", "3"])
    printed = capsys.readouterr().out
    assert "questions of 9 tokens and answers of 3" in printed
    assert "largest batch in 0.5 GiB: " in printed
    assert "not counted: the CUDA context" in printed
    assert report(lambda: main(["model=gpt2_smal"])) == 2
    assert "Did you mean one of 'gpt2_small', 'gpt2_small_regression'?" in capsys.readouterr().err


def test_a_folder_is_not_read(tmp_path) -> None:
    with pytest.raises(UserError, match="the estimate reads the shapes of config/model"):
        estimate(compose(["model=t5_small", f"model.path={tmp_path}"]))


BLOCK = (
    2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64
)  # of llama_tiny: attention with two key heads, gated feed-forward


@pytest.mark.parametrize(
    ("overrides", "added"),
    [
        ("objective.heads=1", 0),
        ("objective.heads=2", 0),  # one of the two blocks
        ("objective.heads=2 objective.keep_depth=true", BLOCK),
        ("objective.heads=4", 3 * BLOCK),  # more heads than blocks
        ("objective.heads=3 objective.variant=linear", 2 * 64 * 64),
        ("objective.heads=3 objective.kind=sequential", 2 * (BLOCK + 2 * 64 * 64 + 3 * 64)),
    ],
)
def test_heads_are_counted(overrides: str, added: int) -> None:
    size = ["model=llama_tiny", "dataset=polynomial", "scale=tiny"]
    plain, built = shape(compose(size)), shape(compose([*size, "objective=mtp", *overrides.split()]))
    heads = int(overrides[16])
    assert built.parameters == plain.parameters + added
    # Every head multiplies with the unembedding, which is counted once.
    assert built.multiplied == built.parameters + (heads - 1) * 64 * 256
    assert ("its depth is kept" in built.note) == (heads == 4)


@pytest.mark.slow
def test_the_memory_of_heads_one_at_a_time_and_together() -> None:
    size = ["model=llama_tiny", "model.settings.num_hidden_layers=4", "tokenizer.vocab_size=2000"]
    size += ["dataset=polynomial", "trainer.batch_size=4", "trainer.max_input_length=32"]
    mtp = [*size, "objective=mtp", "objective.heads=4"]
    one, apart, together = (
        estimate(compose(given))["bytes"] for given in (size, mtp, [*mtp, "objective.one_at_a_time=false"])
    )
    assert apart["weights_float32"] == one["weights_float32"]
    # The logits of one head are held at a time, or those of four, 4 bytes for each of 2,000 tokens.
    assert together["activations"] - apart["activations"] > 3 * 4 * 4 * 32 * 2000
    assert apart["activations"] < 1.2 * one["activations"]
