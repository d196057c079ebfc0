"""Several releases in one campaign: a process for each, their results apart, the list of them kept."""

from __future__ import annotations

from importlib import metadata

import pytest

from harness.campaign import outcome
from harness.campaign.driver import Campaign
from harness.campaign.levels import Levels
from harness.campaign.plan import Plan, begin, check
from harness.campaign.processes import HOST, Processes
from harness.campaign.storage import SHARD, open_store
from oracle.errors import SlotcheckError
from tests.campaign.local import LocalCluster
from tests.commands.conftest import pure, slot  # noqa: F401  # fixtures


@pytest.fixture
def tree(tmp_path):
    """A folder with the installed release's package in it, which says of itself what it is."""
    try:
        found = metadata.distribution("vllm").locate_file("vllm")
    except metadata.PackageNotFoundError:
        pytest.skip("vLLM is not installed")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "vllm").symlink_to(str(found))
    return str(tmp_path / "tree")


@pytest.mark.slow
def test_two_releases_at_once(tree, tmp_path):
    """Two processes, each with its vLLM; here the same one twice, so that they give the same. Then it is resumed."""
    plan = Plan(name="two", levels=("scheduler",), releases=(None, tree), size=1)
    store = open_store(str(tmp_path / "store"))
    begin(store, plan)
    processes = Processes(None, HOST)
    try:
        for shards in (2, 4):
            check(store, plan, resume=True)
            campaign = Campaign(plan, store, LocalCluster(2, processes), shards, None)
            campaign.run()
    finally:
        processes.close()
    texts = [store.get(SHARD, name) for name in store.names(SHARD)]
    first, second = outcome.data(campaign)["levels"]

    assert (2, 4, 2) == (len(processes.of), campaign.merged, campaign.ran)
    assert (texts[0], texts[2]) == (texts[1], texts[3])
    assert first["steps"] == second["steps"] > 0
    with pytest.raises(SlotcheckError, match="releases"):
        check(store, Plan(name="two", levels=("scheduler",), size=1), resume=True)


def test_a_release_that_is_not_at_hand(pure):  # noqa: F811
    """Refused before Ray is started."""
    result = pure("campaign", "--shards", 1, "--release", "0.1.0")

    assert (3, 1) == (result.status, result.err.count("\n"))
    assert "release 0.1.0 is not at hand" in result.err


def test_the_scheduler_level_is_of_its_release(monkeypatch):
    """Its traces, its canary and its crossings are those of the release that the process has imported."""
    from harness.campaign import levels
    from harness.targets import loader

    monkeypatch.setattr(levels, "installed_release", lambda: "0.28.0")
    monkeypatch.setattr(loader, "load_scheduler", lambda target: None)
    level = Levels()["scheduler"]

    assert "0.28.0" == level.options.release
    assert not {"session goes on", "drafts skipped"} & level.wanted()
