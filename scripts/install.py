"""Fill a virtual environment with this project and its tools: run by its own Python, needs nothing but pip.

uv installs in a tenth of pip's time but reads none of pip's configuration, so what pip was told is handed on.
Without uv, or where uv fails, plain pip does the same.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "train,report,lora,gguf,slurm,notebooks,dev"
# torch is named although pyproject.toml has it: whoever edits the list must not get the newest CUDA build by accident.
WANTED = ["-c", str(ROOT / "constraints.txt"), "torch==2.13.0", "-e", f"{ROOT}[{EXTRAS}]"]


def exists(location: str) -> bool:
    """False for a local folder or file URL that is not there; uv stops at those where pip goes on."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path)).expanduser().exists()
    return True


def settings(listing: str) -> dict[str, str]:
    """``pip config list`` as one dict; pip ranks the environment over [install] over [global]."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                found[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return found


def uv_options(config: Mapping[str, str]) -> list[str]:
    """uv's command-line options for what pip was told about where packages come from."""
    options: list[str] = []
    for location in filter(exists, config.get("find-links", "").split()):
        options += ["--find-links", location]
    if index := config.get("index-url"):
        options += ["--default-index", index]
    extra = [location for location in config.get("extra-index-url", "").split() if exists(location)]
    for location in extra:
        options += ["--index", location]
    if extra:
        # pip looks at all indexes and takes the best version; uv would stop at the first that has the name.
        options += ["--index-strategy", "unsafe-best-match"]
    for host in config.get("trusted-host", "").split():
        options += ["--allow-insecure-host", host]
    if config.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options


def uv_environment(config: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with pip's certificate, proxy and timeout added where uv was told nothing itself."""
    names = {"cert": "SSL_CERT_FILE", "proxy": "ALL_PROXY", "timeout": "UV_HTTP_TIMEOUT"}
    values = {**config, "timeout": config.get("timeout") or config.get("default-timeout", "")}
    added = {variable: values[name] for name, variable in names.items() if values.get(name)}
    return {**added, **environment}


def install(call: Callable[..., int], listing: str) -> int:
    """Install with uv, else with pip. ``call(arguments, environment)`` runs ``python -m ...``; 0 is success."""
    config = settings(listing)
    environment = dict(os.environ)
    if call(["pip", "install", "--quiet", "--disable-pip-version-check", "uv"], environment) == 0:
        # --compile-bytecode: once here on all cores, instead of in the first import of every worker.
        options = ["--python", sys.executable, "--compile-bytecode", *uv_options(config)]
        if call(["uv", "pip", "install", *options, *WANTED], uv_environment(config, environment)) == 0:
            return 0
    print("install: uv did not do it, going on with pip, which takes a few minutes.", flush=True)
    return call(["pip", "install", "--disable-pip-version-check", *WANTED], environment)


def _call(arguments: list[str], environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-m", *arguments], env=environment, cwd=ROOT, check=False).returncode


def main() -> int:
    if sys.prefix == sys.base_prefix:
        print("error: scripts/install.py fills a virtual environment; run `make install`.", file=sys.stderr)
        return 2
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    return 1 if install(_call, listing) else 0


if __name__ == "__main__":
    sys.exit(main())
