"""What is refused, in one sentence that names the value and what to do."""


class SlotcheckError(Exception):
    """Base of every error that a person caused and can mend; printed without a traceback."""


class SettingError(SlotcheckError, ValueError):
    """A setting that no engine could have: which field, its value, what is allowed."""


class TraceError(SlotcheckError, ValueError):
    """A trace file that cannot be read: where, what was found, what was expected."""
