"""How the repro.py of a warmup difference decides whether the defect is still there.

`got` and `there` are Python expressions over what the script has recorded: `seen` (the steps, request -> computed,
scheduled, blocks per group), `parts` (the values of all steps), `handed` (per pass the ids in order), `facts` (per step
what the output says beside its requests), `rows`, `answer`, `error`, `runner`.
"""

from __future__ import annotations

from attrs import frozen

from harness.warmups import WarmupDifference
from oracle.trace import Difference
from oracle.warmup import Mixed, WarmupTrace, row_width


@frozen
class WarmupJudge:
    """got: an expression for what is shown. there: whether the defect is there. must: what must be, in words."""

    got: str
    there: str
    must: str
    facts: bool = False
    """The script keeps `facts` too."""


#: what is switched off while steps run: the fact of a step, and what must be
_DURING = {
    "adaptive on": ("adaptive", "adaptive verification off in each step"),
    "connector on": ("connector", "the KV connector disabled in each step"),
}


def judge_of(trace: WarmupTrace, difference: Difference) -> WarmupJudge:
    """The judge of a difference of a trace."""
    found = _rows(difference) or _laws(trace, difference) or _outcome(trace, difference)
    return found or _steps(difference)


def _rows(difference: Difference) -> WarmupJudge | None:
    if not isinstance(difference, WarmupDifference) or difference.at < 0 or difference.rule != "W1":
        return None
    blocks = difference.expected.split()[0] if difference.aspect == "columns" else _real(difference.expected)
    at, request = difference.at, difference.request
    held = f"[len(step[{request}][2][{difference.group}]) for step in seen[{at} : {at + 1}] if {request} in step]"
    must = f"request {difference.request} holds {blocks} in step {difference.at}, group {difference.group}"
    return WarmupJudge(held, f"got not in ([{blocks}], [])", must)


def _real(row: str) -> str:
    return str(sum(1 for block in row.strip("[]").split() if block != "0"))


def _laws(trace: WarmupTrace, difference: Difference) -> WarmupJudge | None:
    setting, what = trace.setting, difference.sign
    if difference.aspect != "law":
        return None
    if difference.rule == "ids":
        ids = "[block for part in parts for row in part[2] for block in row]"
        if what == "outside the pool":
            return WarmupJudge(
                f"max({ids}, default=0)", f"got > {setting.num_blocks - 1}", f"at most {setting.num_blocks - 1}"
            )
        if what == "null block":
            return WarmupJudge(f"min({ids}, default=1)", "got == 0", "at least 1: 0 is the null block")
        twice = "sorted({block for ids in handed for block in ids if ids.count(block) > 1})"
        return WarmupJudge(twice, "got != []", "no block with two owners")
    if difference.rule == "state" and what in _DURING:
        key, must = _DURING[what]
        return WarmupJudge(f"[step[{key!r}] for step in facts]", "True in got", must, facts=True)
    if difference.rule in ("rows", "slots") and difference.group is not None and "row" in what:
        width = row_width(setting, setting.groups[difference.group])
        row = f"max((len(part[2][{difference.group}]) for part in parts), default=0)"
        return WarmupJudge(row, f"got > {width}", f"at most {width} blocks, the columns of the worker's row")
    simple = {
        ("positions", "past max_model_len"): (
            "max((part[0] + part[1] for part in parts), default=0)",
            f"got > {setting.max_model_len}",
            f"no step that ends past max_model_len {setting.max_model_len}",
        ),
        ("budget", "draft rows"): (
            f"max(map(len, seen), default=0) * {setting.lookahead}",
            f"got > {setting.max_num_batched_tokens}",
            f"at most {setting.max_num_batched_tokens} rows in the drafter's pass",
        ),
        ("budget", "tokens"): (
            "max((sum(part[1] for part in step.values()) for step in seen), default=0)",
            f"got > {setting.max_num_batched_tokens}",
            f"at most {setting.max_num_batched_tokens} tokens in a step",
        ),
        ("budget", "requests"): (
            "max(map(len, seen), default=0)",
            f"got > {setting.max_num_seqs}",
            f"at most {setting.max_num_seqs} requests in a step",
        ),
        ("state", "connector off"): ("runner.kv_connector.enabled", "not got", "an enabled KV connector"),
        ("state", "adaptive lost"): (
            "(runner.adaptive_verification is not None, runner.rejection_sampler.enable_adaptive_verification)",
            "got != (True, True)",
            "(True, True)",
        ),
        ("state", "null block dirty"): ("runner.kv_block_zeroer.zeroed", "0 not in got", "block 0 among them"),
        ("quiet", "ran"): ("(answer, len(seen))", "got[0] is False and got[1]", "no step when the answer is False"),
        ("quiet", "encoder alone"): ("len(seen)", "got != 0", "no step: there is no model to warm up"),
        ("finish", "unfinished"): ("sorted(rows)", "got != []", "no request left"),
    }
    found = simple.get((difference.rule, what))
    return None if found is None else WarmupJudge(*found)


def _outcome(trace: WarmupTrace, difference: Difference) -> WarmupJudge | None:
    if difference.aspect != "outcome":
        return None
    operation, what = trace.operations[difference.step], difference.sign
    if what.startswith("error:"):
        return WarmupJudge("error", 'got != ""', "no error")
    if what in ("more requests", "fewer requests"):
        must = difference.expected.split()[0]
        return WarmupJudge("len(seen[0]) if seen else 0", f"got != {must}", difference.expected)
    if what == "number of steps":
        return WarmupJudge("len(seen)", f"got != {difference.expected.split()[0]}", difference.expected)
    if isinstance(operation, Mixed) and what in ("ran", "skipped"):
        return WarmupJudge("answer", f"got != {what == 'skipped'}", difference.expected)
    key = {"announced drafts": "announced", "greedy": "greedy", "grammar rows": "grammar_rows"}.get(what)
    if key is None:
        return None
    bad = difference.observed.rpartition(": ")[2] if what == "greedy" else difference.observed.split()[0]
    return WarmupJudge(f"[step.get({key!r}) for step in facts]", f"{bad} in got", difference.expected, facts=True)


def _steps(difference: Difference) -> WarmupJudge:
    """No shorter test: as long as these very steps are run, what was found stays true."""
    return WarmupJudge("seen", "got == found", f"other steps than those found ({difference.expected})")
