"""Which side of a metric is the better one."""

__all__ = ["better_side"]


def better_side(metric: str) -> str:
    """ "min" for losses, perplexities, bits, errors and times, which should fall; "max" for everything else.

    >>> better_side("val/bits_per_byte"), better_side("test/bleu")
    ('min', 'max')
    """
    name = metric.rpartition("/")[2]
    return "min" if any(word in name for word in ("loss", "perplexity", "bits", "error", "rmse", "seconds")) else "max"
