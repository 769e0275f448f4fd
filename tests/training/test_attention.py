"""Attention weights with their tokens: of each part, layer by layer, and refused where there are none."""

from functools import partial
from typing import Any

import pytest
import torch

from polyformer.data import pair_batches
from polyformer.models import DecoderOnlyOptions, EncoderDecoderOptions
from polyformer.nn import LSTM, FullAttention, Linformer, Luong, NoPosition, SlidingWindow, recorded_weights
from polyformer.tasks.classification import Classification, ClassificationOptions
from polyformer.tasks.language_modeling import LanguageModeling
from polyformer.tasks.translation import Translation
from polyformer.text import Assets, TokenizerSettings, train_tokenizer
from polyformer.training.attention import attention_of

CHARACTERS = train_tokenizer(["abc "], TokenizerSettings(kind="character", min_frequency=1), progress=False)
SIZES: dict[str, Any] = {"d_model": 8, "num_heads": 2, "position": NoPosition}


def translator(**options: Any) -> Translation:
    assets = Assets({"source": CHARACTERS, "target": CHARACTERS})
    return Translation(assets, EncoderDecoderOptions(**SIZES, encoder_layers=2, decoder_layers=1, **options)).eval()


def classifier(**options: Any) -> Classification:
    assets = Assets({"text": CHARACTERS}, {"label": ["no", "yes"]})
    return Classification(assets, ClassificationOptions(**SIZES, num_layers=2, **options)).eval()


def test_each_part_has_the_weights_that_ran_in_it() -> None:
    task = translator()
    ids = [CHARACTERS.encode(text) for text in ("ab c", "ca")]
    (batch,) = pair_batches(ids[:1], ids[1:])
    with recorded_weights() as weights, torch.no_grad():
        task.network(batch.source, batch.target[:, :-1])
    read, written = ["a", "b", "\u00b7", "c", "<eos>"], ["c", "a", "<eos>"]
    encoder, decoder, cross = (attention_of(task, "ab c", "ca", part) for part in ("encoder", "decoder", "cross"))
    assert torch.equal(encoder.weights, torch.cat(weights[:2])) and encoder.layers == [0, 1]
    assert torch.equal(decoder.weights, weights[2]) and torch.equal(cross.weights, weights[3])
    assert (encoder.source, encoder.target) == (read, read) and (cross.source, cross.target) == (read, written)
    assert decoder.source == decoder.target == ["<bos>", "c", "a"]
    torch.testing.assert_close(cross.weights.sum(dim=-1), torch.ones(1, 2, 3))
    assert not any(module._forward_hooks for module in task.modules())


def test_without_a_target_it_is_the_translation() -> None:
    task = translator()
    shown = attention_of(task, "abc")
    pieces = CHARACTERS.pieces(task.answer(["abc"])[0].text)
    assert shown.target == [*(piece.replace("\u2581", "\u00b7") for piece in pieces), "<eos>"]
    assert shown.weights.shape == (1, 2, len(shown.target), 4)


def test_language_models_look_back() -> None:
    task = LanguageModeling(Assets({"text": CHARACTERS}), DecoderOnlyOptions(**SIZES, num_layers=1)).eval()
    shown = attention_of(task, "abc")
    assert shown.source == shown.target == ["<eos>", "a", "b", "c"]
    assert torch.equal(shown.weights > 0, torch.ones(1, 2, 4, 4).tril() > 0)


def test_pairs_of_texts_are_read_as_in_training() -> None:
    shown = attention_of(classifier(segments=2), "ab\tc")
    assert shown.source == ["<bos>", "a", "b", "<eos>", "c", "<eos>"] and shown.weights.shape == (2, 2, 6, 6)


def test_windows_are_shown_whole() -> None:
    shown = attention_of(classifier(mixer=partial(SlidingWindow, window=2)), "abcabcabcabc")
    at = torch.arange(14)
    assert torch.equal(shown.weights > 0, ((at[:, None] - at).abs() < 2).expand(2, 2, -1, -1))


def test_layers_without_weights_are_told() -> None:
    shown = attention_of(classifier(mixers=[FullAttention, LSTM]), "abc")
    assert shown.layers == [0] and shown.others == {1: "LSTM"} and shown.weights.shape == (1, 2, 5, 5)


def test_recurrent_translators_are_shown_by_their_one_head() -> None:
    task = translator(mixer=LSTM, cross=Luong)
    assert attention_of(task, "abc", "c").weights.shape == (1, 1, 2, 4)
    with pytest.raises(
        ValueError, match=r"LSTM in `encoder` keeps no attention weights of tokens; .*FullAttention.*SlidingWindow do"
    ):
        attention_of(task, "abc", "c", "encoder")


def test_weights_of_mixtures_are_no_weights_of_tokens() -> None:
    """Not even when there happen to be as many."""
    task = classifier(mixer=partial(Linformer, rank=5))
    with pytest.raises(ValueError, match="Linformer in `stack` keeps no attention weights of tokens"):
        attention_of(task, "abc")


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="`part` must be one of cross, encoder, decoder, but is stack"):
        attention_of(translator(), "abc", "a", "stack")
    with pytest.raises(ValueError, match="a target is for translators, but Classification reads a single text"):
        attention_of(classifier(), "abc", "a")
    with pytest.raises(ValueError, match="the text '' has no tokens to look at"):
        attention_of(translator(), "", "a")
