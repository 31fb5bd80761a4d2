"""The text files of DeepMind mathematics, and where they come from, in this order:

1. files already under the data folder or NTL_DATA_DIR: the official tree (``mathematics_dataset-v1.0/<regime>/``
   ``<module>.txt``), its archive, a regenerated archive, or what step 3 left;
2. the official release, when it can be downloaded;
3. the original generator, in an environment of its own: it needs sympy and numpy of its time.

A source must have every wanted file with enough pairs; otherwise the next one is tried. Generated text of the two
modules used for ``arithmetic`` is the same under every set of ``PINS`` (measured on Python 3.11, 3.12 and 3.13).
Composed modules (``..._composed``) are not reproducible: the generator iterates a set ordered by memory address.
"""

import gzip
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data import raw
from ntl.data.files import Buffer, Lines, Pair, map_file
from ntl.data.raw import Log, Missing, Origin
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, wait_for_lock

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


@dataclass
class Texts:
    """The pairs of ``<regime>/<module>.txt`` files: a line with a question, a line with its answer, and so on.

    ``labels`` are for error messages, ``source`` for the manifest.
    """

    lines: dict[str, Lines]
    labels: dict[str, str]
    source: dict[str, Any]

    def shuffled(self, name: str, seed: int, stream: int, count: int) -> np.ndarray:
        """Indices of the first ``count`` pairs of a file in an order that seed and stream decide, (count,) uint32."""
        order = np.arange(len(self.lines[name]) // 2)
        np.random.default_rng([seed, stream]).shuffle(order)
        return order[:count].astype(np.uint32)

    def checked(self, name: str, order: np.ndarray, fault: LineFault) -> Iterator[Pair]:
        """The pairs of a file in this order; UserError with file and line where ``fault`` names one."""
        lines, label = self.lines[name], self.labels[name]
        for index in map(int, order):
            try:
                question, answer = lines[2 * index].decode(), lines[2 * index + 1].decode()
            except UnicodeDecodeError as error:
                raise UserError(f"{label}:{2 * index + 1}: not UTF-8; fetch the file again.") from error
            if found := fault(question, answer) if question else (1, "empty question"):
                line, reason = found
                raise UserError(f"{label}:{2 * index + line}: {reason}.")
            yield question, answer


def find_texts(
    wanted: Mapping[str, int], data_dir: Path, log: Log, *, download: bool = True, allow_generation: bool = False
) -> Texts:
    """The pairs of each wanted ``<regime>/<module>.txt``, at least as many as asked for.

    UserError for a damaged file and a generator that fails. Missing if the files are nowhere and cannot be generated
    here, or take hours to generate without ``allow_generation``.
    """
    if found := _on_disk(wanted, data_dir, log):
        return found
    with wait_for_lock(data_dir / ".mathematics_dataset.lock", log):
        found = _on_disk(wanted, data_dir, log)  # another process may have fetched them meanwhile
        if found is None and download and raw.download(URL, data_dir / OFFICIAL_ARCHIVE, log, size=BYTES):
            found = _on_disk(wanted, data_dir, log)
        if found is None:
            hours = core_hours(wanted, data_dir / GENERATED_TREE)
            if hours > GENERATED_UNASKED and not allow_generation:
                raise Missing(
                    f"{sum(wanted.values()):,} pairs of DeepMind mathematics are nowhere under "
                    f"{' or '.join(map(str, data_roots(data_dir)))}: put {URL} there or where "
                    "NTL_DATA_DIR says, or set dataset.allow_generation=true "
                    f"(some {hours:.0f} hours on one core), or take fewer rows."
                )
            made_by = generate(wanted, data_dir / GENERATED_TREE, data_dir / ".generator-env", log)
            found = _read_tree("generator", data_dir / GENERATED_TREE, wanted, log)
            if found is None:
                raise UserError(f"{data_dir / GENERATED_TREE}: too few pairs; delete the folder and try again.")
            found.source["made_by"] = made_by
    return found


def _on_disk(wanted: Mapping[str, int], data_dir: Path, log: Log) -> Texts | None:
    folders = [root / place for root in data_roots(data_dir) for place in PLACES]
    for folder in folders:
        found = _read_tree("official tree", folder / OFFICIAL_TREE, wanted, log)
        if found is None and (folder / OFFICIAL_ARCHIVE).is_file():
            unpack(folder / OFFICIAL_ARCHIVE, data_dir / OFFICIAL_TREE, wanted, log)
            found = _read_tree("official archive", data_dir / OFFICIAL_TREE, wanted, log)
        if found is not None:
            return found
    for archive in (folder / name for folder in folders for name in SMALL_ARCHIVES):
        contents = dict(members(archive, wanted)) if archive.is_file() else {}
        if found := _texts("regenerated archive", archive, contents, wanted, log):
            return found
    return _read_tree("generator", data_dir / GENERATED_TREE, wanted, log)


def _read_tree(kind: str, tree: Path, wanted: Mapping[str, int], log: Log) -> Texts | None:
    is_whole = all((tree / name).is_file() for name in wanted)
    contents = {name: map_file(tree / name) for name in wanted} if is_whole else {}
    return _texts(kind, tree, contents, wanted, log)


def _texts(kind: str, where: Path, contents: Mapping[str, Buffer], wanted: Mapping[str, int], log: Log) -> Texts | None:
    if set(contents) != set(wanted):
        return None
    labels = {name: str(where / name) for name in wanted}
    lines = {name: Lines(contents[name]) for name in wanted}
    for name, count in wanted.items():
        if len(lines[name]) % 2 or not len(lines[name]):
            raise UserError(
                f"{labels[name]}:{len(lines[name])}: question without an answer; the file is truncated or damaged."
            )
        if len(lines[name]) // 2 < count:
            log(f"{labels[name]}: {len(lines[name]) // 2} pairs, {count} are wanted; looking further")
            return None
    log(f"reading {where}")
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in wanted}
    return Texts(lines, labels, {"kind": kind, "path": str(where), "sha256": digests})


