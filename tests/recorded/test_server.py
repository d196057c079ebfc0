"""vLLM's OpenAI-compatible server, the engine core in a process of its own, asked by several clients at once."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.outcome import Options
from harness.recorded import Judged
from harness.recording import recordings
from harness.targets import compat
from tests.recorded.serving import NAME, ROOT, write_model, write_plugin

if compat.installed_release() is None:
    pytest.skip("vLLM is not installed: nothing to record", allow_module_level=True)

pytestmark = pytest.mark.slow
STARTS, ANSWERS = 400, 60
SECRET = "the launch code of nobody is "


def ask(port, path, body=None):
    """One call of the server on this machine; its JSON."""
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(made, timeout=ANSWERS) as answer:
        return json.load(answer)


@pytest.fixture
def served(tmp_path):
    """`served(*arguments)`: the port of a server that answers, and the folder that it records to."""
    write_model(tmp_path / "model")
    write_plugin(tmp_path / "plugin")
    started = []

    def serve(*more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = ["--host", "127.0.0.1", "--port", port, "--served-model-name", NAME, "--dtype", "float16"]
        arguments += ["--max-model-len", 256, "--block-size", 16, "--num-gpu-blocks-override", 120]
        arguments += ["--max-num-seqs", 64, "--max-num-batched-tokens", 512]
        arguments += ["--distributed-executor-backend", "tests.recorded.serving.ModelFree", *more]
        given = {"PYTHONPATH": f"{tmp_path / 'plugin'}{os.pathsep}{ROOT}", "SLOTCHECK_RECORD": str(tmp_path / "out")}
        quiet = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", tmp_path / "model", *arguments]
        with (tmp_path / "log").open("w") as log:
            server = subprocess.Popen([*map(str, command)], env=os.environ | given | quiet, stdout=log, stderr=log)
        started.append(server)
        end = time.monotonic() + STARTS
        while True:
            try:
                ask(port, "/v1/models")
                return port, tmp_path / "out"
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    pytest.fail("the server does not answer:\n" + (tmp_path / "log").read_text()[-3000:])
                time.sleep(1)

    yield serve
    for server in started:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def client(port, number):
    """Six requests one after the other, with prefixes that clients share; how many tokens came."""
    coins, got = random.Random(number), 0
    for turn in range(6):
        limit = coins.randrange(5, 60)
        said = SECRET * coins.randrange(1, 5) + f"client {number} asks {turn} "
        body = {"model": NAME, "max_tokens": limit, "ignore_eos": True}
        if turn % 2:
            answer = ask(port, "/v1/chat/completions", body | {"messages": [{"role": "user", "content": said}]})
        else:
            answer = ask(port, "/v1/completions", body | {"prompt": said})
        assert limit == answer["usage"]["completion_tokens"]
        got += limit
    return got


@pytest.mark.parametrize(
    "arguments", [("--no-async-scheduling",), ("--api-server-count", 2)], ids=["one server", "two servers and overlap"]
)
def test_a_server_is_recorded_and_judged(served, arguments):
    port, folder = served(*arguments)
    with ThreadPoolExecutor(8) as clients:
        got = sum(clients.map(lambda number: client(port, number), range(8)))
    [found] = recordings(folder)
    judged = Judged(found.head, Options())
    for line in found.lines():
        judged.feed(line)
    reach = judged.replay.reach.counts
    text = "".join(path.read_text() for path in Path(folder).glob("*.jsonl"))
    sent = [*re.findall(r"\w{5,}", SECRET), "client", "cmpl"]

    assert ("", None) == (judged.parted, judged.difference)
    assert got > 1000
    assert judged.steps > 100
    assert reach["hit"] > 20
    assert [] == [word for word in sent if word in text]
    assert (1 if "--no-async-scheduling" in arguments else 2) == judged.head.setting.in_flight_depth


def test_a_model_on_this_machine_is_recorded_and_judged():
    """The same with dummy weights; where vLLM has no kernels for the processor, the model-free executor stands in."""
    if importlib.util.find_spec("vllm._C") is None or "cpu" not in (compat.installed_release() or ""):
        pytest.skip(f"vLLM {compat.installed_release()} is not a CPU build: it computes nothing without a GPU")
    pytest.fail("a CPU build is installed: drive it with --load-format dummy as the tests above")
