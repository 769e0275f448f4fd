"""Text to be masked: rows, other masks in each epoch and alike in any batch, texts of other documents, sources."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.data import BatchSettings, MaskedBatch, MaskedTextData, MaskingSettings, TextTokenizerSettings
from polyformer.text import BOS, EOS, PAD, UNK

MANY = "the quick brown fox jumps over a lazy dog while seven wizards mix black quartz"


def documents(count: int = 40) -> list[str]:
    words = MANY.split()
    return [" ".join(words[(number * step) % 14] for step in range(1, 4 + number % 37)) for number in range(count)]


def texts(folder: Path, lines: list[str] | None = None) -> str:
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines or documents()), encoding="utf-8")
    return str(folder / "a.txt")


def masked_data(train: Any, workers: int = 0, **arguments: Any) -> MaskedTextData:
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1)
    batches = BatchSettings(arguments.pop("tokens", 100), evaluation_tokens=arguments.pop("evaluation", 70), workers=workers)
    return MaskedTextData(train, **{"max_length": 16, "tokenizer": tokenizer, "batches": batches, **arguments})


def rows_of(batches: Any) -> dict[int, tuple[list[int], list[int], float | None]]:
    """Example number -> its tokens, targets, and whether the second text follows."""
    found: dict[int, tuple[list[int], list[int], float | None]] = {}
    for batch in batches:
        for row, number in enumerate(batch.index.tolist()):
            kept = slice(None) if batch.keep is None else batch.keep[row]
            follows = None if batch.follows is None else float(batch.follows[row])
            assert number not in found
            found[number] = batch.tokens[row][kept].tolist(), batch.target[row][kept].tolist(), follows
    return found


def whole_texts(data: MaskedTextData, batches: Any) -> dict[int, str]:
    """The text of every row without its masks; checks that a row is BOS, text, EOS, and that no mark is masked."""
    found = {}
    for number, (tokens, target, _) in rows_of(batches).items():
        assert tokens[0] == BOS and tokens[-1] == EOS and not {BOS, EOS} & {*tokens[1:-1], *target}
        assert any(target)
        ids = [old or new for new, old in zip(tokens, target, strict=True)]
        assert PAD not in ids
        found[number] = data.assets.tokenizers["text"].decode(ids)
    return found


def test_rows_are_the_text_in_pieces(tmp_path: Path) -> None:
    data = masked_data(texts(tmp_path))
    for batches in (data.train_dataloader(), data.evaluation_loader("train")):
        found = whole_texts(data, batches)
        pieces = [found[number] for number in range(len(found))]
        assert " ".join(pieces) == " ".join(documents())
        assert max(len(piece.split()) for piece in pieces) == 14
        assert min(len(piece.split()) for piece in pieces) >= 3
    assert str(data.reports["train"]) == f"{len(pieces)} examples"


def test_where_a_token_is_real_is_known_before_masking(tmp_path: Path) -> None:
    data = masked_data(texts(tmp_path), masking=MaskingSettings(share=0.5))
    for batch in data.train_dataloader():
        lengths = (batch.tokens == EOS).int().argmax(dim=1) + 1
        keep = torch.arange(batch.tokens.shape[1]) < lengths[:, None]
        assert bool(keep.all()) if batch.keep is None else torch.equal(batch.keep, keep)
        assert bool((batch.tokens == PAD)[keep].any())


@pytest.mark.parametrize("next_sentence", [False, True])
def test_each_epoch_masks_anew_and_can_be_repeated(tmp_path: Path, next_sentence: bool) -> None:
    path = texts(tmp_path)
    loaders = [masked_data(path, next_sentence=next_sentence).training_loader(0, 1) for _ in range(2)]
    epochs = [[rows_of(loader) for _ in range(3)] for loader in loaders]
    assert epochs[0] == epochs[1]
    for place in (1, 2):
        changed = sum(epochs[0][place][number][1] != row[1] for number, row in epochs[0][0].items())
        assert changed > 0.8 * len(epochs[0][0])
    other = masked_data(path, next_sentence=next_sentence)
    other.seed = 1
    assert rows_of(other.training_loader(0, 1)) != epochs[0][0]


@pytest.mark.parametrize("next_sentence", [False, True])
def test_masks_depend_on_neither_batches_nor_workers_nor_ranks(tmp_path: Path, next_sentence: bool) -> None:
    path = texts(tmp_path)
    expected = rows_of(masked_data(path, next_sentence=next_sentence).training_loader(0, 1))
    for arguments in ({"tokens": 20}, {"tokens": 10_000}, {"workers": 2}):
        assert rows_of(masked_data(path, next_sentence=next_sentence, **arguments).training_loader(0, 1)) == expected
    parts = [rows_of(masked_data(path, next_sentence=next_sentence).training_loader(rank, 2)) for rank in range(2)]
    assert parts[0] | parts[1] == expected and not parts[0].keys() & parts[1].keys()


@pytest.mark.parametrize("next_sentence", [False, True])
def test_evaluation_is_always_the_same(tmp_path: Path, next_sentence: bool) -> None:
    path = texts(tmp_path)
    expected = rows_of(masked_data(path, validation=path, next_sentence=next_sentence).val_dataloader())
    for arguments in ({"evaluation": 5}, {"evaluation": 10_000}, {"workers": 2}):
        data = masked_data(path, validation=path, next_sentence=next_sentence, **arguments)
        data.seed = 7
        assert rows_of(data.val_dataloader()) == rows_of(data.val_dataloader()) == expected


def test_resuming_goes_on_with_the_same_masks(tmp_path: Path) -> None:
    path = texts(tmp_path)
    whole = masked_data(path).training_loader(0, 1)
    expected = [batch for _ in range(2) for batch in whole]
    begun = masked_data(path).training_loader(0, 1)
    served = iter(begun)
    for _ in range(3):
        next(served)
    resumed = masked_data(path).training_loader(0, 1)
    resumed.load_state_dict(begun.state_dict())
    rest = [batch for _ in range(2) for batch in resumed]
    assert len(rest) == len(expected) - 3
    for one, other in zip(rest, expected[3:], strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.target, other.target)


def test_single_tokens_where_words_need_not_be_whole(tmp_path: Path) -> None:
    path = texts(tmp_path, [" wwwwwww" * 30] * 20)
    tokenizer = TextTokenizerSettings(kind="byte")
    shares = []
    for whole in (True, False):
        masking = MaskingSettings(whole_words=whole)
        data = masked_data(path, tokenizer=tokenizer, masking=masking, max_length=66)
        found = rows_of(data.train_dataloader()).values()
        words = [target[at : at + 8] for _, target, _ in found for at in range(1, len(target) - 1, 8)]
        shares.append(np.mean([word.count(PAD) in (0, 8) for word in words]))
    assert shares[0] == 1.0 and shares[1] < 0.6


# ---- next sentences


def test_half_of_the_second_texts_are_of_another_document(tmp_path: Path) -> None:
    lines = [" ".join(f"{name}{number}" for number in range(60)) for name in "abcdefghij"]
    data = masked_data(texts(tmp_path, lines), next_sentence=True)
    assert data.assets.labels == {"next": ["no", "yes"]}
    lengths, shares = data.lengths("train"), []
    decode = data.assets.tokenizers["text"].decode
    for _ in range(4):
        found = rows_of(data.train_dataloader())
        for number, (tokens, target, follows) in found.items():
            ids = [old or new for new, old in zip(tokens, target, strict=True)]
            first, second = (decode(part).split() for part in (ids[1 : ids.index(EOS)], ids[ids.index(EOS) : -1]))
            assert first and second and ids.count(EOS) == 2 and len(ids) == lengths[number] <= 16
            assert len({word[0] for word in (*first, *second)}) == (1 if follows else 2)
            if follows:
                assert int(second[0][1:]) == int(first[-1][1:]) + 1
        shares.append(np.mean([follows for _, _, follows in found.values()]))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.12) and len(set(shares)) > 1


def test_segments_are_those_of_a_pair(tmp_path: Path) -> None:
    batch: MaskedBatch = next(iter(masked_data(texts(tmp_path), next_sentence=True).train_dataloader()))
    assert batch.segment is not None
    ends = (batch.tokens == EOS).int().argmax(dim=1)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.keep is None else batch.keep
    assert torch.equal((torch.arange(batch.tokens.shape[1]) > ends[:, None]) & real, batch.segment == 1)


def test_the_length_of_a_text_does_not_tell_whether_it_follows(tmp_path: Path) -> None:
    lines = [" ".join([f"w{number}"] * (3 + number)) for number in range(200)]
    data = masked_data(texts(tmp_path, lines), next_sentence=True, max_length=300, tokens=10_000)
    for tokens, _, _ in rows_of(data.train_dataloader()).values():
        first, second = tokens.index(EOS) - 1, len(tokens) - tokens.index(EOS) - 2
        assert abs(first - second) <= 1 or len(tokens) > 195  # the longest ones have no others of their length


def test_documents_without_two_tokens_are_left_out(tmp_path: Path) -> None:
    data = masked_data(texts(tmp_path, ["a b c", "", "a", "  ", "c d"]), next_sentence=True)
    assert len(rows_of(data.train_dataloader())) == 2
    assert str(data.reports["train"]) == "2 examples; dropped: 3 with an empty field"


# ---- sources


def test_lines_files_tables_and_patterns(tmp_path: Path) -> None:
    lines = documents(9)
    path = texts(tmp_path, lines)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": line, "label": 1}) + "\n" for line in lines))
    for number in range(3):
        (tmp_path / f"part{number}.txt").write_text("\n".join(lines[3 * number : 3 * number + 3]) + "\n")
    expected = whole_texts(data := masked_data(path), data.train_dataloader())
    for location in (
        str(tmp_path / "a.jsonl"),
        str(tmp_path / "part*.txt"),
        [str(tmp_path / f"part{n}.txt") for n in range(3)],
    ):
        data = masked_data(location)
        assert whole_texts(data, data.train_dataloader()) == expected
        assert data.contents("train")
    data = masked_data(str(tmp_path / "part*.txt"), document="file")
    found = whole_texts(data, data.train_dataloader())
    assert " ".join(found[number] for number in range(len(found))) == " ".join(lines)
    assert len(found) < len(expected)


def test_a_document_longer_than_a_part_loses_nothing(tmp_path: Path) -> None:
    text = " ".join(f"w{number}" for number in range(9000))
    (tmp_path / "b.txt").write_text(text)
    tokenizer = TextTokenizerSettings(kind="word", min_frequency=1, vocab_size=10_000)
    data = masked_data(str(tmp_path / "b.txt"), document="file", max_length=100, tokenizer=tokenizer, tokens=5000)
    found = whole_texts(data, data.train_dataloader())
    assert " ".join(found[number] for number in range(len(found))) == text
    assert min(len(found[number].split()) for number in found) > 45
    share = masked_data(str(tmp_path / "b.txt"), document="file", max_length=100, tokenizer=tokenizer, validation_share=0.4)
    counts = [len(rows_of(share.evaluation_loader(split))) for split in ("train", "validation")]
    assert min(counts) > 10 and abs(sum(counts) - len(found)) <= 4


def test_what_is_held_out_is_on_one_side_only(tmp_path: Path) -> None:
    lines = [f"film number {number % 150} is long" for number in range(300)]
    path = texts(tmp_path, lines)
    data = masked_data(path, validation_share=0.2, tokenizer=TextTokenizerSettings(kind="word", min_frequency=1))
    train = whole_texts(data, data.train_dataloader())
    held_out = {decoded for decoded in whole_texts(data, data.val_dataloader()).values() if "<unk>" not in decoded}
    assert not set(train.values()) & held_out
    assert len(train) + len(data.dataset("validation")) == 300 and 30 < len(data.dataset("validation")) < 90
    assert data.contents("validation") != data.contents("train")


def test_user_faults_are_named(tmp_path: Path) -> None:
    path = texts(tmp_path, ["a b c d e f"])
    with pytest.raises(ValueError, match=r"`data\.max_length` must be at least 5, but is 4"):
        masked_data(path, max_length=4)
    with pytest.raises(ValueError, match=r"`data\.masking\.share` must be above 0 and below 1, but is 1\.0"):
        MaskingSettings(share=1.0)
    with pytest.raises(ValueError, match=r"`data\.validation_share` must be above 0 and below 1, but is 2"):
        masked_data(path, validation_share=2)
    with pytest.raises(ValueError, match=r"`data\.next_sentence` needs at least two documents, but there is one"):
        masked_data(path, next_sentence=True).train_dataloader()
    without, other = masked_data(path), masked_data(texts(tmp_path), next_sentence=True)
    other.use_assets(without.assets)
    with pytest.raises(ValueError, match=r"`data\.next_sentence` is True, but the model was trained with the opposite"):
        other.train_dataloader()
    with pytest.raises(ValueError, match=r"no column 'review'"):
        (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
        masked_data(str(tmp_path / "a.jsonl"), text="review").train_dataloader()


def test_an_unknown_word_is_text_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("zzz yyy xxx\n")
    data = masked_data(texts(tmp_path), validation=str(tmp_path / "b.txt"))
    ((tokens, target, _),) = rows_of(data.val_dataloader()).values()
    assert len(tokens) == 5 and UNK in target
