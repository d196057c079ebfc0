"""repro.py of a trace with prefix caching on: its calls in literal numbers, with the release's own hashes.

The calls are those that the oracle is asked when the trace is run on it alone, up to the deciding one. What is judged
is the answer to that call: a hit, a row, an error, the events of a step.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator
from typing import Any

from harness.outcome import Options, Outcome
from harness.passes import Asked, CachingRecorder
from harness.report.calls import call_text, keywords, slots_arguments
from harness.report.script import spec_text
from harness.targets.event_keys import LOOKAHEAD, Odd, odd_of
from harness.targets.specs import spec_arguments
from harness.trace_run import new_replay
from oracle.call import Call, Drained, Event, Hit, Observation, Query
from oracle.content import Content, item_length
from oracle.lookup import UNCUT
from oracle.setting import Setting
from oracle.trace import Difference, Trace


def asked_of(trace: Trace, last: int, to_the_end: bool = False) -> list[Asked]:
    """The calls of a trace up to operation `last`, with the oracle's answers. `to_the_end`: it all settles."""
    oracle = CachingRecorder(trace.setting)
    replay = new_replay(trace.setting, None, Options(aspects=frozenset()), oracle=oracle)
    for operation in trace.operations:
        if replay.over:
            break
        oracle.step = replay.steps
        replay.step(operation)
    if to_the_end and not replay.over:
        replay.finish()
    return [asked for asked in oracle.asked if asked[0] <= last and asked[1] != "audit"]


def _literal(row: object) -> str:
    return "[" + ", ".join(map(_literal, row)) + "]" if isinstance(row, tuple) else repr(row)


#: what a consumer makes of the events
_EVENTS = {
    "tokens": (
        "",
        "stored = [event for event in manager.take_events() if hasattr(event, 'token_ids')]",
        "got = [(len(one.block_hashes), one.block_size, len(one.token_ids)) for one in stored]",
        "there = any(names * size != tokens for names, size, tokens in got)",
    ),
    "parent": (
        "",
        "told: set[Any] = {None}",
        "got = []",
        "for event in manager.take_events():",
        "    if hasattr(event, 'token_ids'):",
        "        got.append(event.parent_block_hash in told)",
        "        told |= set(event.block_hashes)",
        "there = not all(got)",
    ),
    "forgotten": (
        "",
        "held: set[Any] = set()",
        "for event in manager.take_events():",
        "    names = {(event.group_idx, name) for name in event.block_hashes}",
        "    held = held | names if hasattr(event, 'token_ids') else held - names",
        "cached = len(manager.block_pool.cached_block_hash_to_block)",
        'got = f"a consumer holds {len(held)} names, {cached} can be found"',
        "there = len(held) < cached",
    ),
}
_EVENTS["reported"] = _EVENTS["believed"] = (*_EVENTS["forgotten"][:-1], "there = len(held) > cached")
_MUST = {
    "tokens": "names x block size = tokens in each event (names, block size, tokens)",
    "parent": "each parent was told before",
    "forgotten": "a consumer that adds what is stored and deletes what is removed holds what can be found",
    **dict.fromkeys(
        ("believed", "reported"),
        "a consumer that adds what is stored and deletes what is removed holds no more than can be found",
    ),
}


def _caught(call: str, answer: str = "") -> Iterator[str]:
    """A call whose exception is the defect. answer: what is shown when there is one, instead of it."""
    yield "try:"
    yield from [f"    {call}", f"    got, there = {answer!r}, False"] if answer else [f"    got, there = {call}, False"]
    yield "except Exception as error:"
    yield '    got, there = f"{type(error).__name__}: {error}", True'


