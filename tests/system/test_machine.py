"""The machine and software that a record describes, errors of the system in one line, and secrets."""

import errno
import json
import platform
import random
import string
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import set_seed

from ntl.system.errors import MissingPackage, UserError, needs, one_line_errors, print_traceback, redact, redacted
from ntl.system.machine import device_name, kept_random_state, pick_device, precision, set_tf32
from ntl.training import train
from ntl.training.record import peak_memory_bytes
from ntl.training.train import git_state, one_line_when_full

CPU = torch.device("cpu")
STATUS = Path("/proc/self/status")


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that appears to contain the source."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    source = tmp_path / "src" / "environment.py"
    source.parent.mkdir()
    source.write_text("first")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(train, "__file__", str(source))
    return tmp_path


def test_commit_and_changes(checkout: Path) -> None:
    commit = _git(checkout, "rev-parse", "HEAD")
    assert len(commit) == 40
    assert git_state() == {"commit": commit, "dirty": False}
    (checkout / "outputs.txt").write_text("an untracked file is no change of the source")
    (checkout / "results").mkdir()
    (checkout / "results" / "a.json").write_text("{}")
    _git(checkout, "add", "results")
    assert git_state() == {"commit": commit, "dirty": False}
    (checkout / "src" / "loss.py").write_text("one's own")
    assert git_state() == {"commit": commit, "dirty": True}
    (checkout / "src" / "loss.py").unlink()
    (checkout / "src" / "environment.py").write_text("second")
    assert git_state() == {"commit": commit, "dirty": True}


def test_the_precision_in_words_and_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    assert precision(True, False, CPU) == precision(True, False, gpu) == "bf16 autocast, fp32 weights"
    assert [precision(False, on, gpu) for on in (False, True)] == ["fp32 (TF32 off)", "fp32 (TF32 on)"]
    assert precision(False, False, CPU) == "fp32"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    with pytest.raises(UserError, match=r"^trainer\.tf32=true: cpu .* has no TF32; leave it out"):
        set_tf32(True, CPU)
    for capability in ((7, 5), (8, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        if capability < (8, 0):
            with pytest.raises(UserError, match="a GPU has no TF32"):
                set_tf32(True, gpu)
    set_tf32(True, gpu)
    assert torch.backends.cuda.matmul.allow_tf32
    set_tf32(False, gpu)
    assert not torch.backends.cuda.matmul.allow_tf32


def test_outside_a_checkout_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(train, "__file__", str(tmp_path / "environment.py"))
    assert git_state() == {"commit": None, "dirty": None}


def test_the_device_and_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for has_cuda in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_cuda=has_cuda: has_cuda)
        found |= {(name, has_cuda): pick_device(name).type for name in ("auto", "cpu")}
    assert found == {("auto", True): "cuda", ("cpu", True): "cpu", ("auto", False): "cpu", ("cpu", False): "cpu"}
    with pytest.raises(UserError, match=r"^device=cuda: .*device=cpu"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert str(pick_device("auto")) == "cuda:1"  # of the second process on this machine


def test_what_seeds_all_generators_leaves_none_seeded() -> None:
    draw = [random.random, np.random.rand, lambda: torch.rand(()).item()]
    set_seed(1)
    with kept_random_state():
        set_seed(5)
        seeded = [each() for each in draw]
    first = [each() for each in draw]
    set_seed(1)
    assert first == [each() for each in draw] != seeded


def test_the_processor_is_named_with_its_threads() -> None:
    assert platform.machine() in device_name(CPU)
    assert f", {torch.get_num_threads()} of " in device_name(CPU)
    assert torch.backends.cpu.get_cpu_capability() in device_name(CPU)


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not tell the peak of a process elsewhere")
def test_memory_is_the_peak_of_this_process_in_bytes() -> None:
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    assert peak_memory_bytes(CPU) == pytest.approx(int(line.split()[1]) * 1024, rel=0.01)


# Errors of the system, a missing package and a full disk are reported in one line, whoever noticed.


def test_errors_of_the_system_name_the_file_that_is_meant() -> None:
    folder = Path("folder")
    line = r"^cannot fill folder: No space left on device\.$"
    with pytest.raises(UserError, match=line), one_line_errors("fill", folder):
        raise OSError(28, "No space left on device")
    line = r"^cannot fill folder: Read-only file system \(folder/part\)\.$"
    with pytest.raises(UserError, match=line), one_line_errors("fill", folder):
        raise OSError(30, "Read-only file system", "folder/part")
    with pytest.raises(ZeroDivisionError), one_line_errors("fill", folder):
        raise ZeroDivisionError


def test_a_package_that_is_missing_names_the_innermost_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(MissingPackage) as caught, needs("report"), needs("train"):
        __import__("google.protobuf")
    assert str(caught.value) == "google.protobuf is not installed; run pip install -e '.[train]' in the clone."
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, ImportError)
    assert caught.value.name == "google.protobuf"
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'ntl\.none'$"), needs("train"):
        __import__("ntl.none")


# ---- full disks


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed\nmore of it"),
        RuntimeError("basic_ios::clear: iostream error"),
        OSError("60000 requested and 10208 written"),
    ],
)
def test_other_words_for_it(error: Exception) -> None:
    with pytest.raises(UserError, match=r"^outputs/x: [^\n]*Make room[^\n]*$"), one_line_when_full(Path("outputs/x")):
        raise error


