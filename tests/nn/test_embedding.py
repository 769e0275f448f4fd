"""Vectors of n-grams: which there are, where they stand, and how they are dropped."""

import pytest
import torch

from polyformer.models import EncoderOnly, EncoderOnlyOptions, Ngrams
from polyformer.nn import NgramEmbedding


def embedding(orders: list[int], buckets: int = 1009, dropout: float = 0.0) -> NgramEmbedding:
    made = NgramEmbedding(orders, buckets, 8, dropout)
    torch.nn.init.normal_(made.table)
    return made


def test_a_vector_is_that_of_the_ngrams_that_end_at_its_token() -> None:
    """Each vector is the sum over the orders, of which fewer end where fewer tokens stand before."""
    pairs, triples = embedding([2]), embedding([3])
    both = embedding([2, 3])
    both.table.data = pairs.table.data = triples.table.data
    tokens = torch.tensor([[5, 6, 7, 5, 6, 7, 6]])
    torch.testing.assert_close(both(tokens), pairs(tokens) + triples(tokens))
    two, three = pairs(tokens)[0], triples(tokens)[0]
    assert not two[0].any() and not three[:2].any()
    assert two[1:].any(dim=-1).all() and three[2:].any(dim=-1).all()
    assert torch.equal(two[1], two[4]) and torch.equal(two[2], two[5]) and torch.equal(three[2], three[5])  # 5 6, 6 7, 5 6 7
    assert not torch.equal(two[2], two[6])  # 6 7 is not 7 6
    assert not torch.equal(three[3], three[5])  # nor 6 7 5 5 6 7


def test_an_ngram_has_the_same_vector_in_every_text_and_beside_padding() -> None:
    made = embedding([2, 4])
    text = torch.randint(4, 100, (1, 9))
    alone = made(text)
    for left, right in [(0, 5), (5, 0), (2, 3)]:
        row = torch.nn.functional.pad(text, (left, right), value=0)
        keep = torch.zeros_like(row, dtype=torch.bool)
        keep[:, left : left + 9] = True
        padded = made(torch.cat((row, torch.randint(4, 100, row.shape))), torch.cat((keep, torch.ones_like(keep))))
        assert torch.equal(padded[:1, left : left + 9], alone)


def test_hashes_stay_as_they_are_since_checkpoints_hold_their_rows() -> None:
    made = NgramEmbedding([2, 3], buckets=100_000, d_model=1)
    made.table.data = torch.arange(100_000.0).unsqueeze(1)
    rows = made(torch.tensor([[1, 2, 3], [2, 1, 29_999]])).long().squeeze(-1)  # in sums, here made once by Python's own numbers
    assert rows.tolist() == [[0, 37_356, 148_215], [0, 65_113, 48_198]]


def test_ngrams_are_spread_evenly_over_the_buckets() -> None:
    """Of all pairs of 300 tokens each of 997 buckets has its share; a chi-square of 997 such counts has a mean of 996."""
    made = NgramEmbedding([2], buckets=997, d_model=1)
    made.table.data = torch.arange(997.0).unsqueeze(1)
    pairs = torch.cartesian_prod(torch.arange(300), torch.arange(300))
    counts = made(pairs)[:, 1, 0].long().bincount(minlength=997).float()
    expected = len(pairs) / 997
    assert ((counts - expected).square() / expected).sum() < 996 + 5 * (2 * 996) ** 0.5


def test_ngrams_that_were_never_trained_add_nothing() -> None:
    torch.manual_seed(0)
    plain = EncoderOnly(50, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1)).eval()
    torch.manual_seed(0)
    made = EncoderOnly(50, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, ngrams=Ngrams([2, 3]))).eval()
    tokens = torch.randint(0, 50, (3, 12))
    assert torch.equal(made(tokens), plain(tokens))
    made.train()(tokens).square().sum().backward()
    assert made.ngram_embedding is not None and made.ngram_embedding.table.grad is not None
    assert made.ngram_embedding.table.grad.any()


def test_a_dropped_ngram_is_dropped_wherever_it_stands() -> None:
    made = embedding([2], buckets=100_000, dropout=0.4)
    tokens = torch.randperm(2000).repeat(2).view(2, -1)
    embedded = made(tokens)[:, 1:]
    assert torch.equal(embedded[0], embedded[1])
    dropped = (embedded[0] == 0).all(dim=-1)
    assert 0.35 < dropped.float().mean() < 0.45
    whole = made.eval()(tokens)[0, 1:]
    torch.testing.assert_close(embedded[0][~dropped], whole[~dropped] / 0.6, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("orders", "buckets", "said"),
    [
        ([1], 10, "orders` must be different numbers of tokens, at least 2"),
        ([2, 2], 10, "orders"),
        ([2], 0, "buckets` must be at"),
    ],
)
def test_what_cannot_be_is_refused(orders: list[int], buckets: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"model.ngrams.{said}"):
        EncoderOnly(9, EncoderOnlyOptions(ngrams=Ngrams(orders, buckets)))


@pytest.mark.parametrize("dropout", [-0.5, 1.0, float("nan")])
def test_a_dropout_that_cannot_be_is_refused_by_its_key(dropout: float) -> None:
    with pytest.raises(ValueError, match=r"`model.ngrams.dropout` must be at least 0 and below 1, but is"):
        Ngrams([2], dropout=dropout)
