"""Language models as each toolkit's documentation builds them: one loop, the same tokens, the same optimizer."""

import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from language_model_work import Sizes
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["TRAINERS", "WRITERS", "train", "write"]


class Contender(nn.Module):
    """A network that knows its loss: the mean over the tokens of (B, L + 1) windows, in nats."""

    def loss(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError


class Polyformer(Contender):
    """Ours, as `tasks/language_modeling.py` uses it."""

    def __init__(self, sizes: Sizes) -> None:
        from polyformer.training.losses import sequence_loss
        from polyformer.training.memory import keep_freed_memory

        super().__init__()
        keep_freed_memory()
        self.network, self.sequence_loss = polyformer_network(sizes), sequence_loss

    def loss(self, tokens: Tensor) -> Tensor:
        hidden = self.network(tokens[:, :-1])
        found, count = self.sequence_loss(hidden, self.network.output_weight, tokens[:, 1:], padding=0)
        return found.loss / count


class HandWritten(Contender):
    """What one writes oneself in nanoGPT's manner: fused attention, one matrix for embedding and output."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.d_model)
        self.places = nn.Embedding(sizes.context, sizes.d_model)
        self.blocks = nn.ModuleList(HandWrittenBlock(sizes) for _ in range(sizes.num_layers))
        self.norm = nn.LayerNorm(sizes.d_model)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def loss(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens[:, :-1]) + self.places.weight[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class HandWrittenBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.num_heads
        self.first, self.second = nn.LayerNorm(sizes.d_model), nn.LayerNorm(sizes.d_model)
        self.project = nn.Linear(sizes.d_model, 3 * sizes.d_model)
        self.output = nn.Linear(sizes.d_model, sizes.d_model)
        self.inner = nn.Linear(sizes.d_model, sizes.feed_forward)
        self.outer = nn.Linear(sizes.feed_forward, sizes.d_model)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.first(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.output(mixed)
        return x + self.outer(F.gelu(self.inner(self.second(x))))


class HuggingFace(Contender):
    """Hugging Face's GPT-2 architecture."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.network = gpt2_network(sizes)

    def loss(self, tokens: Tensor) -> Tensor:
        logits = self.network(input_ids=tokens[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class LitGPT(Contender):
    """litgpt's model with the layers of GPT-NeoX, whose rotary positions and LayerNorm are its default."""

    def __init__(self, sizes: Sizes) -> None:
        from litgpt import GPT, Config

        super().__init__()
        self.network = GPT(
            Config(
                name="small",
                block_size=sizes.context,
                padded_vocab_size=sizes.vocabulary,
                vocab_size=sizes.vocabulary,
                n_layer=sizes.num_layers,
                n_head=sizes.num_heads,
                n_embd=sizes.d_model,
                intermediate_size=sizes.feed_forward,
            )
        )
        self.network.lm_head.weight = self.network.transformer.wte.weight

    def loss(self, tokens: Tensor) -> Tensor:
        logits = self.network(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def polyformer_network(sizes: Sizes) -> nn.Module:
    from functools import partial

    from polyformer.models import DecoderOnly, DecoderOnlyOptions
    from polyformer.nn import FeedForward, Learned

    return DecoderOnly(
        sizes.vocabulary,
        DecoderOnlyOptions(
            d_model=sizes.d_model,
            num_heads=sizes.num_heads,
            num_layers=sizes.num_layers,
            max_length=sizes.context,
            dropout=0.0,
            position=Learned,
            feed_forward=partial(FeedForward, width=sizes.feed_forward, activation="gelu"),
        ),
    )


def gpt2_network(sizes: Sizes) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=sizes.vocabulary,
            n_positions=sizes.context,
            n_embd=sizes.d_model,
            n_layer=sizes.num_layers,
            n_head=sizes.num_heads,
            n_inner=sizes.feed_forward,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=3,
            eos_token_id=3,
        )
    )


TRAINERS: dict[str, Callable[[Sizes], Contender]] = {
    "polyformer": Polyformer,
    "hand-written": HandWritten,
    "transformers": HuggingFace,
    "litgpt": LitGPT,
}


def train(name: str, batches: list[Tensor], warm_up: int, precision: str) -> dict[str, object]:
    """Trains on all batches, the first ``warm_up`` of them untimed: tokens per second, first and last loss."""
    contender = TRAINERS[name](Sizes()).train()
    optimizer = torch.optim.AdamW(contender.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    losses, seconds = [], []
    for tokens in batches:
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
            loss = contender.loss(tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(contender.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        seconds.append(time.perf_counter() - begin)
    timed = batches[warm_up:]
    rate = sum(tokens.shape[0] * (tokens.shape[1] - 1) for tokens in timed) / sum(seconds[warm_up:])
    return {"rate": rate, "first_loss": losses[0], "last_loss": losses[-1], "seconds": seconds}


Write = Callable[[Tensor, int], Tensor]
"""(N, L) prompts and a number of tokens -> (N, that many) tokens, greedily."""


def polyformer_writer(sizes: Sizes) -> Write:
    """Ours, as `tasks/language_modeling.py` uses it, the end forbidden."""
    from polyformer.decoding import Sampling, Symbols, generate
    from polyformer.training.memory import keep_freed_memory

    keep_freed_memory()
    network = polyformer_network(sizes).eval()
    symbols = Symbols(begin=3, end=3, never=(0, 1, 2, 3))

    def run(given: Tensor, count: int) -> Tensor:
        rows = [(row, 0) for row in range(len(given))]
        sampling = Sampling(temperature=0.0, max_tokens=count)
        written = generate(network.start([0] * len(given)), given, sampling, symbols, rows, lambda row, tokens: False)
        texts: list[list[int]] = [[] for _ in rows]
        for token in written:
            texts[token.row].append(token.token)
        return torch.tensor(texts)

    return run


def transformers_writer(sizes: Sizes) -> Write:
    """Hugging Face's `generate` with its cache."""
    network = gpt2_network(sizes).eval()

    @torch.inference_mode()
    def run(given: Tensor, count: int) -> Tensor:
        mask = torch.ones_like(given)
        made = network.generate(
            input_ids=given, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count, pad_token_id=0
        )
        return made[:, given.shape[1] :]

    return run


WRITERS: dict[str, Callable[[Sizes], Write]] = {"polyformer": polyformer_writer, "transformers": transformers_writer}


def write(name: str, given: list[Tensor], count: int, warm_up: int) -> dict[str, object]:
    """Continues all prompts by ``count`` tokens, the first ``warm_up`` batches untimed: tokens per second."""
    run, seconds, written = WRITERS[name](Sizes()), [], []
    for batch in given:
        begin = time.perf_counter()
        made = run(batch, count)
        seconds.append(time.perf_counter() - begin)
        assert made.shape == (len(batch), count)
        written.append(made.numel())
    return {"rate": sum(written[warm_up:]) / sum(seconds[warm_up:]), "written": sum(written[warm_up:]), "seconds": seconds}
