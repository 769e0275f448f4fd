"""What a user can cause, beside a plain ValueError."""

__all__ = ["UsageError"]


class UsageError(ValueError):
    """A command line or a config file that cannot be understood; the command ends with exit code 2."""
