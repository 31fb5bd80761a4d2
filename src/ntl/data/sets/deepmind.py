"""The text files of DeepMind mathematics, and where they come from, in this order:

1. files already under the data folder or NTL_DATA_DIR: the official tree (``mathematics_dataset-v1.0/<regime>/``
   ``<module>.txt``, plain or .gz), its archive, a regenerated archive, or what step 3 left;
2. the official release, when it can be downloaded;
3. the original generator, in an environment of its own: it needs sympy and numpy of its time.

A source must have every wanted file with enough pairs; otherwise the next one is tried. Generated text of the two
modules used for ``arithmetic`` is the same under every set of ``PINS`` (measured on Python 3.11, 3.12 and 3.13).
Composed modules (``..._composed``) are not reproducible: the generator
iterates a set ordered by memory address.
"""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data import raw
from ntl.data.files import Buffer, Pair, Pairs, iterate_members, map_file, map_unpacked
from ntl.data.raw import Log, Missing, Origin, data_roots
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import atomic_writer, sweep
from ntl.system.locks import wait_for_lock, without_locks

# What is wrong with a pair: 1 for the question's line or 2 for the answer's, and the reason.
LineFault = Callable[[str, str], tuple[int, str] | None]
URL = "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz"
BYTES = 2_333_082_954
OFFICIAL_TREE = "mathematics_dataset-v1.0"
OFFICIAL_ARCHIVE = f"{OFFICIAL_TREE}.tar.gz"
GENERATED_TREE = "mathematics_dataset-generated"
# Folders the files may lie in, below a data root.
PLACES = ("", "mathematics_dataset")
SMALL_ARCHIVES = ("arithmetic-regen.tar.gz", "mathematics_dataset-regen-1k.tar.gz")
ORIGIN = Origin(
    home=URL,
    licence="Apache-2.0",
    cite="Saxton, Grefenstette, Hill, Kohli: Analysing Mathematical Reasoning Abilities of Neural Models. ICLR 2019.",
    publishable=True,
    files={},
)
# Hours of one core above which generation must be allowed by a setting.
GENERATED_UNASKED = 1.0
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
LEAST = {
    **{f"train-{difficulty}/arithmetic__add_sub_multiple.txt": 34_333 for difficulty in ("easy", "medium", "hard")},
    "interpolate/arithmetic__add_sub_multiple.txt": 10_000,
    "extrapolate/arithmetic__add_sub_multiple_longer.txt": 10_000,
}
# Measured pairs per second on one core, by a part of the module's name; the first match counts.
RATES = {"_composed": 150, "_longer": 100, "algebra__": 300, "_big": 600, "": 1_000}
ADD, ADD_LONGER = "arithmetic__add_sub_multiple.txt", "arithmetic__add_sub_multiple_longer.txt"


@dataclass
class Texts:
    """The pairs of ``<regime>/<module>.txt`` files, with labels for error messages and a source for the manifest."""

    pairs: dict[str, Pairs]
    labels: dict[str, str]
    source: dict[str, Any]

    def shuffled(self, name: str, seed: int, stream: int, count: int) -> np.ndarray:
        """Indices of the first ``count`` pairs of a file in an order that seed and stream decide, (count,) uint32."""
        order = np.arange(len(self.pairs[name]))
        np.random.default_rng([seed, stream]).shuffle(order)
        return order[:count].astype(np.uint32)

    def checked(self, name: str, order: np.ndarray, fault: LineFault) -> Iterator[Pair]:
        """The pairs of a file in this order; UserError with file and line where ``fault`` names one."""
        for start in range(0, len(order), 4096):
            chunk = order[start : start + 4096].astype(np.int64)
            for index, (question, answer) in zip(chunk.tolist(), self.pairs[name].take(chunk), strict=True):
                if found := fault(question, answer):
                    line, reason = found
                    raise UserError(f"{self.labels[name]}:{2 * index + line}: {reason}.")
                yield question, answer


