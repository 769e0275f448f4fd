"""Tests of differences on the test set, by made-up runs: which test is made, and when there is none."""

import random
from pathlib import Path

import pytest
import sacrebleu

from polyformer.experiments.statistics import mcnemar

from .made_up import examples_of_answers, made_up
from .test_compare import compared, language_model


def reversed_words(text: str) -> str:
    return " ".join(reversed(text.split()))


def test_translations_are_tested_by_sacrebleu_with_the_runs_own_signature(tmp_path: Path) -> None:
    chance = random.Random(5)
    references = [" ".join(chance.choices(["a", "b", "c", "d", "e", "f", "g", "h"], k=9)) for _ in range(40)]
    outputs = [[reversed_words(text) if chance.random() < share else text for text in references] for share in (0.6, 0.2)]
    runs = []
    for name, written in zip(("Rotary", "Learned"), outputs, strict=True):
        lines = [{"input": "s", "reference": true, "output": made} for true, made in zip(references, written, strict=True)]
        runs.append(made_up(tmp_path, name, name, examples=lines))
    (verdict,) = compared(*runs).verdicts
    bleu, chrf = verdict.figures
    assert [bleu.first, bleu.second] == [sacrebleu.corpus_bleu(written, [references]).score for written in outputs]
    assert bleu.p < 0.05 and chrf.what == "chrF"
    assert verdict.examples and all(example.first != example.second for example in verdict.examples)


def test_the_tokenization_of_bleu_is_named_and_said_to_be_that_of_the_first(tmp_path: Path) -> None:
    lines = [{"input": "s", "reference": "a b", "output": f"a {number}"} for number in range(12)]
    first = made_up(tmp_path, "a", "Rotary", examples=lines)
    (alike,) = compared(first, made_up(tmp_path, "b", "Learned", examples=lines)).verdicts
    other = {"bleu": "nrefs:1|tok:zh|version:2.6.0"}
    (unlike,) = compared(first, made_up(tmp_path, "c", "Learned", examples=lines, signatures=other)).verdicts
    assert alike.method.endswith("BLEU with tok:13a")
    assert unlike.method.endswith("BLEU with tok:13a for both, though the second was measured with tok:zh")


def test_answers_are_tested_by_mcnemar_and_disagreements_shown(tmp_path: Path) -> None:
    first = [True] * 20 + [False] * 15 + [True] * 4
    second = [True] * 20 + [True] * 15 + [False] * 4
    runs = [made_up(tmp_path, name, name, examples=examples_of_answers(right)) for name, right in (("A", first), ("B", second))]
    (verdict,) = compared(*runs).verdicts
    assert verdict.figures[0].p == mcnemar(4, 15)
    assert "only the first is right on 4, only the second on 15 of 39" in verdict.figures[0].said
    assert {example.number for example in verdict.examples} <= set(range(20, 39)) and len(verdict.examples) == 9


def test_documents_are_tested_per_byte_whatever_the_tokens(tmp_path: Path) -> None:
    chance = random.Random(1)
    nats = [chance.uniform(50, 100) for _ in range(60)]
    lines = [[{"input": "d", "nats": one * factor, "tokens": 9, "bytes": 40} for one in nats] for factor in (1.0, 0.97)]
    runs = [language_model(tmp_path, name, name, 1.5, examples=own) for name, own in zip(("bpe", "word"), lines, strict=True)]
    (verdict,) = compared(*runs).verdicts
    loss, signs = verdict.figures
    assert loss.second / loss.first == pytest.approx(0.97) and loss.p < 0.01
    assert (signs.first, signs.second) == (0.0, 1.0)


def test_tests_are_made_for_each_seed_that_both_have(tmp_path: Path) -> None:
    right = examples_of_answers([True, False] * 8)
    runs = [made_up(tmp_path, f"{name}{seed}", name, seed, examples=right) for name in "AB" for seed in (0, 1)]
    verdicts = compared(*runs).verdicts
    assert [verdict.seeds for verdict in verdicts] == [(0, 0), (1, 1)]


def test_without_outputs_the_command_that_makes_them_is_said(tmp_path: Path) -> None:
    (verdict,) = compared(made_up(tmp_path, "a", "Rotary"), made_up(tmp_path, "b", "Learned")).verdicts
    assert "platform test --ckpt_path" in verdict.refusal and "--examples" in verdict.refusal


def test_other_examples_are_not_tested(tmp_path: Path) -> None:
    one = made_up(tmp_path, "a", "Rotary", examples=examples_of_answers([True] * 12))
    two = made_up(tmp_path, "b", "Learned", examples=examples_of_answers([True] * 11))
    (verdict,) = compared(one, two).verdicts
    assert "not the same (12 and 11 of them)" in verdict.refusal


def test_other_texts_are_not_tested(tmp_path: Path) -> None:
    """Documents have nothing that would have been right: they are told by their texts."""
    texts = [
        [{"input": f"{word} {number}", "nats": 3.0, "tokens": 2, "bytes": 9} for number in range(12)] for word in ("a", "b")
    ]
    runs = [made_up(tmp_path, name, name, examples=lines) for name, lines in zip("AB", texts, strict=True)]
    (verdict,) = compared(*runs).verdicts
    assert "not the same" in verdict.refusal


def test_documents_that_a_tokenizer_changed_can_be_written_anew(tmp_path: Path) -> None:
    texts = [[{"input": word, "nats": 3.0, "tokens": 2, "bytes": 9}] * 12 for word in ("A", "a")]
    marks = {"test": "aaaa", "tokenizers": {}}
    runs = [made_up(tmp_path, name, name, examples=one, fingerprints=marks) for name, one in zip("AB", texts, strict=True)]
    (verdict,) = compared(*runs).verdicts
    assert f"platform test --ckpt_path {runs[1].path} --examples {runs[1].path}/test.jsonl.gz" in verdict.refusal


def test_examples_of_other_data_are_not_tested(tmp_path: Path) -> None:
    """Even where the labels happen to be the same."""
    right = examples_of_answers([True, False] * 8)
    runs = [made_up(tmp_path, name, name, examples=right, fingerprints={"test": name}) for name in "AB"]
    (verdict,) = compared(*runs).verdicts
    assert "not the same" in verdict.refusal


def test_a_run_that_had_no_test_is_to_be_given_data_for_one(tmp_path: Path) -> None:
    assert made_up(tmp_path, "a", settings={"data": {"test": None}}).anew.endswith(" --data.test FILE")
    assert made_up(tmp_path, "b", settings={"data": {"test": "test.tsv"}}).anew.endswith("b/test.jsonl.gz")
    assert made_up(tmp_path, "c").anew.endswith("c/test.jsonl.gz")