class Script:
    """Writes the calls of a trace with caching on."""

    def __init__(self, asked: list[Asked], difference: Difference) -> None:
        self.asked = asked
        self.difference = difference
        self.contents: dict[int, Content] = {}
        self.popped = 0
        self.given = 0
        self.pins = self.unpinned = 0
        #: the call that is judged: the last lookup for a hit, the last call for slots else
        wanted = {"hits": "lookup", "events": "new_step", "copies": "new_step"}.get(difference.aspect, "extend")
        at = [index for index, one in enumerate(asked) if one[1] == wanted and one[0] <= difference.step]
        if difference.aspect == "events":  # the boundary that tells what was expected
            at = [index for index in at if difference.expected in map(str, asked[index][3].events)] or at
        if difference.rule == "raised":  # a cut is before the call for slots of its operation
            at = [index for index, one in enumerate(asked) if one[:2] == (difference.step, "cut")] or at
        self.last = at[-1] if at else len(asked) - 1

    def lines(self) -> Iterator[str]:
        """The calls, then the judgement: `got` and `there`."""
        told = self.difference.rule == "P47"
        for index, (_, method, arguments, answer) in enumerate(self.asked if told else self.asked[: self.last + 1]):
            judged = index == self.last and not told
            yield from getattr(self, f"_{method}")(*arguments, answer, judged)
        if told:
            yield from _EVENTS[self.difference.sign]

    # ------------------------------------------------------------------------------------- requests

    def _request(self, request: int, content: Content) -> Iterator[str]:
        before = self.contents.get(request)
        self.contents[request] = content
        if before is content:
            return
        if before is not None:
            keep = f"{self._variable(request)}.has({content.kept + 1}, {content.kept + 1}, 0)" if content.kept else ""
            yield keep
            yield f"{self._variable(request)}.goes_on({content.tokens}, {content.kept})"
            return
        more: dict[str, str] = {}
        if content.embeds:
            values = ", ".join(f"[{content.embeds + value / 4}]" for value in content.values)
            more["prompt_embeds"] = f"torch.tensor([{values}])"
        if content.salt:
            more["cache_salt"] = f'"salt {content.salt}"'
        if content.adapter:
            number = content.adapter
            name = f"adapter {(number + 1) // 2}"
            more["lora_request"] = (
                f'SimpleNamespace(name="{name}", lora_name="{name}", lora_path="path {number}", adapter_id={number})'
            )
        if content.items:
            items = ", ".join(f'item("item {one}", {at}, {item_length(one)})' for one, at in content.items)
            more["mm_features"] = f"[{items}]"
        arguments = [f'"{self._name(request)}"', f"tokens={content.tokens}"]
        yield call_text(f"{self._variable(request)} = Request", [*arguments, *(f"{k}={v}" for k, v in more.items())])

    def _name(self, request: int) -> str:
        return "nobody" if request < 0 else str(request)

    def _variable(self, request: int) -> str:
        return "nobody" if request < 0 else f"request_{request}"

    def _has(self, call: Call) -> str:
        numbers = [str(call.prompt), str(call.tokens), str(call.computed - call.local)]
        if call.in_flight or call.junction:
            numbers.append(str(call.in_flight))
        if call.junction:
            numbers.append(str(call.junction))
        return f"{self._variable(call.request)}.has({', '.join(numbers)})"

    # ---------------------------------------------------------------------------------------- calls

    def _lookup(self, query: Query, answer: Hit, judged: bool) -> Iterator[str]:
        yield ""
        if query.request < 0:
            self.contents.pop(-1, None)
        yield from self._request(query.request, query.content)
        name = self._variable(query.request)
        yield f"{name}.has({query.tokens}, {query.tokens}, 0)"
        yield f"{name}.skip_reading_prefix_cache = {query.skip}" if query.skip else ""
        yield f'{name}.kv_cache_report_mode = "full"' if query.report else ""
        more = "" if query.bound == query.tokens - 1 else f", {query.bound}"
        look = f"look_up_for_connector({name})" if query.apart else f"look_up({name}{more})"
        if not judged or self.difference.aspect != "hits":
            yield f"found = {look}"
            return
        if self.difference.sign.startswith("error:"):
            yield from _caught(f"{look}[1]")
        else:
            yield f"found = {look}"
            yield "got = found[1], [list(ids) for ids in found[0].get_block_ids()]"
            if UNCUT in self.difference.tags:
                yield "there = any(len(row) > -(-got[0] // spec.block_size) for row, spec in zip(got[1], specs))"
            else:
                yield f"there = got != ({answer.tokens}, {_literal(answer.rows)})"

    def _cut(self, request: int, tokens: int, answer: None, judged: bool) -> Iterator[str]:
        cut = f"manager.truncate_computed_blocks(found[0], {tokens})"
        yield from _caught(cut, "an answer") if judged else [f"found = {cut}, {tokens}"]

    def _extend(self, call: Call, answer: Observation, judged: bool) -> Iterator[str]:
        yield ""
        assert call.content is not None
        yield from self._request(call.request, call.content)
        yield self._has(call)
        name = self._variable(call.request)
        status = "PREEMPTED" if call.preempted else "WAITING" if call.waiting else "RUNNING"
        yield f"{name}.status = RequestStatus.{status}"
        found = ["*found"] if call.local else []
        arguments = [name, *found, *keywords(slots_arguments(call))]
        yield call_text("answer = allocate_slots", arguments)
        if judged:
            if self.difference.aspect == "outcome":
                yield "got = answer"
                yield f'there = got != "{answer.outcome.removeprefix("error:")}"'
            else:
                yield f"got = rows({name})"
                same = "==" if self.difference.aspect == "law" else "!="
                yield f"there = got {same} {_literal(answer.rows)}"

    def _publish(self, call: Call, tokens: int, answer: Observation, judged: bool) -> Iterator[str]:
        yield self._has(call)
        yield f"manager.cache_blocks({self._variable(call.request)}, {tokens})"

    def _release(self, request: int, deferred: bool, answer: Observation, judged: bool) -> Iterator[str]:
        yield ""
        if deferred:
            yield f"popped_{self.popped} = manager.pop_blocks_for_free({self._variable(request)})"
            self.popped += 1
        else:
            yield f"manager.free({self._variable(request)})"

    def _give_back(self, answer: Observation, judged: bool) -> Iterator[str]:
        yield f"manager.block_pool.free_blocks(reversed(popped_{self.given}))"
        self.given += 1

    def _trim(self, request: int, processed: int, prompt: int, answer: Observation, judged: bool) -> Iterator[str]:
        yield f'manager.remove_skipped_blocks("{request}", {processed}, {prompt})'

    def _return_copies(self, answer: Observation, judged: bool) -> Iterator[str]:
        yield "manager.block_pool.free_blocks(retained.pop(0))"

    def _evict(self, blocks: tuple[int, ...], answer: Observation, judged: bool) -> Iterator[str]:
        yield f"manager.evict_blocks({set(blocks)})"

    def _pin(self, blocks: tuple[int, ...], answer: Observation, judged: bool) -> Iterator[str]:
        yield f"pinned_{self.pins} = [manager.block_pool.blocks[block] for block in {list(blocks)}]"
        yield f"manager.block_pool.touch(pinned_{self.pins})"
        self.pins += 1

    def _unpin(self, watched: bool, answer: Observation, judged: bool) -> Iterator[str]:
        how = "unpin_blocks" if watched else "free_blocks"
        yield f"manager.block_pool.{how}(pinned_{self.unpinned}{', lambda block: None' if watched else ''})"
        self.unpinned += 1

    def _reset(self, answer: Observation, judged: bool) -> Iterator[str]:
        yield "manager.reset_prefix_cache()"

    def _new_step(self, answer: Drained, judged: bool) -> Iterator[str]:
        if not judged:
            yield "next_step()"
        elif self.difference.aspect == "events":
            told = [one for asked in self.asked[: self.last + 1] for one in getattr(asked[3], "events", ())]
            stored = [(one[1], len(one[2]), one[4], len(one[5])) for one in told if one[0] == "stored"]
            yield "next_step()"
            yield "stored = [event for event in manager.take_events() if hasattr(event, 'token_ids')]"
            yield from self._odd(told) or (
                "got = [(one.group_idx, len(one.block_hashes), one.block_size, len(one.token_ids)) for one in stored]",
                f"there = got != {stored}",
            )
        else:
            yield "got = next_step()"
            yield f"there = got != {list(answer.copies)}"

    def _odd(self, told: list[Event]) -> tuple[str, ...]:
        """The judgement of one field of an event; () when the events differ in more than that."""
        odd = odd_of_text(self.difference)
        at = [
            index
            for index, one in enumerate(one for one in told if one[0] == "stored")
            if str(one) == self.difference.expected
        ]
        if not odd or not at:
            return ()
        field, _, expected = odd
        value = list(expected) if field.startswith(LOOKAHEAD) and isinstance(expected, tuple) else expected
        return f"got = stored[{at[-1]}].{field}", f"there = got != {value!r}"