def find_texts(
    wanted: Mapping[str, int], data_dir: Path, log: Log, *, download: bool = True, allow_generation: bool = False
) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file and a generator that fails. Missing if the files are nowhere and cannot be generated
    here, or take hours to generate without ``allow_generation``.
    """
    found = _on_disk(wanted, data_dir, log)
    if found is not None:
        return found
    with wait_for_lock(data_dir / ".mathematics_dataset.lock", log) as held:
        if not held:
            log(without_locks(data_dir, "preparation", "data_dir"))
        found = _on_disk(wanted, data_dir, log)  # another process may have fetched them meanwhile
        if found is None and download and raw.download_archive(URL, BYTES, data_dir / OFFICIAL_ARCHIVE, log):
            found = _on_disk(wanted, data_dir, log)
        if found is None:
            tree = data_dir / GENERATED_TREE
            hours = core_hours(wanted, tree)
            if hours > GENERATED_UNASKED and not allow_generation:
                raise Missing(
                    f"{sum(wanted.values()):,} pairs of DeepMind mathematics are nowhere under "
                    f"{' or '.join(map(str, data_roots(data_dir)))}: put {URL} there or where "
                    "NTL_DATA_DIR says, or set dataset.allow_generation=true "
                    f"(some {hours:.0f} hours on one core), or take fewer rows."
                )
            made_by = generate(wanted, tree, data_dir / ".generator-env", log)
            found = _read_tree("generator", tree, wanted, data_dir, log)
            if found is None:
                raise UserError(f"{tree}: the generator left too few pairs; delete the folder and try again.")
            found.source["made_by"] = made_by
    return found


def _on_disk(wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for folder in folders:
        found = _read_tree("official tree", folder / OFFICIAL_TREE, wanted, data_dir, log)
        if found is None and (folder / OFFICIAL_ARCHIVE).is_file():
            unpack(folder / OFFICIAL_ARCHIVE, data_dir / OFFICIAL_TREE, wanted, log)
            found = _read_tree("official archive", data_dir / OFFICIAL_TREE, wanted, data_dir, log)
        if found is not None:
            return found
    for folder in folders:
        for name in SMALL_ARCHIVES:
            found = _read_archive(folder / name, wanted, log)
            if found is not None:
                return found
    return _read_tree("generator", data_dir / GENERATED_TREE, wanted, data_dir, log)


def _read_tree(kind: str, tree: Path, wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    paths = {name: path for name in wanted for path in (tree / name, tree / f"{name}.gz") if path.is_file()}
    if set(paths) != set(wanted):
        return None
    contents = {
        name: map_unpacked(path, data_dir) if path.suffix == ".gz" else map_file(path) for name, path in paths.items()
    }
    return _texts(kind, tree, contents, {name: str(path) for name, path in paths.items()}, wanted, log)


def _read_archive(archive: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    if not archive.is_file():
        return None
    contents: dict[str, Buffer] = dict(iterate_members(archive, wanted))
    if set(contents) != set(wanted):
        return None
    return _texts("regenerated archive", archive, contents, {name: f"{archive}/{name}" for name in wanted}, wanted, log)


def _texts(
    kind: str, where: Path, contents: dict[str, Buffer], labels: dict[str, str], wanted: Mapping[str, int], log: Log
) -> Texts | None:
    pairs = {name: Pairs(contents[name], labels[name]) for name in wanted}
    for name, count in wanted.items():
        if len(pairs[name]) < count:
            log(f"{labels[name]}: {len(pairs[name])} pairs, {count} are wanted; looking further")
            return None
    log(f"reading {where}")
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in wanted}
    return Texts(pairs, labels, {"kind": kind, "path": str(where), "sha256": digests})


def unpack(archive: Path, tree: Path, wanted: Mapping[str, int], log: Log) -> None:
    """Take the wanted files out of the official archive: all of them, or none where it is damaged."""
    missing = [name for name in wanted if not (tree / name).is_file()]
    if not missing:
        return
    log(f"unpacking {len(missing)} files of {archive} (the archive is read through once)")
    sweep(tree.parent, f".{tree.name}.part-*")
    with one_line_errors("unpack into", tree):
        tree.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{tree.name}.part-", dir=tree.parent) as name:
            part = Path(name)
            found: dict[str, None] = {}
            for member, content in iterate_members(archive, missing):
                with one_line_errors("write", part / member), atomic_writer(part / member) as stream:
                    stream.write(content)
                found[member] = None
            # The archive's checksum has been compared now.
            for member in found:
                (tree / member).parent.mkdir(parents=True, exist_ok=True)
                os.replace(part / member, tree / member)


def generate(wanted: Mapping[str, int], tree: Path, environment: Path, log: Log) -> dict[str, Any]:
    """Write each wanted ``<regime>/<module>.txt`` under ``tree``; returns the pins that were used.

    A file takes its name only when it is whole. Missing when the environment cannot be made, UserError when the
    generator fails.
    """
    pins = ensure_environment(environment, log)
    counts = _counts(wanted, tree)
    started = time.monotonic()
    minutes = 60 * core_hours(wanted, tree) / (os.cpu_count() or 1)
    log(f"generating {sum(counts.values())} pairs with {pins[0]}, about {math.ceil(minutes)} min")
    with one_line_errors("write", tree):
        for name in counts:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
        _run_workers(environment, counts, tree, log)
    log(f"generated in {time.monotonic() - started:.0f} s")
    return {"pins": list(pins), "python": list(sys.version_info[:3])}


def core_hours(wanted: Mapping[str, int], tree: Path) -> float:
    """Hours that one core needs to generate what is wanted and not under ``tree`` yet."""
    seconds = 0.0
    for name, count in _counts(wanted, tree).items():
        seconds += count / next(rate for part, rate in RATES.items() if part in name)
    return seconds / 3600


def _counts(wanted: Mapping[str, int], tree: Path) -> dict[str, int]:
    # Pairs of each file that has fewer than it should: an interrupted generation is continued.
    usual = {name: max(count, LEAST.get(name, 0)) for name, count in wanted.items()}
    return {name: count for name, count in usual.items() if _pairs_in(tree / name) < count}


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
    try:
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
    finally:
        for name, process in running.items():
            process.kill()
            process.wait()
            _part(tree, name).unlink(missing_ok=True)


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
