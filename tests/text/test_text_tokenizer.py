"""Tokenizers: nothing is lost, nothing is special by accident, nothing is random."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from polyformer.text import BOS, EOS, KINDS, PAD, SPECIALS, UNK, Assets, Tokenizer, TokenizerSettings, train_tokenizer

NASTY = [
    "",
    " ",
    "a  b",
    "  leading and trailing  ",
    'don\'t ,  "x" .',
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family \u2764\ufe0f",
    "e\u0301 e\u0308\u0304 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "  \u4f60\u597d hello\u4f60",
    "\u3053\u308c\u306f\u30c6\u30b9\u30c8\u3067\u3059\u3002",
    "<pad> <eos><unk> <bos> <0x41>",
    "\t\n\r\n x\u2028y\x85\x00\u00a0z",
    "\u2581x \u2581",
    "\ufeffx\U0010ffff",
]
TEXTS = ["the cat sat on the mat, and the dog sat on the cat.", "Ein Hund l\u00e4uft \u00fcber die Stra\u00dfe!"] * 5
EXACT = ("bpe", "byte_bpe", "unigram", "byte")


def make(kind: str, texts: list[str] = TEXTS, vocab_size: int = 340, min_frequency: int = 1) -> Tokenizer:
    settings = TokenizerSettings(kind=kind, vocab_size=vocab_size, min_frequency=min_frequency)  # type: ignore[arg-type]
    return train_tokenizer(texts, settings, progress=False)


def lines(path: Path, most: int) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as handle:
        return [line.rstrip("\n") for line, _ in zip(handle, range(most), strict=False)]


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("text", NASTY)
def test_text_never_seen_comes_back(kind: str, text: str) -> None:
    tokenizer = make(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert min(ids, default=4) > EOS
    assert tokenizer.encode_batch([text, "x"])[0] == ids


@pytest.mark.parametrize("kind", ["wordpiece", "character"])
def test_text_of_known_characters_comes_back(kind: str) -> None:
    tokenizer = make(kind, NASTY, vocab_size=4000)
    for text in NASTY:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["word", "word_punctuation"])
def test_words_come_back_with_single_spaces(kind: str) -> None:
    text = '  don\'t ,  "x" .\t(U.S.)'
    tokenizer = make(kind, [text])
    assert tokenizer.decode(tokenizer.encode(text)) == 'don\'t , "x" . (U.S.)'


@pytest.mark.parametrize("kind", KINDS)
def test_real_text_comes_back(kind: str, corpora: Path) -> None:
    texts = lines(corpora / "multi30k" / "train.de.gz", 300) + lines(corpora / "tatoeba" / "eng-cmn.tsv.gz", 300)
    tokenizer = make(kind, texts, vocab_size=6000)
    expected = [" ".join(text.split()) for text in texts] if kind.startswith("word_") or kind == "word" else texts
    assert tokenizer.decode_batch(tokenizer.encode_batch(texts)) == expected


def test_ptb_has_the_published_counts(corpora: Path) -> None:
    texts = lines(corpora / "ptb" / "ptb.valid.txt.gz", 10**6)
    tokenizer = make("word", texts, vocab_size=20_000)
    encoded = tokenizer.encode_batch(texts)
    assert sum(map(len, encoded)) == 70_390
    assert sum(ids.count(UNK) for ids in encoded) == sum(text.split().count("<unk>") for text in texts)
    assert tokenizer.decode(encoded[1]) == texts[1].strip()


@pytest.mark.parametrize("kind", ["word", "word_punctuation"])
def test_a_written_unk_is_unknown_to_words(kind: str) -> None:
    tokenizer = make(kind, ["the <unk> of <unk>", "<unk> the"])
    assert tokenizer.encode("<unk> the <unk>") == [UNK, *tokenizer.encode("the"), UNK]
    assert len([piece for piece in tokenizer.pieces("<unk> the") if "unk" in piece]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_written_special_tokens_are_text(kind: str) -> None:
    tokenizer = make(kind, ["a <pad> b <eos> <bos>", "<pad><eos>"] * 9, vocab_size=400)
    for text in ("<pad>", "a <pad><eos> <bos>", "<eos>b"):
        assert not {PAD, BOS, EOS} & set(tokenizer.encode(text))
    assert tokenizer.decode([BOS, *tokenizer.encode("a <pad>"), EOS, PAD]) == "a <pad>"


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_gives_the_same_tokenizer(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.kind, len(loaded), loaded.fingerprint) == (kind, len(tokenizer), tokenizer.fingerprint)
    assert loaded.encode(TEXTS[1]) == tokenizer.encode(TEXTS[1])
    assert train_tokenizer([], TokenizerSettings(path=str(tmp_path / "tokenizer.json"))).fingerprint == tokenizer.fingerprint


CODE = """
import sys
from polyformer.text import KINDS, TokenizerSettings, train_tokenizer
words = [(a, b, c) for a in ("cat", "mouse", "horse") for b in ("run", "walk") for c in ("fast", "slowly.")]
texts = [f"{a} {b}{a[::-1]}, {c}" for a, b, c in words] * 3
for kind in KINDS:
    print(train_tokenizer(texts, TokenizerSettings(kind=kind, vocab_size=310), progress=False).fingerprint)
