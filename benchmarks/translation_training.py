"""Translation training as each toolkit's documentation says: four networks, one loop.

All have pre-norm or post-norm layers as is their toolkit's habit, one matrix for all embeddings, ReLU, and dropout at
every place the toolkit has for it. The loop, the optimizer and the clipping of gradients are the same for all.
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from translation_work import BOS, EOS, PAD, Batch, Sizes

__all__ = ["TRAINERS", "build_trainer", "train"]


class Contender(nn.Module):
    """A network that knows its loss: the mean over the real target tokens of a batch, in nats."""

    def loss(self, batch: Batch) -> Tensor:
        raise NotImplementedError


class Polyformer(Contender):
    """Ours, as `tasks/translation.py` uses it: only real tokens reach the output layer."""

    def __init__(self, sizes: Sizes) -> None:
        from polyformer.models import EncoderDecoder, EncoderDecoderOptions
        from polyformer.training.losses import linear_cross_entropy
        from polyformer.training.memory import keep_freed_memory

        super().__init__()
        keep_freed_memory()
        options = EncoderDecoderOptions(d_model=sizes.d_model, num_heads=sizes.num_heads, dropout=sizes.dropout)
        self.sizes, self.linear_cross_entropy = sizes, linear_cross_entropy
        self.network = EncoderDecoder(sizes.vocabulary, sizes.vocabulary, options)

    def loss(self, batch: Batch) -> Tensor:
        hidden = self.network(batch.source, batch.inputs, batch.keep)  # (B, L, D)
        labels = batch.labels.flatten()  # (B L,)
        real = (labels != PAD).nonzero().squeeze(1)  # (N,)
        vectors, weight = hidden.flatten(0, 1).index_select(0, real), self.network.output_weight
        total = self.linear_cross_entropy(vectors, weight, labels[real], self.sizes.label_smoothing).loss
        return total / len(real)


class Torch(Contender):
    """`torch.nn.Transformer` with the embeddings of torch's own translation tutorial."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.d_model)
        nn.init.normal_(self.embedding.weight, std=sizes.d_model**-0.5)
        self.dropout = nn.Dropout(sizes.dropout)
        self.network = nn.Transformer(
            sizes.d_model,
            sizes.num_heads,
            sizes.num_layers,
            sizes.num_layers,
            sizes.feed_forward,
            sizes.dropout,
            batch_first=True,
            norm_first=True,
        )
        evens = torch.exp(torch.arange(0, sizes.d_model, 2) * (-math.log(10000.0) / sizes.d_model))
        angles = torch.arange(sizes.max_length).unsqueeze(1) * evens
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))

    def embed(self, tokens: Tensor) -> Tensor:
        positions = self.get_buffer("positions")[: tokens.shape[1]]
        return self.dropout(self.embedding(tokens) * math.sqrt(self.sizes.d_model) + positions)

    def loss(self, batch: Batch) -> Tensor:
        length, keep = batch.inputs.shape[1], batch.keep
        padding = None if keep is None else ~keep
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = self.network(
            self.embed(batch.source),
            self.embed(batch.inputs),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return smoothed(hidden @ self.embedding.weight.t(), batch, self.sizes)


class Marian(Contender):
    """Hugging Face's Marian architecture, the one of its Opus-MT models."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.network = marian_network(sizes)

    def loss(self, batch: Batch) -> Tensor:
        mask = None if batch.keep is None else batch.keep.long()
        out = self.network(input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.inputs, use_cache=False)
        return smoothed(out.logits, batch, self.sizes)


class XTransformers(Contender):
    """The wrappers of x-transformers, with one token embedding."""

    def __init__(self, sizes: Sizes) -> None:
        from x_transformers import Decoder, Encoder, TransformerWrapper
        from x_transformers.x_transformers import TokenEmbedding

        super().__init__()
        self.sizes = sizes
        embedding = TokenEmbedding(sizes.d_model, sizes.vocabulary)
        places = ("attn_dropout", "attn_sublayer_dropout", "ff_dropout", "ff_sublayer_dropout")
        layers = {
            "dim": sizes.d_model,
            "depth": sizes.num_layers,
            "heads": sizes.num_heads,
            "attn_dim_head": sizes.d_model // sizes.num_heads,
            "ff_mult": sizes.feed_forward // sizes.d_model,
            "ff_custom_activation": nn.ReLU(),
            **dict.fromkeys(places, sizes.dropout),
        }
        wrapper = {
            "num_tokens": sizes.vocabulary,
            "max_seq_len": sizes.max_length,
            "emb_dropout": sizes.dropout,
            "token_emb": embedding,
        }
        self.encoder = TransformerWrapper(**wrapper, return_only_embed=True, attn_layers=Encoder(**layers))
        self.decoder = TransformerWrapper(**wrapper, tie_embedding=True, attn_layers=Decoder(**layers, cross_attend=True))

    def loss(self, batch: Batch) -> Tensor:
        memory = self.encoder(batch.source, mask=batch.keep)
        return smoothed(self.decoder(batch.inputs, context=memory, context_mask=batch.keep), batch, self.sizes)


def marian_network(sizes: Sizes) -> nn.Module:
    """A Marian network with random weights."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=sizes.vocabulary,
        d_model=sizes.d_model,
        encoder_layers=sizes.num_layers,
        decoder_layers=sizes.num_layers,
        encoder_attention_heads=sizes.num_heads,
        decoder_attention_heads=sizes.num_heads,
        encoder_ffn_dim=sizes.feed_forward,
        decoder_ffn_dim=sizes.feed_forward,
        dropout=sizes.dropout,
        attention_dropout=sizes.dropout,
        activation_dropout=sizes.dropout,
        activation_function="relu",
        scale_embedding=True,
        init_std=sizes.d_model**-0.5,
        max_position_embeddings=sizes.max_length,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return MarianMTModel(config)


def smoothed(logits: Tensor, batch: Batch, sizes: Sizes) -> Tensor:
    """Cross-entropy with label smoothing, padding left out, as torch offers it."""
    return F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD, label_smoothing=sizes.label_smoothing
    )


TRAINERS: dict[str, Callable[[Sizes], Contender]] = {
    "polyformer": Polyformer,
    "torch.nn.Transformer": Torch,
    "transformers": Marian,
    "x-transformers": XTransformers,
}


def build_trainer(name: str, precision: str = "float32") -> tuple[Contender, Callable[[Batch], float]]:
    """A network and what makes one step of training with it; a step returns its loss.

    Args:
        name: One of ``TRAINERS``.
        precision: "float32", or "bf16" for torch's autocast.
    """
    contender = TRAINERS[name](Sizes()).train()
    optimizer = torch.optim.AdamW(contender.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
            loss = contender.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(contender.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return contender, step


def train(name: str, batches: list[Batch], warm_up: int, precision: str) -> dict[str, object]:
    """Trains on all batches, the first ``warm_up`` of them untimed: target tokens per second, first and last loss."""
    _, step = build_trainer(name, precision)
    losses, seconds = [], []
    for batch in batches:
        begin = time.perf_counter()
        losses.append(step(batch))
        seconds.append(time.perf_counter() - begin)
    tokens = [batch.target_tokens for batch in batches]
    rate = sum(tokens[warm_up:]) / sum(seconds[warm_up:])
    return {"rate": rate, "first_loss": losses[0], "last_loss": losses[-1], "seconds": seconds, "tokens": tokens}
