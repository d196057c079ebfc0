"""The recorded manager answers whatever a replay may ask a party."""

from __future__ import annotations

from harness.playback import Playback
from oracle.trace import CACHING_METHODS


def test_it_has_every_method_of_a_party():
    assert not [name for name in CACHING_METHODS if not callable(getattr(Playback, name, None))]
