"""A campaign: the same set of results whoever runs it, whatever is lost, however often it is begun again."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from harness.campaign import outcome
from harness.campaign.driver import Campaign
from harness.campaign.messages import Caught
from harness.campaign.plan import Plan, begin, check
from harness.campaign.storage import FINDING, SHARD, Stored, findings, open_store
from harness.campaign.table import table
from harness.forks import HarnessError
from oracle.errors import SlotcheckError
from tests.campaign.local import LocalCluster, processes

WRONG = "tests.unit.mutants:Leaks"
SOUND = "tests.unit.mutants:Sound"
PLAN = Plan(name="night", levels=("manager",), releases=("0.33.0",), seed=3, size=1, target=WRONG)


def run(store, slots=1, shards=3, plan=PLAN, after=lambda number, processes: None, seconds=None):
    """A campaign on `slots` workers of this machine."""
    campaign = Campaign(plan, store, LocalCluster(slots, processes(plan.target), after), shards, seconds)
    campaign.run()
    return campaign


def kept(store) -> dict[str, str]:
    """Everything that a store has of results and differences."""
    return {f"{kind} {name}": store.get(kind, name) for kind in (SHARD, FINDING) for name in store.names(kind)}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one worker makes of three shards, undisturbed."""
    store = open_store(str(tmp_path_factory.mktemp("alone")))
    return run(store), kept(store)


def test_the_number_of_workers_changes_nothing(alone, tmp_path):
    """Three at once give what one gives."""
    store = open_store(str(tmp_path))
    data = outcome.data(run(store, slots=3))

    assert alone[1] == kept(store)
    assert {name: data[name] for name in ("verdict", "steps", "differences")} == {
        name: value if name != "differences" else data[name]
        for name, value in outcome.data(alone[0]).items()
        if name in ("verdict", "steps", "differences")
    }


def test_a_difference_is_shrunk_once_and_counted(alone):
    """Its fingerprints become few, each with its smallest trace and how often it was met."""
    data = outcome.data(alone[0])
    few = {one["operations"] for one in data["differences"] if one["minimal"] and one["count"] > 1}

    assert ("differences", True) == (data["verdict"], bool(few))
    assert min(few) <= 3


def test_a_lost_process_costs_its_shard(alone, tmp_path):
    """It is run again, by another process: the results are the same."""

    def kill(number, hosts):
        if number == 2:
            hosts.of["0.33.0"].process.kill()

    store = open_store(str(tmp_path))
    campaign = run(store, slots=2, after=kill)

    assert (True, alone[1]) == (campaign.lost > 0, kept(store))


class Losing:
    """A cluster whose machines die of every shard."""

    def __init__(self) -> None:
        self.given = []

    def free(self):
        return 1 - len(self.given)

    def machines(self):
        return 1

    def give(self, token, release, request):
        self.given.append((token, Caught(steps=1, ended="", release=release) if token[0] == "canary" else None))

    def wait(self, seconds):
        return [self.given.pop()]


def test_a_shard_that_is_always_lost_ends_the_campaign(tmp_path):
    """It is the harness that failed."""
    with pytest.raises(HarnessError, match="shard 0 was lost 4 times"):
        Campaign(PLAN, open_store(str(tmp_path)), Losing(), 1, None).run()


def test_an_interrupted_campaign_goes_on(alone, tmp_path):
    """Nothing that was finished is run again; the end is the same."""

    def interrupt(number, processes):
        if number == 3:  # the canary and two shards
            raise KeyboardInterrupt

    store = open_store(str(tmp_path))
    first = run(store, after=interrupt)
    again = run(store)

    assert (True, 1, 3) == (first.interrupted, first.ran, again.merged)
    assert (2, alone[1]) == (again.ran, kept(store))


def test_a_result_that_is_cut_off_is_run_again(alone, tmp_path):
    """As if it had never been."""
    store = open_store(str(tmp_path))
    for name, text in alone[1].items():
        store.put(*name.split(), text if name != "shard night.00000001" else text[:50])
    again = run(store)

    assert (1, alone[1]) == (again.ran, kept(store))


