"""A manager with a defect, as a subclass of the release's: what an engine in a test's process is given."""

from __future__ import annotations

from harness.targets import compat

compat.import_vllm()
_MANAGER = compat.manager_class()


class ForgetsLookahead(_MANAGER):
    """Gives no slots for drafts once a request has 200 computed tokens."""

    def allocate_slots(self, request, num_new_tokens, *more, **named):
        if request.num_computed_tokens >= 200:
            named["num_lookahead_tokens"] = 0
        return super().allocate_slots(request, num_new_tokens, *more, **named)
