"""The oracle beside recorded answers: agreement, the first difference with its step and time, what cannot be judged."""

from __future__ import annotations

import copy

import pytest

from harness.outcome import Options
from harness.recorded import Judged
from harness.recorded_shrink import forks_of
from harness.recording import read_head
from oracle.content import Prefixes
from oracle.groups import FullAttention
from oracle.setting import Setting
from oracle.trace import Extend, NewStep, Release, Settle
from tests.recorded.lines import HEAD, LINES, text


def judged(lines, head=None):
    found = Judged(read_head(text([], head).encode(), None), Options())
    for line in lines:
        found.feed(line)
    return found


def changed(number, change):
    """The lines with one changed."""
    lines = copy.deepcopy(LINES)
    change(lines[number])
    return lines


def test_right_answers_agree():
    found = judged(LINES)

    assert (None, "", 4) == (found.difference, found.parted, found.steps)


def test_the_operations_are_those_of_a_trace():
    asked = [
        Extend(request=0, new=7, prompt=7, has_scheduled_reqs=False, lookahead=0),
        NewStep(),
        Settle(),
        Extend(request=0, new=1),
        NewStep(),
        Settle(),
        Extend(request=0, new=1),
        NewStep(),
        Settle(),
        Release(request=0),
        NewStep(),
    ]

    assert asked == judged(LINES).replay.operations


def test_a_block_too_few_is_found_at_its_step_and_time():
    """The 9th token has no place: nothing was taken."""
    found = judged(changed(2, lambda line: line.pop("t")))

    assert ("columns", "A19", "less") == (found.difference.aspect, found.difference.rule, found.difference.sign)
    assert (2, "2026-03-01 10:00:00.030000+00:00") == (found.steps, str(found.at))


def test_another_block_is_found():
    def other(line):
        line["t"] = [[0, 8, 5, [4]]]

    assert "A3" == judged(changed(2, other)).difference.rule


def test_a_block_that_is_not_given_back_is_found():
    def leaks(line):
        line["e"][0][1]["free"] = 7

    assert "free" == judged(changed(3, leaks)).difference.aspect


def test_a_refusal_of_what_fits_is_found():
    def refuses(line):
        said = line["e"][0][1]
        del said["got"]
        said |= {"said": "refused", "rows": [[]], "free": 8}

    assert "refused" == judged(changed(0, refuses)).difference.observed


def test_other_numbers_of_the_scheduler_end_the_judging():
    def other(line):
        line["t"][0][1] = 9

    found = judged(changed(2, other))

    assert found.difference is None
    assert "9 computed tokens where the accounting of a trace has 8" in found.parted


def test_what_no_scheduler_asks_ends_the_judging():
    assert "no scheduler of a trace" in judged(changed(1, lambda line: line.update(n=[[0, 5, 7]]))).parted


def test_what_is_not_judged_is_said():
    told = [{"s": 1, "raised": "AssertionError"}]

    assert "the scheduler raised AssertionError" == judged(told).parted


def test_a_dropped_beginning_is_said():
    found = judged(LINES, HEAD | {"dropped": 3})

    assert "first 3 part(s) were dropped" in found.parted
    assert 0 == found.steps


@pytest.mark.parametrize("size", [1, 4])
def test_forks_have_the_prefixes_of_digests(size):
    """Eleven contents that part in the first block, two of them alike, one parting in the second."""
    setting = Setting(groups=(FullAttention(block_size=size),), num_blocks=9, max_model_len=64, enable_caching=True)
    digests = {request: [100 + request, 200] for request in range(3 if size == 1 else 11)}
    digests[20], digests[21] = [100, 200], [100, 300]
    forks, prefixes = forks_of(setting, digests), Prefixes()
    nodes = {}
    for request, path in forks.items():
        content = prefixes.begin(path)
        prefixes.grow(content, 2 * size)
        nodes[request] = (content.path[size], content.path[2 * size])
    same = {one: [other for other in nodes if nodes[other] == nodes[one]] for one in nodes}

    assert [0, 20] == same[0]
    assert nodes[21][0] == nodes[0][0]
    assert nodes[21][1] != nodes[0][1]
    assert len(set(nodes.values())) == len(nodes) - 1
