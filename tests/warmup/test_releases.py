"""The warmup by the rules of a release, and the miscounts that older ones are known for; needs no vLLM."""

from __future__ import annotations

import pytest

from harness import warmup_suspects
from harness.warmup_run import MINIMA, minima_of
from harness.warmups import WarmupOptions, run_warmups
from oracle.groups import CrossAttention, FullAttention, Group, KpoolTail, Mamba
from oracle.warmup import Mixed, kernel_requests, kernel_steps, longest_tokens, predict
from oracle.warmup_party import OracleWarmup
from strategies.warmups import decode, draw
from tests.warmup.cases import setting, trace

FULL = FullAttention(block_size=4)
EAGLE3 = {"method": "eagle", "num_speculative_tokens": 3}
RELEASES = ("0.22.1", "0.24.0", "0.26.0", "0.27.1", "0.28.0", "0.31.0", "0.32.0", "0.33.0")


@pytest.mark.parametrize(("release", "steps", "passes"), [("0.26.0", 3, 1), ("0.27.1", 7, 1), ("0.33.0", 7, 2)])
def test_steps_of_a_release(release: str, steps: int, passes: int) -> None:
    """A prompt, one or five decodes, a clean-up; a second time greedily since 0.33.0."""
    of = setting(FULL, release=release, **EAGLE3)

    assert [steps] * passes == [len(run) for run in predict(of, trace(of).operations[0]).runs]
    assert steps == len(kernel_steps(of, 2))


@pytest.mark.parametrize(("release", "tokens"), [("0.26.0", 9), ("0.28.0", 25)])
def test_longest_request_of_a_release(release: str, tokens: int) -> None:
    """A prompt of 5 and one decode of 4 tokens, or five of them."""
    assert tokens == longest_tokens(setting(FULL, release=release, **EAGLE3))


@pytest.mark.parametrize("release", RELEASES)
def test_oracle_agrees_with_its_own_judge(release: str) -> None:
    """What differs is what tiny pools and models break, whoever takes the steps."""
    found = set()

    def visit(data: bytes) -> None:
        options = WarmupOptions(release=release)
        for difference in run_warmups(decode(data, release), OracleWarmup, options).differences:
            found.add((difference.aspect, difference.rule))

    draw(7, 0, 100, visit)
    assert found <= {("law", "positions"), ("law", "ids"), ("law", "budget"), ("law", "rows"), ("nulls", "W1")}


@pytest.mark.parametrize("release", RELEASES)
def test_settings_have_what_a_release_has(release: str) -> None:
    """No kind and no feature that came later."""
    seen: set[str] = set()

    def visit(data: bytes) -> None:
        of = decode(data, release)
        seen.update(group.kind for group in of.setting.groups)
        seen.update(name for name in ("null_block_redirect", "mm_encoder_only") if getattr(of.setting, name))
        seen.update("mixed" for operation in of.operations if isinstance(operation, Mixed))

    draw(3, 0, 300, visit)
    expected = {
        "rswa": release >= "0.25.1",
        "circular_buffer": release >= "0.29.0",
        "kpool_tail": release == "0.31.0",
        "null_block_redirect": release >= "0.32.0",
        "mm_encoder_only": release >= "0.28.0",
        "mixed": release >= "0.24.0",
    }
    assert expected == {name: name in seen for name in expected}


def test_what_a_release_lacks_need_not_be_met() -> None:
    """Crossings by release; the newest has all."""
    assert MINIMA == minima_of("0.33.0")
    assert {"kind circular_buffer", "null-block redirect", "encoder alone", "adaptive verification"} == set(
        MINIMA
    ) - set(minima_of("0.26.0"))


@pytest.mark.parametrize(
    ("release", "group", "observed", "names"),
    [
        ("0.27.1", FULL, 2, ("tokens alone",)),  # ceil(8 / 4), where ceil((8 + 3) / 4) = 3
        ("0.28.0", FULL, 2, ()),
        ("0.27.1", FULL, 1, ()),
        ("0.27.1", CrossAttention(block_size=4), 2, ("tokens alone",)),  # the decoder's tokens; the encoder's take 3
        ("0.27.1", Mamba(block_size=4, speculative_blocks=3), 2, ("tokens alone",)),
        ("0.28.0", Mamba(block_size=4, speculative_blocks=3, uniform_layers=2), 3, ("uniform as attention",)),
        ("0.29.0", Mamba(block_size=4, speculative_blocks=3, uniform_layers=2), 3, ()),
        ("0.31.0", KpoolTail(block_size=4), 3, ("tail as window",)),
        ("0.32.0", KpoolTail(block_size=4), 3, ()),
    ],
)
def test_suspects_of_columns(release: str, group: Group, observed: int, names: tuple[str, ...]) -> None:
    """8 tokens, lookahead 3: only what a formula of the release gives is known."""
    of = setting(group, release=release, **EAGLE3)

    assert names == warmup_suspects.of_columns(of, group, 8, observed)


@pytest.mark.parametrize("release", ["0.27.1", "0.28.0", "0.31.0"])
def test_what_every_release_counts_is_no_miscount_of_an_older_one(release: str) -> None:
    """With DCP 4 a column has 16 positions: 8 tokens take one; by the rank's own block size two."""
    of = setting(FULL, release=release, num_blocks=17, max_num_seqs=8, dcp_size=4)

    assert () == warmup_suspects.of_columns(of, FULL, 8, 2)
    assert () == warmup_suspects.of_requests(of, 8)
    assert () == warmup_suspects.of_skip(of, Mixed(num_tokens=64), False)


def test_suspects_of_requests() -> None:
    """31 tokens take ceil((31 + 4) / 4) = 9 blocks, by tokens alone 8: 16 usable blocks hold one request, or two."""
    of = setting(FULL, num_blocks=17, max_num_seqs=8, method="eagle", num_speculative_tokens=4, release="0.27.1")

    assert 1 == kernel_requests(of)
    assert ("tokens alone",) == warmup_suspects.of_requests(of, 2)
    assert () == warmup_suspects.of_requests(of, 3)


def test_two_requests_with_one_seat_have_a_name() -> None:
    """0.24.0 asks nobody."""
    of = setting(FULL, max_num_seqs=1)

    assert ("one seat",) == warmup_suspects.of_skip(of, Mixed(num_tokens=9), True)
    assert () == warmup_suspects.of_skip(of, Mixed(num_tokens=9), False)
