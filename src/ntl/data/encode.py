"""Examples to token ids, once per data and tokenizer: block by block, in parallel, and not again after a kill."""

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
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from ntl.data import encode_worker
from ntl.data.encode_worker import USER_ERROR, BlockEncoder, Encoded, Settings, receive, send, settings_bytes
from ntl.data.encoded import ABOUT, Damaged, EncodedDataset, EncodedWriter
from ntl.data.store import Rows
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import sweep
from ntl.system.locks import wait_for_lock
from ntl.tokenizers.load import backend_state, tokenizer_fingerprint

FORMAT = 4
WORD_STARTS = ("\u2581", "\u0120")  # sentencepiece's, and a byte-level space
# Rows of a block where the source is not a prepared file.
CHUNK = 5_000
# Below this many blocks of a prepared file, worker processes cost more than they save.
FEW_BLOCKS = 8
SAY_SECONDS = 15.0
Source = Callable[[], Iterable[Mapping[str, Any]]]
Encode = Callable[[bytes], Encoded]


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

    Safe against a second process that does the same, which waits; after a kill the next call goes on where it was.
    The result does not depend on ``workers``.

    Args:
        rows: Gives the rows; called only when they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; a longer one loses its beginning, since the question proper stands
            at the end. ``about["truncated"]`` counts them.
        keep_target: The answers are numbers, and their values are kept beside their end tokens.
        workers: Processes to tokenize in; None takes one a core where there are enough rows for it.
    """
    reader = _reader_of(tokenizer)
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
                # What is there is damaged, or of an older version.
                shutil.rmtree(folder, ignore_errors=True)
                # Made without a lock, so that nobody goes on with them; those without the hyphen can be gone on with.
                sweep(cache_dir, ".*.part-*")
                _make(folder, rows(), settings, workers, log, keep=held)
    return EncodedDataset(folder) if found is None else found


def _open(folder: Path, log: Callable[[str], None]) -> EncodedDataset | None:
    """What an earlier run tokenized, if it is whole."""
    if not (folder / ABOUT).is_file():
        return None
    try:
        return EncodedDataset(folder)
    except Damaged as error:
        log(f"{str(error).partition('; ')[0]}: tokenizing again")
        return None


def settings_for(tokenizer: Any, *, decoder_only: bool, max_length: int, keep_target: bool = False) -> Settings:
    """Everything that decides the ids, free of the tokenizer object."""
    unknown = tokenizer.unk_token_id
    return Settings(
        tokenizer=json.dumps(backend_state(tokenizer)),
        end=tokenizer.eos_token_id,
        unknown=-1 if unknown is None else unknown,
        decoder_only=decoder_only,
        answer_prefix=answer_text("", tokenizer, decoder_only),
        max_length=max_length,
        dtype="<u2" if max(tokenizer.get_vocab().values()) < 2**16 else "<i4",
        reader=_reader_of(tokenizer),
        number_token=getattr(tokenizer, "number_token_id", -1),
        keep_target=keep_target,
    )


def _reader_of(tokenizer: Any) -> str:
    return getattr(tokenizer, "reader", "")


def answer_text(answer: str, tokenizer: Any, decoder_only: bool) -> str:
    """The answer as it follows the question: with a space where that alone makes a word-start mark.

    A byte-level tokenizer and Gemma's need it; T5's and Llama 2's begin every text with a mark.
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
    *,
    keep: bool,
) -> None:
    # Without a lock nobody else may find the unfinished folder.
    name = folder.with_name(f".{folder.name}.part")
    part = name if keep else Path(tempfile.mkdtemp(prefix=f"{name.name}-", dir=folder.parent))
    try:
        writer = EncodedWriter(part, settings.dtype, with_values=settings.has_values)
        if writer.damaged:
            log(f"{part}: damaged: tokenizing from the start")
        elif writer.rows:
            log(f"tokenizing: {writer.rows:,} examples were done before")
        shown = time.monotonic()
        with _encoders(settings, _count_workers(rows, workers)) as encode:
            for encoded, position in _in_order(encode, blocks(rows, writer.position)):
                writer.append(encoded, position)
                if time.monotonic() - shown >= SAY_SECONDS:
                    shown = time.monotonic()
                    log(f"tokenized {writer.rows:,} examples")
        writer.finish()
        try:
            os.replace(part, folder)
        except OSError:
            # Without a lock another process may have been first; its content is the same.
            if not (folder / ABOUT).is_file():
                raise
    finally:
        if not keep:
            shutil.rmtree(part, ignore_errors=True)


