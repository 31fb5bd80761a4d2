"""Prepare data sets: python scripts/prepare_data.py DATASET [DATASET ...] [KEY=VALUE ...] [--help]."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ntl.config.cli import BAD_INPUT, DONE, Parser, report
from ntl.config.folders import choices
from ntl.system.errors import UserError

EXAMPLES = """examples:
  prepare_data.py multiplication                          the paper's sizes
  prepare_data.py multiplication scale=tiny               what train.py dataset=multiplication scale=tiny reads
  prepare_data.py arithmetic dataset.test_rows=1000       a setting of its own
  prepare_data.py all --verify                            check every sha256 of what is there
  prepare_data.py file dataset.path=my.jsonl              a file of your own
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, also where a file that cannot be downloaded is missing; UserError for bad input."""
    parser = Parser(
        description="Prepare data sets. Files already under the data folder or NTL_DATA_DIR come first, then the "
        "official release, then the original generator. What is whole is left alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(choices("dataset"))
    parser.add_argument(
        "words",
        metavar="DATASET|KEY=VALUE",
        nargs="+",
        help=f"all, or some of {names}; settings as for train.py (default: scale=paper)",
    )
    parser.add_argument("--data-dir", type=Path, help="where to write (default: data)")
    parser.add_argument("--verify", action="store_true", help="check every sha256, not only the sizes")
    parser.add_argument("--no-download", action="store_true", help="do not ask for official releases (up to 2.2 GiB)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_intermixed_args(argv)
    overrides = [word for word in arguments.words if "=" in word]
    chosen = [word for word in arguments.words if "=" not in word]
    if not chosen:
        raise UserError(f"no data set named; choose all, or some of {names}.")
    from ntl.data.prepare_command import prepare, print_table
    from ntl.data.raw import Missing

    reports, failures = prepare(
        chosen, overrides, arguments.data_dir, verify=arguments.verify, download=not arguments.no_download
    )
    if arguments.json:
        print(json.dumps({**reports, **{name: {"error": str(why)} for name, why in failures.items()}}, indent=1))
    else:
        print_table(reports, failures)
    return DONE if all(isinstance(error, Missing) for error in failures.values()) else BAD_INPUT


if __name__ == "__main__":
    sys.exit(report(main))
