"""Writes files of DeepMind mathematics, with the generator's own packages before ours: a program, never imported.

    PYTHONPATH=PACKAGES python generator_worker.py FOLDER '{"train-easy/algebra__linear_1d.txt": 1000, ...}'

The seed depends on a file's name alone, so that a shorter file is a prefix of a longer one. A question that raises ends
the run: trying again would quietly change the distribution.
"""
# pyright: reportMissingImports=false, reportMissingModuleSource=false

import json
import os
import random
import sys
import zlib
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import numpy

# Names of the release of 2019 that newer sympy and numpy took away.
moved = import_module("sympy.solvers.diophantine.diophantine")
sys.modules["sympy.solvers.diophantine"].base_solution_linear = moved.base_solution_linear  # type: ignore[attr-defined]
numpy.object = object  # type: ignore[attr-defined]

from absl import flags  # noqa: E402
from mathematics_dataset import generate  # noqa: E402


def write(job: tuple[Path, int]) -> None:
    path, count = job
    seed = zlib.crc32(f"{path.parent.name}/{path.stem}".encode())
    random.seed(seed)
    numpy.random.seed(seed)
    sampler, part = generate.filtered_modules[path.parent.name][path.stem], path.with_suffix(".part")
    path.parent.mkdir(exist_ok=True)
    with open(part, "w", encoding="utf-8", newline="\n") as stream:
        for _ in range(count):
            problem, _dropped = generate.sample_from_module(sampler)
            stream.write(f"{problem.question}\n{problem.answer}\n")
    os.replace(part, path)


if __name__ == "__main__":
    flags.FLAGS(["generator_worker"])
    generate.init_modules(train_split=True)
    jobs = [(Path(sys.argv[1], name), count) for name, count in json.loads(sys.argv[2]).items()]
    with get_context("fork").Pool() as pool:
        pool.map(write, sorted(jobs, key=lambda job: -job[1]), chunksize=1)
