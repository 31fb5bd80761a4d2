"""Settings that hold for every test. Environment variables come first: torch and transformers read them on import."""

import gc
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["WANDB_MODE"] = "disabled"
os.environ["WANDB_SILENT"] = "true"
# One thread: tiny tensors gain nothing from more, and sums come out in the same order on every machine.
os.environ["OMP_NUM_THREADS"] = "1"
# Triton's kernels on a CPU, by its interpreter, unless there is a GPU to run them.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
from absl.logging import get_absl_handler
from hypothesis import HealthCheck, settings

from ntl.config import compose
from ntl.results import RunRecord

pytest_plugins = ["run_fixtures"]

# No deadline and no complaint about slow draws: the first example of a test may import torch.
# The same examples in every run, so that a failure is one everywhere.
settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

# rouge-score imports absl, whose handler closes its stream when Hydra sets logging up anew: never pytest's own file.
get_absl_handler().python_handler.stream = sys.__stderr__


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data files that NTL_DATA_DIR names; without it the test is skipped."""
    named = os.environ.get("NTL_DATA_DIR")
    if not named:
        pytest.skip("NTL_DATA_DIR is not set: it names the folder with the real data files")
    folder = Path(named).resolve()
    if not folder.is_dir():
        pytest.fail(f"NTL_DATA_DIR={named} is no folder")
    return folder


@pytest.fixture(scope="session")
def chat_tokenizer() -> Callable[..., Any]:
    """``chat_tokenizer()``: a tokenizer of words, digits and signs, with a chat template as SmolLM2's.

    Its end token does not end a turn. ``first`` and ``opening`` stand before a conversation and an answer, ``end``
    behind every message, ``assistant`` in the prompt alone; ``template`` replaces all.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "system", "user", "assistant", "\n", " ", "Be"]
    names += ["brief", *".?+", *"0123456789", "What", "is", *"<|>_/", "im", "end", "think", "kind"]

    def make(
        first: str = "", opening: str = "", end: str = "<|im_end|>", assistant: str = "assistant", **given: Any
    ) -> Any:
        turn = "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}" + opening + "{% endif %}{{ m.content }}" + end
        template = (
            f"{first}{{% if messages[0].role != 'system' %}}<|im_start|>system\nBe brief.{end}\n{{% endif %}}"
            f"{{% for m in messages %}}{turn}{{{{ '\n' }}}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}<|im_start|>{assistant}{{{{ '\n' }}}}{{% endif %}}"
        )
        backend = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("[A-Za-z]+|[^A-Za-z]"), "isolated")
        backend.decoder = decoders.Fuse()
        backend.add_special_tokens(names[:3])
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            eos_token="<|endoftext|>",
            pad_token="<|endoftext|>",
            unk_token="<unk>",
            clean_up_tokenization_spaces=False,
            chat_template=given.get("template", template),
        )

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of the whole project first: they are the longest, and one that begins last is waited for alone."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


def pytest_collection_finish() -> None:
    """Trainer collects garbage at the end of each training; all that torch and transformers are made of is none.

    Otherwise it is looked for less often than by default: composing a config makes hundreds of thousands of objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def mount() -> Iterator[Callable[..., None]]:
    """``mount(folder, "-t", "tmpfs", "tmpfs")``, undone at the end; skips where this is not allowed."""
    mounted: list[Path] = []

    def make(folder: Path, *options: str) -> None:
        try:
            done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no mount here")
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        if folder not in mounted:  # a remount is no second one
            mounted.append(folder)

    yield make
    for folder in reversed(mounted):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def make_read_only(mount: Callable[..., None]) -> Callable[[Path], None]:
    """Mounts a folder over itself, read-only, which a root user meets, too; modes do not bind root."""

    def make(folder: Path) -> None:
        mount(folder, "--bind", str(folder))
        mount(folder, "-o", "remount,bind,ro")

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With NTL_REQUIRE_DATA=1 a skipped ``data`` test fails: it would otherwise pass where no data was read."""
    report = yield
    if report.skipped and item.get_closest_marker("data") and os.environ.get("NTL_REQUIRE_DATA") == "1":
        report.outcome = "failed"
        report.longrepr = f"a test marked data was skipped although NTL_REQUIRE_DATA=1: {report.longrepr}"
    return report


