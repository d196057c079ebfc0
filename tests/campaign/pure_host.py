"""The host of a campaign where vLLM is not installed, or would cost too much: for targets of pure Python."""

from __future__ import annotations

from harness.targets import compat, loader


def main() -> None:
    compat._chosen.append("0.33.0")
    loader.import_vllm = lambda: None
    from harness.campaign import host

    host.main()


if __name__ == "__main__":
    main()
