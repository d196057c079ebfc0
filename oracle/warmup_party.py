"""The oracle as a party of the warmup level: it does what `oracle.warmup` predicts, with ids upwards from 1 (W2)."""

from __future__ import annotations

from oracle.call import Rows
from oracle.warmup import (
    WORKER_FAILURE,
    Kernels,
    Left,
    Ran,
    Recorded,
    Step,
    WarmupOperation,
    WarmupSetting,
    columns,
    predict,
)


class OracleWarmup:
    """A runner that warms up as the rules say, needs no vLLM, and always leaves its state as it was (W5)."""

    def __init__(self, setting: WarmupSetting) -> None:
        self.setting = setting

    def run(self, operation: WarmupOperation) -> Ran:
        """The predicted steps, up to the worker function that fails."""
        prediction = predict(self.setting, operation)
        samples = not self.setting.pooling
        steps: list[Recorded] = []
        calls, error = 0, ""
        for number, run in enumerate(prediction.runs):
            rows = _Rows(self.setting)
            for step in run:
                calls += 1
                if calls == operation.fail:
                    error = WORKER_FAILURE
                    break
                steps.append(self._recorded(operation, step, number, rows, samples))
                calls += samples and bool(step.parts)
                if calls == operation.fail:
                    error = WORKER_FAILURE
                    break
            if error:
                break
        adaptive = self.setting.adaptive_verification
        warms = isinstance(operation, Kernels) and not self.setting.mm_encoder_only
        clean = warms and self.setting.zeroes_blocks and not error
        left = Left(
            adaptive=adaptive,
            sampler_adaptive=adaptive,
            zeroed=(0,) if clean and self.setting.choices.cleans_null else (),
        )
        return Ran(None if error else prediction.answer, error, tuple(steps), left)

    def _recorded(self, operation: WarmupOperation, step: Step, run: int, rows: _Rows, samples: bool) -> Recorded:
        setting, mixed = self.setting, not isinstance(operation, Kernels)
        prompt = bool(step.parts) and step.parts[0].computed == 0 and setting.last_pp_rank
        masked = samples and not mixed and prompt
        return Recorded(
            parts=step.parts,
            blocks=tuple(
                rows.grow(part.request, [reason.value for reason in columns(setting, part)]) for part in step.parts
            ),
            finished=step.finished,
            total=sum(part.new for part in step.parts),
            announced=setting.num_speculative_tokens if step.parts and setting.choices.announces else None,
            greedy=(run == 1 or mixed) if prompt and samples else None,
            sampled=samples and bool(step.parts),
            grammar_rows=len(step.parts) * setting.masked_rows if masked else None,
            adaptive=mixed and setting.adaptive_verification,
        )


class _Rows:
    """Row lengths of the requests of one run; a request's new ids are the difference to what it holds."""

    def __init__(self, setting: WarmupSetting) -> None:
        self.lengths: dict[int, list[int]] = {}
        self.groups = len(setting.groups)
        self.following = 1

    def grow(self, request: int, wanted: list[int]) -> Rows | None:
        """The new ids of each group; None when there are none."""
        held = self.lengths.setdefault(request, [0] * self.groups)
        more: list[tuple[int, ...]] = []
        for group, length in enumerate(wanted):
            count = max(0, length - held[group])
            more.append(tuple(range(self.following, self.following + count)))
            self.following += count
            held[group] += count
        return tuple(more) if any(more) else None