def blocks(rows: Iterable[Mapping[str, Any]], start: int) -> Iterator[tuple[int, bytes]]:
    """Lines of JSON from position ``start`` on, each block with the position behind it.

    Positions are bytes of a prepared file, and rows of anything else.
    """
    if isinstance(rows, Rows):
        yield from rows.blocks(start)
        return
    remaining = islice(iter(rows), start, None)
    while chunk := list(islice(remaining, CHUNK)):
        start += len(chunk)
        lines = [json.dumps({"question": row["question"], "answer": row["answer"]}) for row in chunk]
        yield start, "\n".join(lines).encode()


def _count_workers(rows: Iterable[Mapping[str, Any]], workers: int | None) -> int:
    if workers is not None:
        return workers
    few = not isinstance(rows, Rows) or sum(1 for _ in islice(rows.blocks(), FEW_BLOCKS)) < FEW_BLOCKS
    return 0 if few else len(os.sched_getaffinity(0))


class _Worker:
    """One process that encodes; used by one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        # A session of its own: Ctrl-C is for the process that waits for the result.
        command = [sys.executable, "-P", encode_worker.__file__]
        # The package that this process imported, wherever a new one would find another.
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=environment
        )
        self.stdin, self.stdout = cast("tuple[IO[bytes], IO[bytes]]", (self.process.stdin, self.process.stdout))
        self.settings = settings
        self.dtype = np.dtype(settings.dtype)
        send(self.stdin, settings_bytes(settings))

    def __call__(self, block: bytes) -> Encoded:
        try:
            send(self.stdin, block)
            error = receive(self.stdout)
            tokens, sizes, counters, values = [receive(self.stdout) if error == b"" else None for _ in range(4)]
        except BrokenPipeError:
            error = tokens = sizes = counters = values = None
        if error and error.startswith(USER_ERROR):
            raise UserError(error.removeprefix(USER_ERROR).decode())
        if error:
            raise RuntimeError(f"tokenizing failed: {error.decode()}")
        if tokens is None or sizes is None or counters is None or values is None:
            raise UserError(
                f"a process that tokenizes ended with status {self.process.wait()} (out of memory?); "
                "run again: what is done is kept."
            )
        return Encoded(
            np.frombuffer(tokens, self.dtype),
            np.frombuffer(sizes, np.int64),
            tuple(json.loads(counters)),
            np.frombuffer(values, np.float64) if self.settings.has_values else None,
        )

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                continue


Submit = Callable[[bytes], "Future[Encoded]"]


@contextmanager
def _encoders(settings: Settings, workers: int) -> Iterator[tuple[Submit, int]]:
    """Something to submit blocks to, and how many it takes at a time."""
    if workers < 1:
        encode = BlockEncoder(settings)

        def at_once(block: bytes) -> "Future[Encoded]":
            future: Future[Encoded] = Future()
            future.set_result(encode(block))
            return future

        yield at_once, 1
        return
    started: list[_Worker] = []
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tokenizing")

    def in_worker(block: bytes) -> Encoded:
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


def _in_order(encoders: tuple[Submit, int], source: Iterator[tuple[int, bytes]]) -> Iterator[tuple[Encoded, int]]:
    submit, room = encoders
    waiting: deque[tuple[Future[Encoded], int]] = deque()
    for position, block in source:
        waiting.append((submit(block), position))
        if len(waiting) >= room:
            future, done = waiting.popleft()
            yield future.result(), done
    for future, done in waiting:
        yield future.result(), done