def odd_of_text(difference: Difference) -> Odd:
    """The field of an event that a difference is about, if it is about one."""
    if difference.aspect != "events" or difference.observed == "None":
        return ()
    odd = odd_of(literal_eval(difference.observed))
    return () if odd and "entries" in str(odd[2]) else odd


def manager_text(setting: Setting) -> str:
    """The construction of the manager."""
    arguments: dict[str, Any] = {
        "max_model_len": setting.max_model_len,
        "scheduler_block_size": setting.scheduler_block_size,
        "hash_block_size": setting.hash_size,
    }
    optional = {
        "max_in_flight_tokens": (setting.max_in_flight_tokens, None),
        "use_eagle": (setting.use_eagle, False),
        "num_hash_lookahead_tokens": (setting.num_hash_lookahead_tokens, 0),
        "num_prefill_lookahead": (setting.num_prefill_lookahead_tokens, 0),
        "enable_mamba_shared_prefix_checkpoint": (setting.enable_mamba_shared_prefix_checkpoint, False),
        "enable_kv_cache_events": (setting.enable_kv_cache_events, False),
        "dcp_world_size": (setting.dcp_size, 1),
        "watermark": (setting.watermark, 0.0),
    }
    arguments |= {name: value for name, (value, default) in optional.items() if value != default}
    return call_text("manager = KVCacheManager", ["kv_cache_config=config", *keywords(arguments)])


