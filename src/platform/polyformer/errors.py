"""What a user can cause, beside a plain ValueError, and what ends a run from outside."""

import signal

__all__ = ["LostRankError", "Stopped", "UsageError"]


class UsageError(ValueError):
    """A command line or a config file that cannot be understood; the command ends with exit code 2."""


class LostRankError(RuntimeError):
    """Another process of a training has ended, and what it alone had to give never comes."""


class Stopped(BaseException):
    """A signal ends the run.

    Args:
        number: The signal's.

    >>> Stopped(signal.SIGTERM).exit_code
    143
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number
