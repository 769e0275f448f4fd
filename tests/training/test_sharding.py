"""Two ranks that each keep a part of every weight train as one that keeps all, and leave the same checkpoints."""

import io
from pathlib import Path

import pytest
import torch

from polyformer.cli import main
from polyformer.errors import UsageError

from ..cli.small import fit, metrics_of, results_of
from ..ranks import run_on_ranks

TRANSLATION = """
task: {class_path: Translation, init_args: {search: {beam: 1, max_ratio: 0.1, max_extra: 3}}}
model: {d_model: 18, num_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0, position: T5Bias}
data:
  class_path: SpelledNumbers
  init_args:
    train_count: 151
    evaluation_count: 3
    tokenizer: {kind: character}
    batches: {tokens: 150, evaluation_tokens: 200}
training: {optimizer: {class_path: FusedAdamW, init_args: {lr: 0.002}}, schedule: Constant, averaging: {kind: last, count: 2}}
trainer: {max_steps: 20, val_check_interval: 20, gradient_clip_val: 0.5, accelerator: cpu, log_every_n_steps: 1}
"""
"""All embeddings and the output layer are one matrix, and the widths of vocabulary and heads are not to be halved."""

LANGUAGE_MODEL = """
task: LanguageModeling
model: {d_model: 16, num_heads: 2, num_layers: 1, max_length: 32, dropout: 0.0, tied: false, checkpointing: true}
data:
  class_path: PythonLibrary
  init_args: {limit_megabytes: 0.03, window: 32, tokenizer: {kind: bpe, vocab_size: 301}, batches: {tokens: 96}}
training: {optimizer: {class_path: SGD, init_args: {lr: 0.5, momentum: 0.9}}, schedule: Constant}
trainer: {max_steps: 8, val_check_interval: 8, gradient_clip_val: 0.5, accumulate_grad_batches: 2, accelerator: cpu,
  log_every_n_steps: 1}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for runs, with a cache of its own."""
    monkeypatch.setenv("POLYFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def fit_sharded(place: Path, run: Path, *words: str, config: str) -> None:
    """`platform fit` by two ranks."""
    (place / "sharded.yaml").write_text(config)
    begin = ["--resume"] if run.exists() else ["--config", str(place / "sharded.yaml")]
    run_on_ranks(["fit", "--run", str(run), *begin, *words, "--debug"], place, strategy="fsdp")


def assert_same(one: Path, other: Path) -> None:
    """Fails unless losses, metrics and results of two runs are the same but for rounding."""
    rows, others = metrics_of(one), metrics_of(other)
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, twin in zip(rows, others, strict=True):
        for name in (name for name in row if row[name]):
            assert float(twin[name]) == pytest.approx(float(row[name]), rel=2e-6, abs=1e-9), (row["step"], name)
    assert results_of(other)["metrics"] == pytest.approx(results_of(one)["metrics"], rel=1e-5)
    for name in ("task", "model", "parameters", "tokens"):
        assert results_of(one)[name] == results_of(other)[name]


def storages(weights: dict[str, torch.Tensor]) -> list[list[str]]:
    """The names of weights that are one tensor."""
    found: dict[int, list[str]] = {}
    for name, value in weights.items():
        found.setdefault(value.data_ptr(), []).append(name)
    return sorted(found.values())


def test_shards_train_as_one_and_one_rank_goes_on_and_predicts(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, sharded = place / "whole", place / "sharded"
    assert fit(place, config=TRANSLATION, name="whole") == 0
    fit_sharded(place, sharded, config=TRANSLATION)
    assert_same(whole, sharded)
    contents = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, sharded)]
    for one, other in (contents, [content["optimizer_states"][0]["state"] for content in contents]):
        assert one.keys() == other.keys()
    assert storages(contents[0]["state_dict"]) == storages(contents[1]["state_dict"])
    assert contents[0]["optimizer_states"][0]["param_groups"] == contents[1]["optimizer_states"][0]["param_groups"]
    longer = ["--trainer.max_steps", "22", "--trainer.devices", "1", "--trainer.strategy", "auto"]
    for run in (whole, sharded):
        assert main(["fit", "--run", str(run), "--resume", *longer, "--debug"]) == 0
    assert_same(whole, sharded)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"four hundred and two\n"), encoding="utf-8"))
    assert main(["predict", "--ckpt_path", str(sharded)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_shards_go_on_with_what_one_rank_began(place: Path) -> None:
    """With accumulation, blocks computed again in the backward pass, momentum, and an output layer of its own."""
    whole, sharded = place / "whole", place / "sharded"
    assert fit(place, config=LANGUAGE_MODEL, name="whole") == 0
    assert fit(place, "--trainer.max_steps", "4", config=LANGUAGE_MODEL, name="sharded") == 0
    fit_sharded(place, sharded, "--trainer.max_steps", "8", config=LANGUAGE_MODEL)
    rows = {run: {row["step"]: row for row in metrics_of(run) if row["train/loss"]} for run in (whole, sharded)}
    for step, row in rows[whole].items():
        assert float(rows[sharded][step]["train/loss"]) == pytest.approx(float(row["train/loss"]), rel=2e-6), step
    assert results_of(sharded)["metrics"] == pytest.approx(results_of(whole)["metrics"], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.averaging.kind", "ema"], "`training.averaging.kind` ema keeps whole weights"),
        (["--training.averaging.kind", "swa"], "`training.averaging.kind` swa keeps whole weights"),
        (["--training.optimizer", "MuonAdamW"], "`training.optimizer` MuonAdamW makes whole matrices"),
        (["--trainer.strategy", "fsdp_cpu_offload"], "but is fsdp_cpu_offload"),
    ],
)
def test_what_needs_whole_weights_is_refused(words: list[str], message: str, place: Path) -> None:
    with pytest.raises((ValueError, UsageError), match=message):
        fit(place, "--trainer.strategy", "fsdp", *words, config=TRANSLATION)
    assert not (place / "cache" / "datasets").exists()  # before any work on data
