"""The report formats of the warmup level, whole: of the oracle as a party that forgets its lookahead; needs no vLLM."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve

from harness import warmup_commands
from harness.report.warmup import write_warmup_report
from harness.targets.drafters import Drafted
from harness.warmup_shrink import WarmupShrunk
from harness.warmups import WarmupOptions, run_warmups
from oracle.call import Rows
from oracle.drafting import passes, shown
from oracle.groups import FullAttention, Mamba
from oracle.slots import query_slot
from oracle.warmup import Draft, Kernels, Mixed, Part, Ran, WarmupOperation, WarmupSetting, WarmupTrace
from oracle.warmup_party import OracleWarmup
from tests.unit.report_samples import VERSIONS, locate

SETTING = WarmupSetting(
    groups=(FullAttention(block_size=4), Mamba(block_size=16, mode="align", speculative_blocks=2)),
    num_blocks=64,
    max_model_len=128,
    max_num_seqs=2,
    max_num_batched_tokens=64,
    method="dflash",
    num_speculative_tokens=2,
)


class Forgets:
    """The oracle's warmup without lookahead, under the setting with it."""

    def __init__(self, setting: WarmupSetting) -> None:
        self.party = OracleWarmup(evolve(setting, method="ngram"))

    def run(self, operation: WarmupOperation) -> Ran:
        return self.party.run(operation)


def clamps(setting: WarmupSetting, part: Part, rows: list[Rows], rank: int) -> list[list[Drafted]]:
    """A drafter that writes what is past the end of the model to the row's first block."""
    made = []
    for refused, row in enumerate(rows):
        group = setting.groups[0]
        place = partial(query_slot, setting, group, row[0], rank=rank)
        done = []
        for one in passes(setting, part, refused):
            keep = [position <= part.end - 1 - refused or one.what == "queries" for position in one.at]
            slots = [place(position) if kept else -1 for position, kept in zip(one.at, keep, strict=True)]
            past = [
                row[0][0] * 4 if position >= setting.max_model_len else slot
                for position, slot in zip(one.at, slots, strict=True)
            ]
            done.append(Drafted(one.what, shown(setting, one), (tuple(past),)))
        made.append(done)
    return made


OPTIONS = WarmupOptions(draft=clamps)
CASES = {
    "columns": (Mixed(num_tokens=8),),
    "fails": (Kernels(fail=2), Mixed(num_tokens=8)),
    "draft": (Draft(computed=124),),
}
WANTED = {"columns": "W1", "fails": "W1", "draft": "D-L2"}


def shrunk(name: str) -> WarmupShrunk:
    trace = WarmupTrace(setting=SETTING, operations=CASES[name])
    found = run_warmups(trace, Forgets, OPTIONS).differences
    return WarmupShrunk(trace, next(one for one in found if one.rule == WANTED[name]), 0, True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["report.md", "repro.py"])
def test_file(case, name, tmp_path, snapshot):
    folder = write_warmup_report(
        tmp_path / "out", shrunk(case), "0.33.0", Forgets, OPTIONS, versions=VERSIONS, locate=locate
    )
    text = (folder / name).read_text(encoding="utf-8")
    head, _, rest = text.partition("DECODERS = ")  # the drafters' code itself is a module of ours
    text = head + rest[rest.index("\nrows = ") :] if rest else text

    assert snapshot == text
    compile(text, name, "exec") if name == "repro.py" else None


def test_explanation(capsys, snapshot):
    warmup_commands.explain(WarmupTrace(setting=SETTING, operations=(Kernels(), Draft(computed=124))))

    assert snapshot == capsys.readouterr().out