# InChI key, SMILES, IUPAC name, kelvin: stereoisomers share the first block of the key; one molecule has no name.
MOLECULES = [
    (
        f"{chr(65 + n // 2) * 14}-{'AB'[n % 2] * 10}-N",
        f"{'C' * (n + 1)}O",
        f"{n + 1}-anol" if n != 7 else "",
        100.25 + n,
    )
    for n in range(20)
]
# Text and ratings of each domain.
SNIPPETS = {
    "movieReviewSnippets": [
        ("Dull", [-2, -3, -1]),
        ("dull!", [-3, -3, -2]),
        ("Great fun…", [4, 3, 3]),
        ("Fine", [1, 0]),
    ],
    "nytEditorialSnippets": [(f"The vote no {n}", [0, 0, 1, -1]) for n in range(6)],
    "tweets": [(f"@anonymous {n} :)", [2, 3, 4]) for n in range(5)] + [(":(", [-4, -4])],
    "amazonReviewSnippets": [("Broke", [-1, -2]), ("Works", [1, 1]), ("Works as said", [2, 1]), ("Meh", [0, 0, 0])],
}


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """``packages(data_dir)``: files of chemicals and vaderSentiment with twenty made-up rows, as if published."""
    import hashlib
    from dataclasses import replace

    from ntl.data.sets.official import IDENTIFIERS, INSIDE, POINTS, MeltingPoints, Sentiment

    def tar(members: dict[str, bytes]) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    def place(data_dir: Path) -> None:
        points = "".join(f"{n}-00-0\t{row[3]}\n" for n, row in enumerate(MOLECULES))
        identifiers = "".join(
            f'{n}\t{n}-00-0\tCO\t1.5\t{smiles}\tC/x\t{key}\t{name}\t"other\n'
            for n, (key, smiles, name, _) in enumerate(MOLECULES)
        )
        wheel = io.BytesIO()
        with ZipFile(wheel, "w") as archive:
            archive.writestr(POINTS, f"CAS\tTm\n{points}99-00-0\t300\n")
            archive.writestr(IDENTIFIERS, identifiers)
        tables = {}
        for name, rows in SNIPPETS.items():
            texts = "".join(f"{n}\t0.5\t{text}\r\n" for n, (text, _) in enumerate(rows))
            rated = "".join(f"{n}\t0.5\t0.1\t{ratings}\r\n" for n, (_, ratings) in enumerate(rows))
            tables[f"hutto_ICWSM_2014/{name}_GroundTruth.txt"] = texts.encode()
            tables[f"hutto_ICWSM_2014/{name}_anonDataRatings.txt"] = rated.encode("utf-8-sig")
        source = tar({"vaderSentiment-3.3.2/setup.py": b"", f"vaderSentiment-3.3.2/{INSIDE}": tar(tables)})
        for kind, content in ((MeltingPoints, wheel.getvalue()), (Sentiment, source)):
            file = kind.origin.files["train"]
            (data_dir / file.path).parent.mkdir(parents=True, exist_ok=True)
            (data_dir / file.path).write_bytes(content)
            file = replace(file, sha256=hashlib.sha256(content).hexdigest())
            monkeypatch.setattr(kind, "origin", replace(kind.origin, files={"train": file}))

    return place


@pytest.fixture
def timed_record() -> Callable[..., RunRecord]:
    """A record of which only its kind and its cost matter."""

    def make(
        seconds: float, dataset: str = "arithmetic", model: str = "gpt2_tiny", scale: str = "tiny", **rest: Any
    ) -> RunRecord:
        steps = compose([f"dataset={dataset}", f"model={model}", f"scale={scale}"]).trainer.max_steps
        config = {"dataset": {"name": dataset}, "model": {"name": model}, "scale": {"name": scale}}
        config["trainer"] = {"max_steps": rest.pop("max_steps", steps)}
        known = {"device": "cpu x86_64, 1 of 2 threads", "examples_seen": 100, "tokens_seen": 2000, **rest}
        return RunRecord(id="r", overrides=[], config=config, seed=1, metrics={}, wall_time_s=seconds, **known)

    return make