def must_text(difference: Difference) -> str:
    """What must be, as a Python string."""
    if difference.rule == "P47":
        return repr(f"expected: {_MUST[difference.sign]}")
    if difference.aspect == "hits" and UNCUT in difference.tags:
        return repr("expected: no row of a hit has more columns than the hit takes")
    odd = odd_of_text(difference)
    if odd:
        return repr(f"expected: {odd[0]} of an event is {odd[2]!r}")
    if difference.aspect == "events":
        return repr(f"expected: (group, names, block size, tokens) of each event stored, such as {difference.expected}")
    if difference.aspect == "law":
        return repr(f"expected: other rows; with these the step {difference.observed}")
    return repr(f"expected: {difference.expected}")


def cached_context(outcome: Outcome, difference: Difference) -> dict[str, Any]:
    """What the template of repro.py needs."""
    setting = outcome.trace.setting
    classes = {spec_arguments(group)[0] for group in setting.groups} | {"KVCacheConfig", "KVCacheGroupSpec"}
    ahead = setting.num_hash_lookahead_tokens
    script = Script(asked_of(outcome.trace, max(difference.step, 0), difference.aspect == "events"), difference)
    calls = "\n".join(script.lines()).strip("\n")
    while "\n\n\n" in calls:
        calls = calls.replace("\n\n\n", "\n\n")
    return {
        "calls": calls,
        "goes_on": ".goes_on(" in calls,
        "embeds": "prompt_embeds=" in calls,
        "for_connector": "look_up_for_connector(" in calls,
        "hash_size": setting.hash_size,
        "classes": sorted(classes),
        "specs": [spec_text(group, indent=4) for group in setting.groups],
        "marks": [index for index, group in enumerate(setting.groups) if group.eagle],
        "num_blocks": setting.num_blocks,
        "retention": setting.prefix_cache_retention_interval,
        "configured": setting.choices.retention_configured,
        "manager": manager_text(setting),
        "hasher": f"{setting.hash_size}, sha256" + (f", {ahead}" if ahead else ""),
        "defers": setting.defers_copies,
        "must": must_text(difference),
    }