def test_another_campaign_counts_what_one_has_shrunk(alone, tmp_path):
    """The difference of the first stays as it is."""
    store = open_store(str(tmp_path))
    for name, text in alone[1].items():
        if name.startswith("finding"):
            store.put(*name.split(), text)
    before = {one.found: one for one in findings(store)}
    run(store, plan=Plan(name="next", levels=("manager",), releases=("0.33.0",), seed=3, size=1, target=WRONG))

    assert before == {one.found: one for one in findings(store)}


def test_time_ends_a_campaign(tmp_path):
    """No shard is begun after it; what was begun is finished and merged."""
    store = open_store(str(tmp_path))
    plan = Plan(name="a", levels=("manager",), releases=("0.33.0",), size=1, target=SOUND)
    campaign = run(store, shards=None, seconds=0.2, plan=plan)

    assert len(store.names(SHARD)) == campaign.merged
    assert not campaign.running


def test_redis_that_is_killed_in_the_middle(alone, tmp_path):
    """It comes back a second later: what is written meanwhile waits."""
    from harness.campaign.servers import Redis

    if Redis.missing():
        pytest.skip(Redis.missing())
    server = Redis(tmp_path)
    server.start()
    try:

        def kill(number, processes):
            if number == 2:
                server.away(1.0)

        store = open_store(server.address)
        campaign = run(store, slots=2, after=kill)

        assert (3, alone[1]) == (campaign.merged, kept(store))
    finally:
        server.kill()


def test_redis_that_forgets_its_last_seconds(alone, tmp_path):
    """What was lost is written again at the end."""
    from harness.campaign.servers import Redis

    if Redis.missing():
        pytest.skip(Redis.missing())
    server = Redis(tmp_path)
    server.start()
    try:

        def forget(number, processes):
            if number == 3:
                store.server.flushall()

        store = open_store(server.address)
        run(store, after=forget)

        assert alone[1] == kept(store)
    finally:
        server.kill()


def test_the_table_has_a_row_for_each_level(alone):
    """Steps, crossings, differences."""
    told = Console(record=True, width=120, file=StringIO())
    told.print(table(alone[0], "127.0.0.1:8265"))
    said = told.export_text()

    assert all(word in said for word in ("3 shards", "manager", "0.33.0", " of ", "8265"))


def test_the_end_says_how_to_replay(alone):
    """A line for each difference, and the verdict."""
    said = outcome.text(outcome.data(alone[0])).splitlines()

    assert "differences" == said[-1]
    assert sum("slotcheck replay '" in line for line in said) == len(outcome.data(alone[0])["differences"]) > 0


# ---------------------------------------------------------------------------------------------------------- plans


def test_shards_take_turns():
    """Every prefix has something of all levels and releases; a level's own shards come once each."""
    plan = Plan(name="a", levels=("manager", "scheduler"), releases=("0.32.0", "0.33.0"), size=4)
    shards = [plan.shard(index) for index in range(16)]
    places = [(one.release, one.level, one.profile, number) for one in shards for number in one.numbers]

    assert 8 == len({(one.release, one.level, one.profile) for one in shards[:8]})
    assert sorted(set(places)) == sorted(places)


def test_a_campaign_goes_on_with_its_own_arguments(store):
    """Others are refused, with the value."""
    begin(store, PLAN)
    check(store, PLAN, resume=True)
    other = Plan(name="night", levels=("manager",), releases=("0.33.0",), seed=4, size=1, target=WRONG)
    with pytest.raises(SlotcheckError, match="seed 3, not 4"):
        check(store, other, resume=True)


def test_a_campaign_begins_once(store):
    """Another one needs another name."""
    check(store, PLAN, resume=False)
    begin(store, PLAN)
    for refused in (lambda: begin(store, PLAN), lambda: check(store, PLAN, resume=False)):
        with pytest.raises(SlotcheckError, match=r"is in .* already"):
            refused()


def test_a_campaign_that_never_began(store):
    """There is nothing to go on with."""
    with pytest.raises(SlotcheckError, match="no campaign night to go on with"):
        check(store, PLAN, resume=True)


def test_a_difference_without_a_smaller_trace_is_kept(alone):
    """Each one has been shrunk by the campaign that met it."""
    assert all(isinstance(one, Stored) and one.shrunk and one.by == "night" for one in alone[0].kept.values())
