"""The commands in the documentation and in the program's messages: what they name exists, and they run as typed."""

import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from ntl.config.composition import register

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "data" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LOGS = sorted((ROOT / "results" / "log").glob("*.md"))
# What the program prints is not typed in a block: any mention counts.
SOURCES = [path for folder in ("src", "config", "notebooks") for path in sorted((ROOT / folder).rglob("*.*"))]
SOURCES = [path for path in SOURCES if path.suffix in (".py", ".yaml", ".ipynb")]
ACTIVATE = "source .venv/bin/activate"
PROGRAMS, SLURM = ("python", "make", "pip", "source", "cp", "hf"), ("squeue", "scancel")
ELSEWHERE = ("lm/bin/python", "lm/bin/pip")  # an environment of its own, for lm_eval
BLOCK = re.compile(r"^```(?:ba)?sh\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`((?:python|make|pip|source) [^`]+)`")


def commands(page: Path) -> list[str]:
    """Those of the shell blocks of a page, line by line, and those within its text."""
    text = page.read_text(encoding="utf-8")
    blocks = [block.replace("\\\n", " ") for block in BLOCK.findall(text)]
    lines = [" ".join(line.partition(" #")[0].split()) for block in blocks for line in block.splitlines()]
    return [line for line in lines if line] + [" ".join(line.split()) for line in INLINE.findall(text)]


TYPED = sorted({command for page in PAGES for command in commands(page)})


def test_what_the_commands_name_exists() -> None:
    assert len(TYPED) > 40
    assert {command.split()[0] for command in TYPED} <= {*PROGRAMS, *SLURM, *ELSEWHERE}
    texts = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *LOGS, *SOURCES)}
    programs = {
        (path, program)
        for path, text in texts.items()
        for program in re.findall(r"\bpython (?!-)((?:train|scripts/\w+|tests/[\w/]+)\.py)", text)
    }
    assert len({program for _, program in programs}) > 8
    assert {(path, program) for path, program in programs if not (ROOT / program).is_file()} == set()
    assert [
        command
        for command in TYPED
        if command.startswith("python ")
        and "python train.py" not in command
        and not command.startswith(("python scripts/", "python -m venv ", "python -m pytest "))
    ] == []
    tables = {path.stem.removeprefix("table").lstrip("_") for path in (ROOT / "config" / "table").glob("*.yaml")}
    written = {command for command in TYPED if not re.search(RECIPES, command)}
    assert {name for command in written for name in re.findall(r"reproduce\.py table=(\w+)(?: |$)", command)} <= tables
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    made = {word for command in TYPED if command.startswith("make ") for word in command.split()[1:] if "=" not in word}
    assert len(made) > 7
    assert made <= targets


def test_the_package_is_installed_from_the_clone() -> None:
    """The index has another project of this name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    places = [*PAGES, *SOURCES, *(ROOT / "scripts").glob("*.py"), ROOT / "Makefile"]
    lines = {line for path in places for line in re.findall(r"pip install (?!:)([^`\n#)]*)", path.read_text("utf-8"))}
    wanted = re.compile(r"(?:-c constraints\.txt )?(?:\.|-e '\.\[([\w,{}]+)\]')(?: in the clone.*)?;?")
    found = {line: wanted.fullmatch(line.strip()) for line in lines}
    assert len(lines) > 4
    other = [line for line, match in found.items() if match is None]
    assert [line for line in other if "lm_eval==" not in line and "{package}" not in line] == []
    named = [set(match[1].split(",")) for match in found.values() if match and match[1]]
    assert set().union(*named) - {"{extra}"} <= extras.keys()
    (whole,) = [each for each in named if "dev" in each]  # of make install, the same as in the README
    assert whole == extras.keys()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a user has it, .venv included; what the commands write stays in it."""
    tree = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "data", "outputs", "results"):
            (tree / path.name).symlink_to(path)
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


