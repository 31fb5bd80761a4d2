"""The original DeepMind generator, in an environment of its own: it needs sympy and numpy of its time.

The text of the two modules used for ``arithmetic`` is the same under every set of pins below (measured on Python 3.11,
3.12 and 3.13), and its sha256 is known for the paper's counts. Composed modules (``..._composed``) are not
reproducible: the generator iterates a set ordered by memory address.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntl.data.raw import Log, Missing
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import sha256_of

WORKER = Path(__file__).with_name("generator_worker.py")
PACKAGE = "mathematics-dataset==1.0.1"
# Lowest Python version -> pins. The first needs no patch; numpy 1.26 has no wheels from 3.13 on, and under numpy 2 the
# composed modules raise, which ends the run, while the plain ones are unchanged.
PINS = {
    (3, 13): (PACKAGE, "sympy==1.13.3", "numpy>=2.1"),
    (3, 12): (PACKAGE, "sympy==1.13.3", "numpy==1.26.4"),
    (3, 11): (PACKAGE, "sympy==1.4", "numpy==1.23.5"),
}
# Least pairs in a generated file of ``arithmetic``, so that one generation serves every config: the paper's counts. The
# files of ``mathematics`` take too long for more than what is wanted.
TRAIN_PAIRS, TEST_PAIRS = 34_333, 10_000
# Measured pairs per second on one core, by a part of the module's name; the first match counts.
RATES = {"_composed": 150, "_longer": 100, "algebra__": 300, "_big": 600, "": 1_000}
ADD, ADD_LONGER = "arithmetic__add_sub_multiple.txt", "arithmetic__add_sub_multiple_longer.txt"
KNOWN_TEXT = {
    (f"{folder}/{name}", TRAIN_PAIRS if folder.startswith("train-") else TEST_PAIRS): digest
    for folder, name, digest in (
        ("train-easy", ADD, "3ba697b122237962daa6680865db0a0428c84dd0714d0e245c603d9e1a95de3c"),
        ("train-medium", ADD, "ecebfef6d21984a0913661a3105c99dc89a24685bf58c3562bff5a9c79431927"),
        ("train-hard", ADD, "38e768f6ba5fae1034960357a048c6af138d24178f382e9a9578ea4192e21747"),
        ("interpolate", ADD, "bdaad1e00bc9250ad40afa52224d687b41dfb546db8f23938bf829006c09a28e"),
        ("extrapolate", ADD_LONGER, "31afa28f75000899de5358e9a1961641336b9a2c881333443503555e477d48aa"),
    )
}


def generate(wanted: Mapping[str, int], tree: Path, environment: Path, log: Log) -> dict[str, Any]:
    """Write each wanted ``<regime>/<module>.txt`` under ``tree``; returns the pins that were used.

    A file takes its name only when it is whole. Missing when the environment cannot be made, UserError when the
    generator fails.
    """
    pins = ensure_environment(environment, log)
    usual, counts = _counts(wanted, tree)
    started = time.monotonic()
    minutes = 60 * core_hours(wanted, tree) / (os.cpu_count() or 1)
    log(f"generating {sum(counts.values())} pairs with {pins[0]}, about {math.ceil(minutes)} min")
    with one_line_errors("write", tree):
        for name in counts:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
        _run_workers(environment, counts, tree, log)
    reproduced = {}
    for name, count in usual.items():
        known = KNOWN_TEXT.get((name, count))
        if known is not None:
            reproduced[name] = sha256_of(tree / name) == known
            if not reproduced[name]:
                log(
                    f"{tree / name}: not the text known for these pins; its counts and answers are checked all the same"
                )
    log(f"generated in {time.monotonic() - started:.0f} s")
    return {"pins": list(pins), "python": list(sys.version_info[:3]), "known_text": reproduced}


def core_hours(wanted: Mapping[str, int], tree: Path) -> float:
    """Hours that one core needs to generate what is wanted and not under ``tree`` yet."""
    seconds = 0.0
    for name, count in _counts(wanted, tree)[1].items():
        seconds += count / next(rate for part, rate in RATES.items() if part in name)
    return seconds / 3600


def _counts(wanted: Mapping[str, int], tree: Path) -> tuple[dict[str, int], dict[str, int]]:
    # For each file the pairs it should have, and the same for those with fewer: an interrupted generation is continued.
    usual = {name: max(count, _usual_count(name)) for name, count in wanted.items()}
    return usual, {name: count for name, count in usual.items() if _pairs_in(tree / name) < count}


def _usual_count(name: str) -> int:
    if name not in {known for known, _ in KNOWN_TEXT}:
        return 0
    return TRAIN_PAIRS if name.startswith("train-") else TEST_PAIRS


def ensure_environment(environment: Path, log: Log) -> tuple[str, ...]:
    """Make the virtual environment unless a whole one is there. Returns its pins; Missing where they cannot be had."""
    pins = next(pins for lowest, pins in PINS.items() if sys.version_info[:2] >= lowest)
    marker = environment / "complete.json"
    if marker.is_file() and marker.read_text() == json.dumps(pins):
        return pins
    log(f"making an environment for {', '.join(pins)} in {environment} (about 15 s)")
    with one_line_errors("make", environment):
        if environment.exists():
            shutil.rmtree(environment)
        _command([sys.executable, "-m", "venv", str(environment)], "python -m venv")
        python = str(_python(environment))
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
        _command([python, "-m", "pip", "install", *options, *pins], "pip install")
        marker.write_text(json.dumps(pins))
    return pins


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _command(command: list[str], what: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise Missing(
            f"the generator's environment cannot be made: {what}: {_last_line(done.stderr or done.stdout)}; "
            "put the official release or its mathematics_dataset-v1.0 tree under the data folder, or in the one "
            "that NTL_DATA_DIR names, instead."
        )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]


def _run_workers(environment: Path, counts: dict[str, int], tree: Path, log: Log) -> None:
    pending = sorted(counts, key=lambda name: counts[name])
    patch = ["--patch"] if sys.version_info >= (3, 12) else []
    running: dict[str, subprocess.Popen[str]] = {}
    shown = time.monotonic()
    with _stopping(running, tree):
        while pending or running:
            while pending and len(running) < (os.cpu_count() or 1):
                name = pending.pop()
                regime, module = name.removesuffix(".txt").split("/")
                worker = [str(_python(environment)), "-I", str(WORKER), regime, module, str(counts[name])]
                running[name] = subprocess.Popen(
                    [*worker, str(_part(tree, name)), *patch], stderr=subprocess.PIPE, text=True, errors="replace"
                )
            for name in [name for name, process in running.items() if process.poll() is not None]:
                _finish(name, running.pop(name), counts[name], tree)
                log(f"generated {name}: {counts[name]} pairs")
            if time.monotonic() - shown > 15:
                shown = time.monotonic()
                log(f"still generating {', '.join(running)}")
            time.sleep(0.05)


def _finish(name: str, process: "subprocess.Popen[str]", count: int, tree: Path) -> None:
    message = process.communicate()[1]
    if process.returncode:
        raise UserError(f"the generator failed on {name}: {_last_line(message)}")
    part = _part(tree, name)
    if _pairs_in(part) != count:
        raise UserError(f"the generator wrote {_pairs_in(part):g} pairs for {name}, {count} were expected.")
    os.replace(part, tree / name)


def _pairs_in(path: Path) -> float:
    if not path.is_file():
        return 0
    with open(path, "rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b"")) / 2


def _part(tree: Path, name: str) -> Path:
    return tree / f"{name}.part"


@contextmanager
def _stopping(running: dict[str, "subprocess.Popen[str]"], tree: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for name, process in running.items():
            process.kill()
            process.wait()
            _part(tree, name).unlink(missing_ok=True)
