"""A program: the release's engine core in a process of its own, driven over its sockets; its plugins load as always."""

from __future__ import annotations

import importlib
import time

from harness.targets import compat


def main() -> None:
    compat.import_vllm()
    from harness.targets.engine import modules
    from harness.targets.model_free import engine_of
    from tests.recorded.settings import setting

    built, executor = engine_of(setting(num_blocks=120), 0)
    clients = importlib.import_module("vllm.v1.engine.core_client").EngineCoreClient
    request = importlib.import_module("vllm.v1.engine").EngineCoreRequest
    client = clients.make_client(True, False, built, executor, False)
    for number in range(20):
        sampling = modules().sampling(max_tokens=60, ignore_eos=True)
        client.add_request(request(f"r{number}", [5] * 40, None, sampling, None, time.time(), None, None, None))
    finished = 0
    while finished < 20:
        finished += sum(one.finish_reason is not None for one in client.get_output().outputs)
    client.shutdown()
    print("done")


if __name__ == "__main__":
    main()