"""


def test_training_is_the_same_in_every_process_on_any_number_of_threads() -> None:
    source = Path(__file__).resolve().parents[2] / "src" / "platform"
    found = set()
    for threads in ("1", "2", "4"):
        environment = {**os.environ, "PYTHONPATH": str(source), "RAYON_NUM_THREADS": threads}
        found.add(subprocess.run([sys.executable, "-c", CODE], env=environment, check=True, capture_output=True).stdout)
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_dropout_changes_the_cut_and_nothing_else(kind: str) -> None:
    tokenizer = make(kind)
    before, text = tokenizer.to_json(), TEXTS[0] + " \U0001f600  x"
    whole = tokenizer.encode(text)
    assert tokenizer.with_dropout(0.0).encode(text, seed=1) == whole
    dropping = tokenizer.with_dropout(0.3)
    cuts = dropping.encode_batch([text] * 8, range(8))
    assert len({tuple(cut) for cut in cuts}) > 1
    assert all(tokenizer.decode(cut) == text for cut in cuts)
    assert tokenizer.with_dropout(0.3).encode(text, seed=5) == cuts[5]
    assert tokenizer.encode(text) == whole and tokenizer.to_json() == before
    assert '"dropout": null' in before


def test_lower_case_is_in_the_tokens() -> None:
    settings = TokenizerSettings(vocab_size=300, lowercase=True, min_frequency=1)
    tokenizer = train_tokenizer(["Ein HUND"], settings, progress=False)
    assert tokenizer.decode(tokenizer.encode("EIN Hund")) == "ein hund"


def test_rare_characters_become_bytes() -> None:
    tokenizer = train_tokenizer(["aa bb \u4f60"] + ["aa bb"] * 3, TokenizerSettings(vocab_size=300), progress=False)
    assert tokenizer.pieces("\u4f60") == ["<0xE4>", "<0xBD>", "<0xA0>"]
    assert tokenizer.decode(tokenizer.encode("\u4f60")[:2]) == "\ufffd"


def test_pieces_and_unknown_words_can_be_looked_at() -> None:
    tokenizer = make("word", ["the cat"])
    assert tokenizer.pieces("the cat") == ["\u2581the", "\u2581cat"]
    assert tokenizer.unknown_count("the dog sat") == 2
    assert tokenizer.decode(tokenizer.encode("the dog")) == "the <unk>"
    assert list(SPECIALS) == ["<pad>", "<unk>", "<bos>", "<eos>"]


def test_user_faults_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`kind` must be one of bpe, byte_bpe, .*, but is 'bpee'"):
        TokenizerSettings(kind="bpee")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`min_frequency` must be at least 1, but is 0"):
        TokenizerSettings(min_frequency=0)
    with pytest.raises(ValueError, match="`vocab_size` must be at least 5, but is 2"):
        TokenizerSettings(vocab_size=2)
    with pytest.raises(ValueError, match=r"`vocab_size` must be at least .* for kind bpe .*, but is 100"):
        make("bpe", vocab_size=100)
    with pytest.raises(ValueError, match=r"`vocab_size` must be at least .* for kind unigram .*, but is 100"):
        make("unigram", vocab_size=100)
    with pytest.raises(ValueError, match="all of it is empty"):
        make("bpe", [""])
    with pytest.raises(ValueError, match="needs a tokenizer of kind bpe and byte_bpe, but the kind is word"):
        make("word").with_dropout(0.1)
    with pytest.raises(ValueError, match=r"below 1, but is 1\.5"):
        make("bpe").with_dropout(1.5)
    with pytest.raises(ValueError, match=r"absent\.json: no tokenizer can be read here: No such file"):
        Tokenizer.load(tmp_path / "absent.json")
    for content, said in (("{", "broken JSON at line 1"), ("[1]", "not a tokenizer of Polyformer")):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(ValueError, match=rf"wrong\.json: .*{said}"):
            Tokenizer.load(tmp_path / "wrong.json")


def test_assets_pass_through_a_checkpoint(tmp_path: Path) -> None:
    shared = make("bpe")
    assets = Assets({"source": shared, "target": shared}, {"label": ["neg", "pos"]})
    torch.save(assets.to_dict(), tmp_path / "assets.pt")
    loaded = Assets.from_dict(torch.load(tmp_path / "assets.pt", weights_only=True))
    assert loaded.tokenizers["source"] is loaded.tokenizers["target"]
    assert len(assets.to_dict()["files"]) == 1
    assert loaded.fingerprint == assets.fingerprint != Assets({"source": shared}).fingerprint
    assert loaded.labels == assets.labels
    with pytest.raises(ValueError, match="no assets of a model"):
        Assets.from_dict({"tokenizers": {}})
