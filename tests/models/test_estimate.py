"""Sizes of every model choice, from shapes alone."""

import json

import pytest

from ntl.config import UserError, build, compose
from ntl.config.composition import choices
from ntl.config.report import report
from ntl.models import estimate as module
from ntl.models.estimate import estimate, main, text

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
    # Without the language model's head, tied in T5 and GPT-2; two layers of T5's width, one of GPT-2's without a bias.
    "t5_small_regression": (60_506_624 + 512 * 512 + 512 + 512 + 1, 32_128),
    "gpt2_small_regression": (124_439_808 + 768, 50_257),
    "xval": (213_440_257, 32_101),
    "rt": (222_903_552 + (32_420 - 32_128) * 768, 32_420),
}


def gpt2_tiny(rows: int) -> int:
    """Tokens and 128 positions of width 64, two blocks of attention and feed-forward, three kinds of layer norm."""
    block = 64 * 192 + 192 + 64 * 64 + 64 + 64 * 256 + 256 + 256 * 64 + 64 + 4 * 64
    return rows * 64 + 128 * 64 + 2 * block + 2 * 64


def t5_tiny(rows: int) -> int:
    """Two heads of 32; the encoder has one attention a layer, the decoder two; 32 buckets of positions a stack."""
    attention, feed_forward = 4 * 64 * 64, 2 * 64 * 256
    encoder = attention + feed_forward + 2 * 64
    decoder = 2 * attention + feed_forward + 3 * 64
    return rows * 64 + 2 * (encoder + decoder) + 2 * (32 * 2 + 64)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    result = estimate(compose([f"model={name}"]))
    assert (result["parameters"], result["embedding_rows"]) == PUBLISHED[name]
    assert type(result["parameters"]) is int
    assert (result["model"], result["note"]) == (name, "")


@pytest.mark.parametrize(("name", "count"), [("gpt2_tiny", gpt2_tiny), ("t5_tiny", t5_tiny)])
@pytest.mark.parametrize("rows", [256, 100])
def test_a_stand_in_has_the_rows_of_its_tokenizer_at_most(name: str, count, rows: int) -> None:
    result = estimate(compose([f"model={name}", f"tokenizer.vocab_size={rows}"]))
    assert (result["parameters"], result["embedding_rows"]) == (count(rows), rows)
    assert f"tokenizer.vocab_size={rows}" in result["note"]


def test_number_tokens_come_on_top() -> None:
    result = estimate(compose(["model=rt_tiny", "tokenizer.vocab_size=100"]))
    assert (result["parameters"], result["embedding_rows"]) == (t5_tiny(420), 420)
    assert (
        result["note"] == "with tokenizer.vocab_size=100 rows and 320 of number tokens, the most its tokenizer may need"
    )


def test_every_choice_has_a_size() -> None:
    assert {name for name in choices("model") if "tiny" not in name} == set(PUBLISHED)
    for name in choices("model"):
        assert estimate(compose([f"model={name}"]))["parameters"] > 10_000


def test_bytes_by_hand() -> None:
    result = estimate(compose(["model=gpt2_tiny"]))
    assert gpt2_tiny(256) == 124_672
    assert result["bytes"] == {
        "weights_float32": 498_688,
        "weights_bfloat16": 249_344,
        "gradients": 498_688,
        "adamw_state": 997_376,
        "training": 1_994_752,
    }
    assert "gpt2_tiny: 124,672 parameters, 256 tokens (with tokenizer.vocab_size=256 rows" in text(result)
    assert ["training", "1.9", "MiB"] in [line.split() for line in text(result).splitlines()]


def test_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(module, "build", lambda *args, **named: built.append(build(*args, **named)) or built[-1])
    estimate(compose(["model=t5_3b"]))
    (model,) = built
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    main(["model=gpt2_small", "--json", "loss=ce"])
    assert json.loads(capsys.readouterr().out)["parameters"] == 124_439_808
    main(["model=gpt2_small"])
    assert capsys.readouterr().out.startswith("gpt2_small: 124,439,808 parameters, 50,257 tokens\n")
    assert report(lambda: main(["model=gpt2_smal"])) == 2
    assert "Did you mean 'gpt2_small'?" in capsys.readouterr().err


def test_a_folder_is_not_read(tmp_path) -> None:
    with pytest.raises(UserError, match="the estimate reads the shapes of config/model"):
        estimate(compose(["model=t5_small", f"model.path={tmp_path}"]))
