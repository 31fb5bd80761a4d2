"""Every test marked gpu passes on a simulated CUDA device, where a tensor on the wrong device is an error.

It is a library (device.cpp) that a process of its own preloads, and a plugin of pytest (simulated.py).
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
SOURCE = HERE / "device.cpp"
ROOT = HERE.parents[1]
MARK = "pytest.mark." + "gpu"
FILES = [str(path.relative_to(ROOT)) for path in sorted(HERE.parent.rglob("test_*.py")) if MARK in path.read_text()]


@pytest.fixture(scope="session")
def library() -> Path:
    """The compiled device.cpp; with NTL_REQUIRE_COMPILER=1 a test fails where it would be skipped."""
    compiler = shutil.which("g++")
    reason = "" if compiler else "no g++ here, which compiles the simulated GPU: apt install g++"
    if torch.version.cuda or sys.platform != "linux":
        reason = "the simulated GPU is for a torch without CUDA, on Linux"
    if reason:
        (pytest.fail if os.environ.get("NTL_REQUIRE_COMPILER") == "1" else pytest.skip)(reason)
    folder = Path(torch.__file__).parent
    version = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:12]
    path = ROOT / "build" / f"simulated-gpu-{version}.so"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        includes = [f"-I{folder / 'include' / each}" for each in ("", "torch/csrc/api/include")]
        libraries = [f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{folder / 'lib'}"]
        command = ["g++", "-shared", "-fPIC", "-O1", "-std=c++20", *includes, SOURCE, "-o", made, *libraries]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made.rename(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_gpu_test_passes(file: str, library: Path) -> None:
    paths = [HERE, os.environ.get("PYTHONPATH")]
    own = {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}
    command = [sys.executable, "-m", "pytest", "-p", "simulated", "-p", "no:cacheprovider", "-m", "gpu", "-q", file]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True)
    print(done.stdout[-5000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert "skipped" not in done.stdout.splitlines()[-1]
