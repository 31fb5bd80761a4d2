"""Rules of the project that no linter knows."""

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import pairwise, takewhile
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "ntl"
MAX_LINES = 400
# Lines of each package. To raise one is a decision, which the message of its commit explains.
BUDGETS = {
    **{"losses": 2690, "objectives": 1199, "numbers": 826, "tokenizers": 709, "models": 1097, "data": 3777},
    **{"training": 1820, "decoding": 2483, "runs": 466, "evaluation": 1449, "results": 2960, "launch": 1150},
    **{"benchmarks": 505, "config": 2318, "system": 663},
}
MAX_FILES = 145
# What a recipe of docs/extending.md adds to a package, and all of them together in files, passes `make check`.
RECIPE_LINES, RECIPE_FILES = 40, 4
# Spelled as a pattern, so that this file does not match itself. A URL path or a relative one is not meant.
MACHINE_PATH = re.compile(r"(?<![\w.\-:/~$}*])/(?:home|root|Users|work|tmp|opt|mnt)/\w")


def repository_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    files = [path for path in repository_files() if path.suffix == ".py"]
    return [path for path in files if not folders or path.relative_to(ROOT).parts[0] in folders]


INITS = [path for path in python_files("src") if path.name == "__init__.py"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    extra: {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}
    for extra, lines in {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items()
}
DIRECT = {name: requirement for group in EXTRAS.values() for name, requirement in group.items()}


def test_no_source_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files()}
    assert len(lengths) > 20
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES} == {}
    assert lengths[SRC / "regressor.py"] <= 350


def test_no_package_is_larger_than_its_budget() -> None:
    sizes = dict.fromkeys(BUDGETS, 0)
    files = [path for path in python_files("src") if path.is_relative_to(SRC) and path.parent != SRC]
    for path in files:
        sizes[path.relative_to(SRC).parts[0]] += len(path.read_text().splitlines())
    assert {name: size for name, size in sizes.items() if size > BUDGETS[name] + RECIPE_LINES} == {}
    assert len(files) <= MAX_FILES + RECIPE_FILES


NUMBER = re.compile(r"^ *[\w./]+: *-?[\d.]+(?:e-?\d+)? *(?:#(?P<comment>.*))?$")
ORIGIN = re.compile(r"\b(?:paper|original|published|our choice)\b")


def test_every_number_of_the_config_says_where_it_comes_from() -> None:
    """Beside it, in the line above, or at the head for the whole file: paper, original, published or our choice."""
    groups = {"model", "tokenizer", "loss", "dataset", "decoding", "objective", "scale", "trainer", "experiment"}
    files = [path for path in repository_files() if path.suffix == ".yaml" and groups & {*path.relative_to(ROOT).parts}]
    found, numbers = [], 0
    for path in files:
        lines = path.read_text().splitlines()
        head = " ".join(takewhile(lambda line: line.startswith("#"), lines))
        for above, line in pairwise(lines):
            if match := NUMBER.match(line):
                numbers += 1
                remark = above if above.startswith("#") else ""
                if not ORIGIN.search(f"{head} {remark} {match['comment'] or ''}"):
                    found.append(f"{path.relative_to(ROOT)}: {line.strip()}")
    assert numbers > 200
    assert found == []


def test_tests_mirror_rooms() -> None:
    """tests/ROOM/test_*.py tests the room src/ntl/ROOM; a file on the top level is of the whole project."""
    rooms = {path.name for path in SRC.iterdir() if (path / "__init__.py").is_file()}
    found = [path.relative_to(ROOT / "tests") for path in python_files("tests")]
    assert {path.parts[0] for path in found if len(path.parts) > 1} == rooms | {"scripts", "simulated_gpu"}


def test_no_import_circle() -> None:
    """Imports for the type checker alone count, too."""
    graph = grimp.build_graph("ntl", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # graphlib.CycleError names a circle


def test_every_test_that_the_documentation_names_exists() -> None:
    found = {
        found
        for path in (ROOT / "docs").glob("*.md")
        for found in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", path.read_text())
    }
    assert len([name for _, name in found if name]) > 15
    texts = {file: (ROOT / file).read_text() if (ROOT / file).is_file() else "" for file, _ in found}
    lost = [f"{file}::{name}" for file, name in found if (f"\ndef {name}(" if name else "\ndef ") not in texts[file]]
    assert sorted(lost) == []


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    found = []
    for path in repository_files():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{n}: {line[:80]}" for n, line in enumerate(lines, 1) if MACHINE_PATH.search(line)
        ]
    assert found == []


