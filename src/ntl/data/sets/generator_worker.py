"""Runs inside the generator's own environment, never in ours: writes one file of DeepMind mathematics.

    python generator_worker.py REGIME MODULE COUNT FILE [--patch]

A question that raises ends the run: trying again would quietly change the distribution.
"""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

import random
import sys
import zlib


def patch() -> None:
    """Give the release of 2019 two names that newer sympy and numpy took away."""
    import importlib

    import numpy

    moved = importlib.import_module("sympy.solvers.diophantine.diophantine")
    sys.modules["sympy.solvers.diophantine"].base_solution_linear = moved.base_solution_linear  # type: ignore[attr-defined]
    numpy.object = object  # type: ignore[attr-defined]


def main(regime: str, module: str, count: int, path: str) -> None:
    """Write ``count`` pairs; the seed depends on regime and module alone, so a shorter file is a prefix of a longer."""
    import numpy
    from absl import flags
    from mathematics_dataset import generate

    flags.FLAGS(["generator_worker"])
    generate.init_modules(train_split=True)
    seed = zlib.crc32(f"{regime}/{module}".encode())
    random.seed(seed)
    numpy.random.seed(seed)
    sampler = generate.filtered_modules[regime][module]
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        for _ in range(count):
            problem, _dropped = generate.sample_from_module(sampler)
            stream.write(f"{problem.question}\n{problem.answer}\n")


if __name__ == "__main__":
    if sys.argv[5:] == ["--patch"]:
        patch()
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