def typed(clone: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """In a shell that has read no start-up file and inherits nothing, after the line that the README says."""
    environment = {"HOME": str(clone), "PATH": os.defpath, "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    shell = ["bash", "--noprofile", "--norc", "-e", "-c", f"{ACTIVATE}\n{command}"]
    return subprocess.run(shell, capture_output=True, text=True, cwd=clone, env=environment, timeout=300)


RECIPES = "=relative|=numbers_only|=doubling|=mistral_tiny|=longer|=weights"
# Commands that a test cannot run as they are typed, and what it runs instead, by the first pattern that is found.
INSTEAD = {
    RECIPES: "",  # what a recipe writes is needed: tests/test_recipes.py runs it
    "^(pip|source) ": "",
    "^cp |outputs/file-": "",  # part of the walk-through below
    "^(hf|squeue|scancel|python -m pytest) ": "",
    "^make (?!help)": "{command} --dry-run",
    r"train\.py(?!.*--help)": "",  # its overrides are composed below
    "table=(?!2 )": "",  # tests/test_baseline.py composes the runs of every table
    "reproduce.* launcher=slurm": "",  # tests/launch/test_slurm.py submits it
    r"reproduce\.py(?!.*--dry-run)": "{command} --dry-run",
    " RUN| FOLDER": "{program} --help",  # a finished run, or a model, is needed
    "^(python -m venv lm|lm/bin/)": "",  # tests/test_lm_eval.py makes this environment
    "benchmark_|prepare_data": "{program} --help",  # measures for minutes, or downloads
}


def runnable(command: str) -> str:
    """The command, or what ``INSTEAD`` has for it."""
    instead = next((text for pattern, text in INSTEAD.items() if re.search(pattern, command)), "{command}")
    return instead.format(command=command, program=" ".join(command.split()[:2]))


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted({*map(runnable, TYPED)} - {""}))
def test_every_command_runs_as_typed(
    clone: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("python scripts/"):  # in this process, where torch is imported once
        monkeypatch.chdir(clone)
        monkeypatch.setattr(sys, "argv", shlex.split(command)[1:])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(sys.argv[0], run_name="__main__")
        code, (said, errors) = ended.value.code, capsys.readouterr()
    else:
        done = typed(clone, command)
        code, said, errors = done.returncode, done.stdout, done.stderr
    assert not code, errors
    assert said
    if command.startswith("python scripts/") and command.endswith(" --help"):
        program = command.removesuffix(" --help")
        options = {word for each in TYPED if each.startswith(program) for word in each.split() if word.startswith("--")}
        assert [option for option in options if option not in said] == []


# One process, since the imports take most of the time. A form feed stands between what two commands print.
ONE_BY_ONE = """
import glob, json, runpy, subprocess, sys
for typed in json.loads(sys.stdin.buffer.read()):
    program, *words = [word for each in typed for word in sorted(glob.glob(each)) or [each]]
    print(end="\\f")
    if program == "-":
        exec(words[0], {"__name__": "__main__"})
    elif program == "cp":
        subprocess.run(["cp", *words], check=True)
    else:
        sys.argv = [program, *words]
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as exit:
            assert not exit.code, (typed, exit.code)
"""


def one_by_one(given: list[list[str]], place: Path, environment: dict[str, str]) -> tuple[list[str], str]:
    """What each of these commands printed, and what all of them wrote to stderr."""
    command, words = [sys.executable, "-c", ONE_BY_ONE], json.dumps(given).encode()
    done = subprocess.run(command, input=words, capture_output=True, cwd=place, env=environment, timeout=900)
    printed, errors = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, printed + errors
    return printed.split("\f")[1:], errors


TABLE = "Häuser & [2] (it's), a=b.csv"
HOUSES = ["dataset=file", f"dataset.path={TABLE}", "dataset.template=Was kostet ${Größe [m²]}?", "dataset.answer=Preis"]
HOUSES += ["dataset.number_format=auto", "model.n_embd=16", "model.n_layer=1", "trainer.max_steps=2", "device=cpu"]
IN_ORDER = [
    ["scripts/prepare_data.py", "file", *HOUSES[1:]],
    ["train.py", *HOUSES, "output_dir=läufe 日本", "tracking=none"],
    ["scripts/predict.py", "läufe*/file-*", "Was kostet $20,5?"],
    ["scripts/predict.py", "läufe*/file-*", "decoding=beam", "decoding.num_beams=2", "data_dir=data"],
    ["scripts/evaluate.py", "läufe*/file-*", "--worst", "1"],
    ["scripts/reproduce.py", "--dry-run"],
    ["scripts/make_tables.py", "quickstart", "--records", "läufe 日本", "--out", "tabellen ö"],
]


@pytest.mark.slow
def test_the_commands_in_a_place_of_other_letters_and_from_elsewhere(tmp_path: Path) -> None:
    clone, place = tmp_path / "größe 日本" / "ntl", tmp_path / "meine daten 日本"
    place.mkdir()
    for name in ("src", "config", "scripts", "results/paper"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "train.py", clone)
    rows = "".join(f"{n},5 m²;{n},000.00 €\r\n" for n in range(20, 70))  # as a spreadsheet writes them
    (place / TABLE).write_text(f"Größe [m²];Preis\r\n{rows}", encoding="utf-8-sig")
    fixed = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(clone / "src"), "OMP_NUM_THREADS": "1"}
    given = [[str(clone / program), *words] for program, *words in IN_ORDER]
    said = "".join(itertools.chain(*one_by_one(given, place, {"PATH": os.defpath, "HOME": str(place), **fixed})))
    assert "Traceback" not in said
    assert "the first 20,000.00 € -> 20000.00; the unit '€' is left out." in said
    assert re.search(r"^ *Was kostet \$\d\d,5 m²\? ", said, re.M)  # as --worst prints it
    made = sorted(path.name for path in place.iterdir() if path.name[0] != ".")
    assert made == [TABLE, "data", "läufe 日本"]  # a table without a record is not written


TRAINS = sorted(command for command in TYPED if re.search(r"train\.py (?!.*--help)", command))


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in TRAINS if not re.search(RECIPES, command)])
def test_every_training_command_composes(command: str) -> None:
    first = re.sub(r"(\S+=[^\s,]+),\S+", r"\1", command)  # the first run of a sweep
    words = shlex.split(first.partition("train.py ")[2])
    register()
    with initialize_config_dir(str(ROOT / "config"), version_base="1.3"):
        compose("train", overrides=[word for word in words if "=" in word])


