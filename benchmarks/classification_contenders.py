"""Classifiers as each toolkit's documentation builds them: one loop, the same batches, the same optimizer.

All have learned positions, GELU, and dropout on embeddings, attention weights, the outputs of both sublayers and the pooled
vector; Polyformer and torch also inside the feed-forward, where BERT has none. Layers are pre-norm or post-norm as is their
toolkit's habit. BERT and Polyformer decide by the first token's vector, torch by the mean of all, since nothing is won there
by the first; "polyformer, mean" does so too. BERT also has an embedding of segments, and a layer on the first token's vector:
with these it has 0.6 % more parameters.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from classification_work import Batch, Sizes
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CLASSIFIERS", "evaluate", "train"]


class Polyformer(nn.Module):
    """Ours, as `tasks/classification.py` uses it.

    Args:
        sizes: The network's.
        pooling: Name of what makes one vector of a text's.
    """

    def __init__(self, sizes: Sizes, pooling: str = "FirstToken") -> None:
        from polyformer import nn as parts
        from polyformer.models import EncoderOnly, EncoderOnlyOptions, initialize
        from polyformer.nn import Dropout, FeedForward, Learned
        from polyformer.training.memory import keep_freed_memory

        super().__init__()
        keep_freed_memory()
        options = EncoderOnlyOptions(
            d_model=sizes.d_model,
            num_heads=sizes.num_heads,
            num_layers=sizes.num_layers,
            max_length=sizes.max_length,
            dropout=sizes.dropout,
            position=Learned,
            feed_forward=partial(FeedForward, width=sizes.feed_forward, activation="gelu"),
        )
        self.network = EncoderOnly(sizes.vocabulary, options)
        self.pooling = getattr(parts, pooling)(options.shape(causal=False))
        self.dropout = Dropout(sizes.dropout)
        self.output = initialize(nn.Linear(self.pooling.width, sizes.labels), "gpt2")

    def forward(self, batch: Batch) -> Tensor:
        return self.output(self.dropout(self.network.pooled(self.pooling, batch.tokens, keep=batch.keep)))


class Torch(nn.Module):
    """`torch.nn.TransformerEncoder` as it comes: in evaluation it leaves padding out by itself."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.d_model)
        self.places = nn.Embedding(sizes.max_length, sizes.d_model)
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)
        self.dropout = nn.Dropout(sizes.dropout)
        layer = nn.TransformerEncoderLayer(
            sizes.d_model, sizes.num_heads, sizes.feed_forward, sizes.dropout, activation="gelu", batch_first=True
        )
        self.network = nn.TransformerEncoder(layer, sizes.num_layers)
        self.output = nn.Linear(sizes.d_model, sizes.labels)

    def forward(self, batch: Batch) -> Tensor:
        keep = batch.keep
        x = self.dropout(self.tokens(batch.tokens) + self.places.weight[: batch.tokens.shape[1]])  # (B, L, D)
        read = self.network(x, src_key_padding_mask=None if keep is None else ~keep)
        if keep is None:
            pooled = read.mean(dim=1)
        else:
            real = keep.unsqueeze(-1).float()  # (B, L, 1)
            pooled = (read * real).sum(dim=1) / real.sum(dim=1)
        return self.output(self.dropout(pooled))


class Bert(nn.Module):
    """Hugging Face's BERT architecture for classification, with torch's fused attention."""

    def __init__(self, sizes: Sizes) -> None:
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__()
        config = BertConfig(
            vocab_size=sizes.vocabulary,
            hidden_size=sizes.d_model,
            num_hidden_layers=sizes.num_layers,
            num_attention_heads=sizes.num_heads,
            intermediate_size=sizes.feed_forward,
            max_position_embeddings=sizes.max_length,
            hidden_dropout_prob=sizes.dropout,
            attention_probs_dropout_prob=sizes.dropout,
            num_labels=sizes.labels,
            attn_implementation="sdpa",
        )
        self.network = BertForSequenceClassification(config)

    def forward(self, batch: Batch) -> Tensor:
        mask = None if batch.keep is None else batch.keep.long()
        return self.network(input_ids=batch.tokens, attention_mask=mask).logits


CLASSIFIERS: dict[str, Callable[[Sizes], nn.Module]] = {
    "polyformer": Polyformer,
    "polyformer, mean": partial(Polyformer, pooling="Mean"),
    "torch.nn.TransformerEncoder": Torch,
    "transformers": Bert,
}


def train(name: str, batches: list[Batch], warm_up: int, precision: str) -> dict[str, object]:
    """Trains on all batches, the first ``warm_up`` of them untimed: real tokens per second, first and last loss."""
    device = batches[0].tokens.device.type
    classifier = CLASSIFIERS[name](Sizes()).to(device).train()
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16) if precision == "bf16" else nullcontext():
            logits = classifier(batch)
        loss = F.cross_entropy(logits.float(), batch.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(classifier.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return _timed(classifier, step, batches, warm_up)


def evaluate(name: str, batches: list[Batch], warm_up: int) -> dict[str, object]:
    """Classifies all batches, the first ``warm_up`` of them untimed: real tokens per second."""
    classifier = CLASSIFIERS[name](Sizes()).to(batches[0].tokens.device).eval()

    @torch.inference_mode()
    def step(batch: Batch) -> float:
        return float(F.cross_entropy(classifier(batch), batch.labels))

    return _timed(classifier, step, batches, warm_up)


def _timed(classifier: nn.Module, step: Callable[[Batch], float], batches: list[Batch], warm_up: int) -> dict[str, object]:
    losses, seconds = [], []
    is_cuda = batches[0].tokens.is_cuda
    for batch in batches:
        begin = time.perf_counter()
        losses.append(step(batch))
        if is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    tokens = [batch.real_tokens for batch in batches]
    return {
        "rate": sum(tokens[warm_up:]) / sum(seconds[warm_up:]),
        "parameters": sum(parameter.numel() for parameter in classifier.parameters()),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "seconds": seconds,
        "tokens": tokens,
        **({"peak": torch.cuda.max_memory_allocated() / 2**20} if is_cuda else {}),
    }
