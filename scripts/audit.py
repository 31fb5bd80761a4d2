"""`make audit`: the licence of every installed package, and the known vulnerabilities of each, by pip-audit."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from typing import Any

AUDIT = [
    sys.executable,
    "-m",
    "pip_audit",
    "--local",
    "--skip-editable",
    "--progress-spinner",
    "off",
    "--format",
    "json",
]
UNKNOWN = "unknown"
Row = tuple[str, str, str]


def licence_of(package: Distribution) -> str:
    """What its metadata says: the SPDX expression, else the trove classifiers, else the first line of the free text."""
    metadata: Any = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        text.split(" :: ") for text in metadata.get_all("Classifier") or () if text.startswith("License :: ")
    ]
    named = [parts[-1] for parts in classifiers if parts[-1] != "OSI Approved"]
    text = (metadata.get("License") or "").strip().splitlines()
    return ", ".join(named) or (text[0][:60] if text else UNKNOWN)


def licences(packages: Iterable[Distribution]) -> list[Row]:
    """(name, version, licence) of each, sorted; one that is found twice counts once."""
    rows = {package.name.lower(): (package.name, package.version, licence_of(package)) for package in packages}
    return [rows[name] for name in sorted(rows)]


def table(rows: Iterable[Row]) -> str:
    """The rows with aligned columns."""
    grid = [("package", "version", "licence"), *rows]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in grid)


def vulnerabilities(report: str, errors: str) -> tuple[list[str], int, str]:
    """From pip-audit's JSON: a line for each vulnerability, how many packages were checked, and why others were not.

    pip-audit skips what its service does not know, and ends well then, even where it knows nothing at all.
    """
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return [], 0, (errors.strip().splitlines() or ["pip-audit said nothing"])[-1]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", [])
    ]
    skipped = [str(package["skip_reason"]) for package in packages if "skip_reason" in package]
    return lines, len(packages) - len(skipped), skipped[0] if skipped else ""


def main() -> int:
    """Exit code 1 where a vulnerability is known; 0 also where nothing could be asked, which is said."""
    rows = licences(distributions())
    print(table(rows))
    counts = Counter(licence for _, _, licence in rows)
    print(f"\n{len(rows)} packages: {', '.join(f'{count} {name}' for name, count in counts.most_common())}")
    done = subprocess.run(AUDIT, capture_output=True, text=True, check=False)
    lines, checked, reason = vulnerabilities(done.stdout, done.stderr)
    print(*lines, sep="\n", end="\n" if lines else "")
    if checked:
        rest = f"; not all could be: {reason}" if reason else ""
        print(f"{len(lines)} known vulnerabilities in {checked} packages that were checked{rest}.")
    else:
        print(f"Vulnerabilities: NOT CHECKED, the service has no answer ({reason[:200]}).")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