def test_every_lazy_export_exists() -> None:
    for path in INITS:
        name = ".".join(("ntl", *path.parent.relative_to(SRC).parts))
        package = __import__(name, fromlist=["_"])
        for export in getattr(package, "__all__", []):
            assert getattr(package, export) is not None, f"{name}.{export}"
        with pytest.raises(AttributeError):
            _ = package.there_is_no_such_name


def test_config_results_losses_and_number_text_load_without_torch() -> None:
    program = """
import sys
import ntl.config, ntl.losses, ntl.results, ntl.numbers.text
from ntl.config.composition import schemas
for package in (ntl.config, ntl.results):
    for name in package.__all__:
        getattr(package, name)
assert "dataset/file" in schemas()
print(*{"torch", "transformers", "datasets", "pandas", "pyarrow", "wandb"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# What runs code that data holds. The first two as bare names, as a model's eval() is a method.
FORBIDDEN = ["eval", "exec", "os.system", "os.popen", "pickle.load", "pickle.loads", "pickle.Unpickler", "joblib.load"]
FORBIDDEN += ["dill.load", "dill.loads", "shelve.open", "marshal.loads", "pandas.read_pickle", "yaml.load"]
FORBIDDEN += ["yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "tarfile.extractall", "shutil.unpack_archive"]
# Keyword arguments that switch it on.
SWITCHES = ["allow_pickle", "trust_remote_code", "shell"]


def dangerous_calls(tree: ast.Module) -> list[str]:
    """The calls of a file that could run code which comes from data, by the name that they are called by."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        first, dot, rest = ast.unparse(call.func).partition(".")
        name = f"{imported.get(first, first)}{dot}{rest}"
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        unsafe_load = name == "torch.load" and keywords.get("weights_only") != "True"
        if name in FORBIDDEN or unsafe_load or name.endswith((".extractall", ".load_pickle")):
            found.append(name)
        found += [f"{name}({key}=...)" for key in SWITCHES if keywords.get(key, "False") != "False"]
    return found


def test_no_call_runs_code_that_data_holds() -> None:
    paths = python_files("src", "scripts", "train.py")
    assert len(paths) > 150
    found = {str(path.relative_to(ROOT)): dangerous_calls(ast.parse(path.read_text())) for path in paths}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_constraints_pin_exactly_the_direct_dependencies() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines == sorted(lines)
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines)}
    assert pins.keys() == DIRECT.keys()
    for name, pin in pins.items():
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert exact.version in DIRECT[name].specifier, f"pyproject.toml excludes the pinned {pin}"


def test_every_dependency_says_why_and_has_one_range() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for name in DIRECT:
        assert re.search(rf'^ +"{re.escape(name)}[^"]*", +# \w+', text, re.MULTILINE), name
    ranges = {(name, str(requirement)) for group in EXTRAS.values() for name, requirement in group.items()}
    assert len(ranges) == len(DIRECT)


# What a room imports comes with each of these extras; a room that is not named has "train".
BROUGHT = {"": [""], "losses": [""], "numbers": [""], "config": ["train", "report"], "results": ["report"]}
# Imported where it is asked for.
ASKED_FOR = {
    "regressor.py": "train",
    "evaluation/compare.py": "report",
    "losses/kernel.py": "dev",  # and with a CUDA build of torch
    "models/lora.py": "lora",
    "config/model.py": "gguf",
    "config/composition.py": "slurm",
    "launch/workers.py": "slurm",
    "scripts/notebooks.py": "dev",
}


def imported(path: Path) -> set[str]:
    """The top packages that a file imports anywhere, but those of Python and of the project."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names) - {"ntl"}


def test_every_import_comes_with_the_extra_of_its_room() -> None:
    distributions = packages_distributions()
    missing: set[str] = set()
    # The generator of the mathematics data runs in an environment of its own.
    for path in set(python_files("src", "scripts", "train.py")) - {SRC / "data" / "generator_worker.py"}:
        place = path.relative_to(SRC).as_posix() if path.is_relative_to(SRC) else f"scripts/{path.name}"
        beside = EXTRAS.get(ASKED_FOR.get(place, ""), {})
        for extra in BROUGHT.get(place.rpartition("/")[0].partition("/")[0], ["train"]):
            for top in imported(path):
                names = {canonicalize_name(name) for name in distributions.get(top, [top])}
                if not names & {*EXTRAS[""], *EXTRAS[extra], *beside}:
                    missing.add(f"{path.relative_to(ROOT)}: {top}, by {extra or 'torch and numpy alone'}")
    assert missing == set()
