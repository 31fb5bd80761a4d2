"""scripts/push.py: the card, the dry run, and an upload to a local server with the API that huggingface_hub uses."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ntl.results import read_record
from ntl.system.errors import UserError
from ntl.training.model_card import model_card
from ntl.training.push import main

ROOT = Path(__file__).resolve().parents[2]


class Hub(ThreadingHTTPServer):
    """Files by path, and the visibility of what was created."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.stored: dict[str, bytes] = {}
        self.created: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def do_HEAD(self) -> None:
        self._answer({})

    def do_GET(self) -> None:
        files = [
            {"type": "file", "path": name, "size": len(data), "oid": "0"} for name, data in self.server.files.items()
        ]
        siblings = [{"rfilename": name} for name in self.server.files]
        self._answer(files if "/tree/" in self.path else {"id": "me/tiny", "sha": "0" * 40, "siblings": siblings})

    def do_PUT(self) -> None:
        self.server.stored[self.path.rpartition("/")[2]] = self._body()
        self._answer({})

    def do_POST(self) -> None:
        body, server = self._body(), self.server
        if self.path.endswith("/repos/create"):
            server.created.append(json.loads(body))
            self._answer({"url": f"{server.url}/me/tiny"})
        elif "/preupload/" in self.path:
            mode = {True: "lfs", False: "regular"}
            named = [file["path"] for file in json.loads(body)["files"]]
            lfs = [{"path": p, "uploadMode": mode[p.endswith("s")], "shouldIgnore": False} for p in named]
            self._answer({"files": lfs})
        elif self.path.endswith("/objects/batch"):
            objects = [
                {**each, "actions": {"upload": {"href": f"{server.url}/store/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    server.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    server.files[value["path"]] = server.stored[value["oid"]]
                elif line["key"] == "deletedFile":
                    del server.files[value["path"]]
            self._answer({"commitUrl": f"{server.url}/me/tiny/commit/1", "commitOid": "1", "success": True})
        else:
            self._answer({})


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def push(run: Path, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": "hf_of_a_test", **settings}
    command = [sys.executable, str(ROOT / "scripts" / "push.py"), str(run), "--to", "me/tiny", *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.mark.slow
def test_an_upload_holds_what_a_stock_process_needs_to_answer_as_the_run_did(finished, hub, tmp_path):
    settings = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
    done = push(finished, "--push", **settings)
    assert done.returncode == 0, done.stderr
    assert hub.created[0]["visibility"] == "private"
    wanted = {"README.md", "config.json", "generation_config.json", "model.safetensors"}
    assert set(hub.files) == wanted | {"tokenizer.json", "tokenizer_config.json"}

    copy = tmp_path / "copy"
    copy.mkdir()
    for name, content in hub.files.items():
        (copy / name).write_bytes(content)
    rows = [json.loads(line) for line in (finished / "predictions.jsonl").read_text().splitlines()[1:]]
    from ntl.config.composition import read_config
    from ntl.config.targets import build
    from ntl.data.prepared import Prepared

    config = read_config(finished)
    question = Prepared(build(config.dataset), config.data_dir).rows("test")[0]["question"]
    code = hub.files["README.md"].decode().partition("```python\n")[2].partition("```")[0]
    program = (
        f"question = {question!r}\n{code.replace('me/tiny', str(copy))}\nimport sys\nassert 'ntl' not in sys.modules"
    )
    stock = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=stock, cwd=copy)
    assert shown.returncode == 0, shown.stderr
    # The snippet allows 40 tokens, a run of this size fewer: an answer without an end goes on.
    assert shown.stdout.strip().startswith(rows[0]["prediction"])

    hub.files["spiece.model"] = b"of another model"
    refused = push(finished, "--push", **settings)
    assert refused.returncode == 2
    assert "has other files (spiece.model)" in refused.stderr
    assert push(finished, "--push", "--replace", **settings).returncode == 0
    assert "spiece.model" not in hub.files


def test_a_dry_run_sends_nothing_and_lists_the_files(finished, hub):
    done = push(finished, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in done.stdout
    assert "optimizer.pt" not in done.stdout
    assert "Dry run: nothing was sent" in done.stdout
    assert hub.created == []
    assert push(finished, "--push", HF_HUB_OFFLINE="1").returncode == 2


def test_the_card_has_metrics_with_intervals_and_the_licence_of_closed_data(finished):
    record = read_record(finished / "record.json")
    card = model_card(record, finished, "me/tiny")
    assert f"| test | accuracy | {record.metrics['test/accuracy']:.4g} [" in card
    assert "license: mit" in card
    values = {"_target_": "ntl.data.sets.rjokes.RJokes", "name": "rjokes", "answers": "number"}
    closed = model_card(replace(record, config={**record.config, "dataset": values}), finished, "me/tiny")
    assert "license: other" in closed
    assert "**The data has no open licence.**" in closed
    (finished / "predictions.jsonl").unlink()
    assert "There are no intervals" in model_card(record, finished, "me/tiny")


def test_weights_of_another_step_than_the_record_and_wrong_names_are_refused(finished):
    with pytest.raises(UserError, match="not a repository of the form owner/name"):
        main([str(finished), "--to", "tiny"])
    for checkpoint in finished.glob("checkpoints/checkpoint-12"):
        shutil.rmtree(checkpoint)
    with pytest.raises(UserError, match="the record's metrics are of step 12"):
        main([str(finished), "--to", "me/tiny"])