# ---- the values of the environment that are secrets, and their replacements

PRINTABLE = string.ascii_letters + string.digits + string.punctuation
SECRETS = st.text(PRINTABLE + "äß☃", min_size=12, max_size=40)
# Characters that users can type between :// and the host, encoded or not.
LOGINS = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:%/", min_size=1, max_size=30)
HOSTS = st.sampled_from(["host", "host.example:8080", "127.0.0.1:9"])
PATCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        *((name, "0123456789abcdef", True) for name in ("WANDB_API_KEY", "hf_token", "PG_PASSWORD", "MY_SECRET")),
        *((name, "0123456789abcdef", False) for name in ("TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY")),
        ("SOME_KEY", "noisy", False),  # a word
    ],
)
def test_a_secret_becomes_its_name(name: str, value: str, is_secret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"key={value}!") == (f"key=<{name}>!" if is_secret else f"key={value}!")


def test_the_longer_of_two_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "0123456789ab")
    monkeypatch.setenv("B_KEY", "0123456789ab-more")
    assert redact("0123456789ab-more 0123456789ab") == "<B_KEY> <A_KEY>"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:p#a?ss@host/x", "https://<login>@host/x"),
        ("git+ssh://me:pass@host and http://you:pass@host", "git+ssh://<login>@host and http://<login>@host"),
        ("https://host/owner/name@main", "https://host/owner/name@main"),
        ("https://host?mail=me@host", "https://host?mail=me@host"),
        ("http://host:80/a and me@host", "http://host:80/a and me@host"),
    ],
)
def test_what_stands_before_a_host(url: str, shown: str) -> None:
    assert redact(url) == shown


@PATCHED
@given(user=LOGINS.map(lambda text: text.replace("/", "")), password=LOGINS, host=HOSTS)
def test_no_login_is_left_of_any_url(user: str, password: str, host: str) -> None:
    assert redact(f"see https://{user}:{password}@{host}/x for more") == f"see https://<login>@{host}/x for more"
    if user:
        assert redact(f"see https://{user}@{host}/x for more") == f"see https://<login>@{host}/x for more"


SPELLINGS = {
    "as it is": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded but for slashes": quote,
    "as in a form": quote_plus,
    "in JSON": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "in repr": lambda text: repr(text)[1:-1],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@PATCHED
@given(secret=SECRETS)
def test_a_secret_is_found_however_it_is_spelled(spelling: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_TOKEN", secret)
    assert redact(f"[{SPELLINGS[spelling](secret)}]") == "[<PLANTED_TOKEN>]"


@PATCHED
@given(secret=SECRETS)
def test_a_variable_that_holds_a_secret_encoded(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = unquote(secret)
    if len(secret) >= 12:
        monkeypatch.setenv("PLANTED_TOKEN", quote(secret, safe=""))
        assert redact(f"[{secret}]") == "[<PLANTED_TOKEN>]"


def test_every_text_of_a_config_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_TOKEN", "0123456789abcdef")
    config = {"a": {"b": ["my 0123456789abcdef", 1, None, True]}, "d": 2.5}
    assert redacted(config) == {"a": {"b": ["my <PLANTED_TOKEN>", 1, None, True]}, "d": 2.5}


def test_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    try:
        raise ValueError("bad 0123456789abcdef")
    except ValueError:
        print_traceback()
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith("ValueError: bad <WANDB_API_KEY>\n")
