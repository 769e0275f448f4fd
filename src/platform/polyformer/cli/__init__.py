"""The command `platform`. Nothing heavy is imported before it is known what to do."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from polyformer.cli.help import OVERVIEW, VERBS
from polyformer.errors import LostRankError, Stopped, UsageError

__all__ = ["main"]

USAGE, FAILURE = 2, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb.

    Args:
        arguments: The words after `platform`; None: those of the process.

    Returns:
        The exit code: 0, 1 for a failure, 2 for a command line that is wrong; 130 after Ctrl-C and 143 after SIGTERM.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        return _dispatch(words)
    except BrokenPipeError:
        return FAILURE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except Stopped as stopped:
        return stopped.exit_code
    except Exception as error:
        if debug:
            raise
        print(f"platform: {_explain(error)}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILURE


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(OVERVIEW)
        return 0
    if words[0] == "--version":
        from polyformer import __version__

        print(__version__)
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        from polyformer.training.names import nearest

        raise UsageError(f"there is no verb `{verb}`{nearest(verb, VERBS)}")
    module, function, text = VERBS[verb]
    if rest and rest[0] in ("-h", "--help"):
        print(text)
        return 0
    from polyformer.cli.early import check_words

    check_words(verb, rest)
    run: Callable[[list[str]], int] = getattr(import_module(f"polyformer.cli.{module}"), function)
    return run(rest)


def _explain(error: Exception) -> str:
    """What went wrong in a line or two; an unexpected error also says how to see more."""
    if isinstance(error, OSError) and error.strerror:  # of the machine, such as a full disk
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(error).strip() or type(error).__name__
    expected = isinstance(error, (ValueError, FileNotFoundError, LostRankError))
    return text if expected else f"{type(error).__name__}: {text}\n(`--debug` shows where)"
