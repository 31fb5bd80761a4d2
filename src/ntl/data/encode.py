"""Examples to token ids, once per data set and tokenizer: block by block, in parallel."""

import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from ntl.data.encode_worker import BlockEncoder, EncodedBlock, Failure, Settings
from ntl.data.encoded import ABOUT, Damaged, EncodedDataset, EncodedWriter
from ntl.data.store import Rows
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import UNUSED_SECONDS, sweep
from ntl.system.locks import wait_for_lock
from ntl.tokenizers.load import backend_state, tokenizer_fingerprint

FORMAT = 5
PROGRAM = "import sys; from ntl.data.encode_worker import serve; serve(int(sys.argv[1]))"
WORD_STARTS = ("\u2581", "\u0120")  # sentencepiece's, and a byte-level space
# Rows of a block where the source is not a prepared file.
CHUNK = 5_000
# With fewer blocks of a prepared file, worker processes cost more time than they save.
FEW_BLOCKS = 8
SAY_SECONDS = 15.0
PARTS = ((0, "question"), (1, "answer"))
Source = Callable[[], Iterable[Mapping[str, Any]]]


def encode_dataset(
    rows: Source,
    tokenizer: Any,
    *,
    cache_dir: Path,
    key: str,
    decoder_only: bool,
    max_length: int,
    keep_target: bool = False,
    workers: int | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    A second process that does the same waits. The result does not depend on ``workers``.

    Args:
        rows: Returns the rows; called only if they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; of a longer one the beginning is cut off, since the question proper
            stands at the end. ``about["truncated"]`` counts them.
        keep_target: The answers are numbers, and the end token of each gets its value.
        workers: Processes to tokenize in; None takes one per core if there are enough rows.
    """
    reader = getattr(tokenizer, "reader", "")
    parts = [FORMAT, key, tokenizer_fingerprint(tokenizer), decoder_only, max_length, reader, keep_target]
    folder = cache_dir / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    if (found := _open(folder, log)) is not None:
        return found
    settings = settings_for(tokenizer, decoder_only=decoder_only, max_length=max_length, keep_target=keep_target)
    with one_line_errors("write token ids to", cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(cache_dir / f".{folder.name}.lock", log) as held:
            found = _open(folder, lambda line: None)  # another process may have made it meanwhile
            if found is None:
                # What is there is damaged, or written by an older version.
                shutil.rmtree(folder, ignore_errors=True)
                # Without a lock the folder of another process at work may be among them.
                sweep(cache_dir, f".{folder.name}.part-*", 0 if held else UNUSED_SECONDS)
                _make(folder, rows(), settings, workers, log)
    return EncodedDataset(folder) if found is None else found


def _open(folder: Path, log: Callable[[str], None]) -> EncodedDataset | None:
    if not (folder / ABOUT).is_file():
        return None
    try:
        return EncodedDataset(folder)
    except Damaged as error:
        log(f"{str(error).partition('; ')[0]}: tokenizing again")
        return None


def settings_for(tokenizer: Any, *, decoder_only: bool, max_length: int, keep_target: bool = False) -> Settings:
    """Everything that decides the ids, without the tokenizer object."""
    unknown = tokenizer.unk_token_id
    return Settings(
        tokenizer=json.dumps(backend_state(tokenizer)),
        end=tokenizer.eos_token_id,
        unknown=-1 if unknown is None else unknown,
        decoder_only=decoder_only,
        answer_prefix=answer_text("", tokenizer, decoder_only),
        max_length=max_length,
        dtype="<u2" if max(tokenizer.get_vocab().values()) < 2**16 else "<i4",
        reader=getattr(tokenizer, "reader", ""),
        number_token=getattr(tokenizer, "number_token_id", -1),
        keep_target=keep_target,
    )


def encode_rows(rows: Iterable[Mapping[str, Any]], settings: Settings) -> list[dict[str, np.ndarray]]:
    """A few rows, in memory: examples as those of an ``EncodedDataset``."""
    lines = [json.dumps({"question": row["question"], "answer": row["answer"]}) for row in rows]
    block = BlockEncoder(settings)("\n".join(lines).encode())
    columns = {"ids": block.tokens} | ({} if block.values is None else {"values": block.values})
    cut = {name: np.split(values, block.sizes.cumsum()[:-1]) for name, values in columns.items()}
    return [
        {f"{part}_{name}": pieces[2 * index + place] for name, pieces in cut.items() for place, part in PARTS}
        for index in range(len(lines))
    ]


def answer_text(answer: str, tokenizer: Any, decoder_only: bool) -> str:
    """The answer as it follows the question: after a space if the tokenizer marks a word start only there.

    Byte-level tokenizers and Gemma's do; T5's and Llama 2's mark the start of every text.
    """
    return f" {answer}" if decoder_only and _is_marked(" 0", tokenizer) and not _is_marked("0", tokenizer) else answer


def _is_marked(text: str, tokenizer: Any) -> bool:
    return tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens[0].startswith(WORD_STARTS)


def _make(
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    settings: Settings,
    workers: int | None,
    log: Callable[[str], None],
) -> None:
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.part-", dir=folder.parent))
    try:
        writer = EncodedWriter(part, settings.dtype, with_values=settings.has_values)
        shown = time.monotonic()
        with _encoders(settings, _count_workers(rows, workers)) as encode:
            for encoded in _in_order(encode, blocks(rows)):
                writer.append(encoded)
                if time.monotonic() - shown >= SAY_SECONDS:
                    shown = time.monotonic()
                    log(f"tokenized {writer.rows:,} examples")
        writer.finish()
        part.chmod(0o755)  # mkdtemp's own mode shuts out everyone else
        try:
            os.replace(part, folder)
        except OSError:
            # Without a lock another process may have been first; its content is the same.
            if not (folder / ABOUT).is_file():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def blocks(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Blocks of JSON lines."""
    if isinstance(rows, Rows):
        yield from rows.blocks()
        return
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        lines = [json.dumps({"question": row["question"], "answer": row["answer"]}) for row in chunk]
        yield "\n".join(lines).encode()


def _count_workers(rows: Iterable[Mapping[str, Any]], workers: int | None) -> int:
    if workers is not None:
        return workers
    few = not isinstance(rows, Rows) or sum(1 for _ in islice(rows.blocks(), FEW_BLOCKS)) < FEW_BLOCKS
    return 0 if few else len(os.sched_getaffinity(0))


class _Worker:
    """One process that encodes; used by one thread at a time.

    It is started afresh instead of forked, so that it inherits no thread or lock of a training process; and not by
    multiprocessing's ``spawn``, which imports the user's script again and outlives a parent that is killed.
    """

    def __init__(self, settings: Settings) -> None:
        self.connection, theirs = Pipe()
        # Under -P the first entry of PYTHONPATH counts: the package that this process imported.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with theirs:
            # A session of its own: Ctrl-C is for the process that waits for the result.
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
            )
        with suppress(OSError):  # of a process that has ended already, which the first block reports
            self.connection.send(settings)

    def __call__(self, block: bytes) -> EncodedBlock:
        try:
            self.connection.send_bytes(block)
            answer: EncodedBlock | Failure = self.connection.recv()
        except (EOFError, OSError):
            raise UserError(
                f"a process that tokenizes ended with status {self.process.wait()} (out of memory?); run again."
            ) from None
        if isinstance(answer, EncodedBlock):
            return answer
        raise UserError(answer.text) if answer.by_user else RuntimeError(f"tokenizing failed: {answer.text}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


Submit = Callable[[bytes], "Future[EncodedBlock]"]


@contextmanager
def _encoders(settings: Settings, workers: int) -> Iterator[tuple[Submit, int]]:
    """A function to submit blocks to, and how many to submit ahead."""
    if workers < 1:
        encode = BlockEncoder(settings)

        def at_once(block: bytes) -> "Future[EncodedBlock]":
            future: Future[EncodedBlock] = Future()
            future.set_result(encode(block))
            return future

        yield at_once, 1
        return
    started: list[_Worker] = []
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tokenizing")

    def in_worker(block: bytes) -> EncodedBlock:
        worker = idle.get()
        try:
            return worker(block)
        finally:
            idle.put(worker)

    try:
        for _ in range(workers):
            started.append(_Worker(settings))
            idle.put(started[-1])
        yield (lambda block: pool.submit(in_worker, block)), 2 * workers
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in started:
            worker.stop()
        pool.shutdown()


def _in_order(encoders: tuple[Submit, int], source: Iterator[bytes]) -> Iterator[EncodedBlock]:
    submit, ahead = encoders
    waiting: deque[Future[EncodedBlock]] = deque()
    for block in source:
        waiting.append(submit(block))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