# What takes less time and shows the same.
SHORTER = {"seed=1,2,3": "seed=1", "max_steps=600": "max_steps=600 trainer.lr=4e-3", "point-600": "point-600"}
SHORTER |= {"format=point": "format=point dataset.test_rows=100", "interval_rows=200": "interval_rows=100"}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_walk_through_of_one_s_own_data_runs_as_typed(clone: Path) -> None:
    text = (ROOT / "docs" / "your_own_data.md").read_text(encoding="utf-8")
    section = text.partition("\n## A walk-through\n")[2].partition("\n## ")[0].replace("\\\n", "")
    for long, short in SHORTER.items():
        assert long in section
        section = section.replace(long, short)
    blocks = re.findall(r"^```(python|bash)\n(.*?)^```$", section, re.M | re.S)
    given = []
    for kind, code in blocks:
        lines = [shlex.split(line.removeprefix("python ")) for line in code.splitlines()] if kind == "bash" else []
        given += lines or [["-", code]]
    environment = {"PYTHONPATH": str(clone / "src"), "PATH": os.defpath, "HOME": str(clone), "OMP_NUM_THREADS": "1"}
    printed, _ = one_by_one(given, clone, environment)
    assert len(printed) == 9
    records = {path.parent.name: json.loads(path.read_text()) for path in clone.glob("outputs/file-*/record.json")}
    assert len((clone / "flats.csv").read_text().splitlines()) == 4001
    tuned = [record for name, record in records.items() if re.match(r"file-gpt2_[0-9]+k_\w{8}-", name)]
    assert sorted(each["config"]["loss"]["name"] for each in tuned) == ["ce", "ntl_was"]
    assert len(records) == 4
    for each in records.values():
        assert each["metrics"]["test/mae"] < 0.75 * each["metrics"]["test/mae:median"]
        assert each["metrics"]["test/mae:ridge"] < each["metrics"]["test/mae:median"]
    for each in tuned:
        assert each["metrics"]["test/coverage_90"] > 0.7
        assert each["metrics"]["test/width_90"] > 0
        assert each["metrics"]["test/mae@median"] < each["metrics"]["test/mae:ridge"]
    comparison = printed[4][printed[4].rindex("Record: ") :]
    words = ("loss=ce", "loss=ntl_was", "regression head", "digit median", "ridge")
    assert [word for word in words if word not in comparison] == [], comparison
    told = json.loads(printed[5].splitlines()[0])
    low, high = told["interval"]
    assert low < float(told["answer"]) < high
    assert re.fullmatch(r"\[\d+\.?\]\n\d+\.\d\n", printed[8])
