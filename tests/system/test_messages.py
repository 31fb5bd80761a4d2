"""What the package logs: where a command prints it, what of it, and that nothing of it stays behind."""

import logging
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from ntl.config.cli import report
from ntl.system.messages import logger, printed


def test_commands_print_to_the_stream_that_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        logger.info("reading a")
        logger.warning("b is lost")

    for stream, out, err in (("stdout", "reading a\nb is lost\n", ""), ("stderr", "", "reading a\nb is lost\n")):
        assert report(main, messages=stream) == 0
        assert capsys.readouterr() == (out, err)


def test_the_innermost_prints_and_all_is_as_before_also_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    before = (logger.handlers, logger.level, logger.propagate)
    log = StringIO()

    def fail() -> None:
        with redirect_stdout(log), printed():
            logger.info("into the log")
        with printed(least=logging.WARNING):
            logger.info("too little")
            logger.warning("enough")
        logger.info("outside again")
        raise RuntimeError

    with pytest.raises(RuntimeError), printed("stderr"):
        fail()
    assert (log.getvalue(), capsys.readouterr()) == ("into the log\n", ("enough\n", "outside again\n"))
    assert (logger.handlers, logger.level, logger.propagate) == before
    logger.propagate = False  # a user's own choice stays
    try:
        with printed():
            pass
        assert not logger.propagate
    finally:
        logger.propagate = True


def test_nothing_is_printed_twice_or_lost_where_somebody_configures_logging(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler(sys.stdout)  # as Hydra's
    logging.getLogger().addHandler(handler)
    logger.disabled = True  # as logging.config.dictConfig does with every logger that it does not know
    try:
        with printed():
            logger.info("once")
    finally:
        logging.getLogger().removeHandler(handler)
        logger.disabled = False
    assert capsys.readouterr().out == "once\n"


def test_of_several_ranks_the_first_prints(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with printed():
            logger.info(rank)
    monkeypatch.delenv("MASTER_ADDR")  # left over in a shell
    with printed():
        logger.info("alone")
    assert capsys.readouterr().out == "0\nalone\n"


def test_secrets_are_replaced_whoever_shows_the_messages(monkeypatch, caplog, capsys) -> None:
    monkeypatch.setenv("MY_TOKEN", "5ec4e75ec4e75ec4e7")
    logger.warning("see 5ec4e75ec4e75ec4e7, %s", "http://me:word@host/")
    with printed():
        logger.warning("and 5ec4e75ec4e75ec4e7")
    assert caplog.messages == ["see <MY_TOKEN>, http://<login>@host/"]
    assert capsys.readouterr().out == "and <MY_TOKEN>\n"


def test_in_python_warnings_show_by_themselves_and_all_else_where_logging_is_configured() -> None:
    program = "import logging; {}from ntl.system.messages import logger; logger.info('a'); logger.warning('b')"
    shown = {"": "b\n", "logging.basicConfig(level='INFO', format='%(message)s'); ": "a\nb\n"}
    for configured, expected in shown.items():
        command = [sys.executable, "-c", program.format(configured)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == expected