def members(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Members of a ``.tar.gz`` by their path below its top folder, in its order; those not in it are left out."""
    try:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                below_top = member.name.removeprefix("./").partition("/")[2]
                content = tar.extractfile(member) if below_top in wanted else None
                if content is not None:
                    yield below_top, content.read()
            while stream.read(1 << 20):  # at the end the checksum is compared
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(f"{archive}: truncated or damaged ({error}); fetch it again.") from error


def unpack(archive: Path, tree: Path, wanted: Mapping[str, int], log: Log) -> None:
    """Take the wanted files out of the official archive: all of them, or none where it is damaged."""
    missing = [name for name in wanted if not (tree / name).is_file()]
    log(f"unpacking {len(missing)} files of {archive} (the archive is read through once)")
    with one_line_errors("unpack into", tree):
        tree.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=tree) as part:
            found = []
            for number, (member, content) in enumerate(members(archive, missing)):
                (Path(part) / str(number)).write_bytes(content)
                found.append(member)
            for number, member in enumerate(found):
                (tree / member).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(part) / str(number), tree / member)


def generate(wanted: Mapping[str, int], tree: Path, environment: Path, log: Log) -> dict[str, Any]:
    """Write each wanted ``<regime>/<module>.txt`` under ``tree``; returns the pins that were used.

    A file takes its name only when it is whole. Missing when the environment cannot be made, UserError when the
    generator fails.
    """
    pins = ensure_environment(environment, log)
    counts, cores = _counts(wanted, tree), os.cpu_count() or 1
    minutes = 60 * core_hours(wanted, tree) / cores
    log(f"generating {sum(counts.values())} pairs with {pins[0]}, about {math.ceil(minutes)} min")

    def write(name: str) -> None:
        regime, module = name.removesuffix(".txt").split("/")
        part = tree / f"{name}.part"
        worker = [str(_python(environment)), "-I", str(WORKER), regime, module, str(counts[name]), str(part)]
        worker += ["--patch"] if sys.version_info >= (3, 12) else []
        done = subprocess.run(worker, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise UserError(f"the generator failed on {name}: {_last_line(done.stderr)}")
        os.replace(part, tree / name)
        log(f"generated {name}: {counts[name]} pairs")

    with one_line_errors("write", tree), ThreadPoolExecutor(cores) as pool:
        for name in counts:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
        largest_first = sorted(counts, key=lambda name: counts[name], reverse=True)
        for future in [pool.submit(write, name) for name in largest_first]:
            try:
                future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return {"pins": list(pins), "python": list(sys.version_info[:3])}


def core_hours(wanted: Mapping[str, int], tree: Path) -> float:
    """Hours that one core needs to generate what is wanted and not under ``tree`` yet."""
    counts = _counts(wanted, tree)
    return (
        sum(count / next(rate for part, rate in RATES.items() if part in name) for name, count in counts.items()) / 3600
    )


def _counts(wanted: Mapping[str, int], tree: Path) -> dict[str, int]:
    # Pairs of each file that has fewer than it should: an interrupted generation is continued.
    usual = {name: max(count, LEAST.get(name, 0)) for name, count in wanted.items()}
    have = {name: len(Lines(map_file(tree / name))) // 2 if (tree / name).is_file() else 0 for name in usual}
    return {name: count for name, count in usual.items() if have[name] < count}


def ensure_environment(environment: Path, log: Log) -> tuple[str, ...]:
    """Make the virtual environment unless a whole one is there. Returns its pins; Missing where they cannot be had."""
    pins = next(pins for lowest, pins in PINS.items() if sys.version_info[:2] >= lowest)
    marker = environment / "complete.json"
    if marker.is_file() and marker.read_text() == json.dumps(pins):
        return pins
    log(f"making an environment for {', '.join(pins)} in {environment} (about 15 s)")
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    with one_line_errors("make", environment):
        shutil.rmtree(environment, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(environment)],
            [str(_python(environment)), "-m", "pip", "install", *options, *pins],
        ):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
            if done.returncode:
                what = " ".join(command[1:4])
                raise Missing(
                    f"the generator's environment cannot be made: {what}: {_last_line(done.stderr or done.stdout)}; "
                    "put the official release or its mathematics_dataset-v1.0 tree under the data folder, or in the "
                    "one that NTL_DATA_DIR names, instead."
                )
        marker.write_text(json.dumps(pins))
    return pins


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no message"])[-1]
