"""Measure training steps on one GPU with PyTorch: seconds and memory, a row a case.

`manygpu choose` forecasts both from published numbers. Its formulas are held against
these rows and not fitted to them: see `manygpu/choosing/data/one_gpu.csv`.

    python experiments/one_gpu.py --out one_gpu.csv

It wants torch and torchvision, not the book's environment, and some six minutes. Rows
are written as they are measured. `--tiny` tries the script on any CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import functools
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
PLACE = "cuda" if CUDA else "cpu"
WARM_UP, STEPS = 3, 12
VOCABULARY, SEQUENCE, CLASSES, PIXELS = 50_304, 2048, 1000, 224
# What a row says: the case, its step's seconds, and bytes in GB (1e9).
CASE = ("model", "layers", "hidden", "inner", "heads", "vocabulary", "sequence")
CASE += ("gated", "dropout", "micro_batch", "accumulation", "recompute", "compiled")
FOUND = ("seconds", "least", "most", "steps", "parameters_gb", "gradients_gb")
FOUND += ("optimizer_gb", "peak_gb", "cannot", "card", "software", "date")
# (layers, hidden, heads)
WIDTHS = ((24, 1024, 16), (12, 2048, 16), (6, 4096, 32))


class Block(nn.Module):
    """A decoder's layer: GPT's kind, or with a gate Llama's; no biases."""

    def __init__(
        self, hidden: int, inner: int, heads: int, gated: bool, dropout: float
    ) -> None:
        super().__init__()
        make = functools.partial(nn.Linear, bias=False)
        norm = nn.RMSNorm if gated else functools.partial(nn.LayerNorm, bias=False)
        self.norms = nn.ModuleList([norm(hidden), norm(hidden)])
        self.into, self.out = make(hidden, 3 * hidden), make(hidden, hidden)
        self.up, self.down = make(hidden, inner), make(inner, hidden)
        self.gate = make(hidden, inner) if gated else None
        self.heads, self.dropout = heads, dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, h = x.shape
        split = self.into(self.norms[0](x)).view(b, s, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        a = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)
        a = self.out(a.transpose(1, 2).reshape(b, s, h))
        x = x + F.dropout(a, drop, self.training)
        n = self.norms[1](x)
        m = F.silu(self.gate(n)) * self.up(n) if self.gate else F.gelu(self.up(n))
        return x + F.dropout(self.down(m), drop, self.training)


class Decoder(nn.Module):
    """A language model; its loss. One matrix embeds and gives the logits."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__()
        h, self.again = case["hidden"], case["recompute"] == "full"
        self.words = nn.Embedding(case["vocabulary"], h)
        nn.init.normal_(self.words.weight, std=0.02)
        sizes = h, case["inner"], case["heads"], case["gated"], case["dropout"]
        self.blocks = nn.ModuleList(Block(*sizes) for _ in range(case["layers"]))
        self.norm = nn.LayerNorm(h, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        logits = F.linear(self.norm(x), self.words.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Images(nn.Module):
    """ResNet-50 and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torchvision.models.resnet50()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(images), labels)


def cases(tiny: bool) -> Iterator[dict[str, Any]]:
    """What is measured; the compiled ones last, for they start slowly."""
    empty = dict.fromkeys(CASE, "") | {"accumulation": 1, "compiled": 0}
    empty |= {"recompute": "none"}

    def decoder(width: tuple, batch: int, **more: Any) -> dict[str, Any]:
        layers, hidden, heads = (2, 64, 4) if tiny else width
        size = {"layers": layers, "hidden": hidden, "inner": 4 * hidden}
        size |= {"heads": heads, "vocabulary": VOCABULARY, "sequence": SEQUENCE}
        size |= {"vocabulary": 512, "sequence": 64} if tiny else {}
        kind = {"model": "gpt", "gated": 0, "dropout": 0.0, "micro_batch": batch}
        return empty | size | kind | more

    def images(batch: int, **more: Any) -> dict[str, Any]:
        size = {"model": "resnet-50", "micro_batch": 2 if tiny else batch}
        return empty | size | more

    small, middle, large = WIDTHS
    for batch in (64, 128, 256):
        yield images(batch)
    for width in WIDTHS:
        for batch in (1, 2, 4, 8):
            yield decoder(width, batch)
            yield decoder(width, batch, recompute="full")
    for width in WIDTHS:
        yield decoder(width, 2, accumulation=4)
    for batch in (2, 8):
        yield decoder(middle, batch, dropout=0.1)
        llama = {"model": "llama", "gated": 1}
        yield decoder(middle, batch, inner=5632, **llama)
        yield decoder(middle, batch, inner=5632, recompute="full", **llama)
    yield decoder(large, 4, compiled=1)
    yield decoder(middle, 4, compiled=1)
    yield decoder(small, 1, compiled=1)
    yield images(256, compiled=1)


def prepared(case: dict[str, Any]) -> tuple[nn.Module, Any, Callable[[], Any]]:
    """A case's model, its optimizer, and what takes a step."""
    torch.manual_seed(0)
    b = case["micro_batch"]
    if case["model"] == "resnet-50":
        side = PIXELS if CUDA else 64
        with torch.device(PLACE):
            model = Images().to(memory_format=torch.channels_last)
        x = torch.randn(b, 3, side, side, device=PLACE)
        x = x.to(memory_format=torch.channels_last)
        y = torch.randint(CLASSES, (b,), device=PLACE)
        taken = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    else:
        with torch.device(PLACE):
            model = Decoder(case)
        x = torch.randint(case["vocabulary"], (b, case["sequence"] + 1), device=PLACE)
        x, y = x[:, :-1].contiguous(), x[:, 1:].contiguous()
        taken = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    loss = torch.compile(model) if case["compiled"] else model

    def step() -> torch.Tensor:
        taken.zero_grad()  # to None: gradients are made anew
        for _ in range(case["accumulation"]):
            with torch.autocast(PLACE, torch.bfloat16):
                found = loss(x, y) / case["accumulation"]
            found.backward()
        taken.step()
        return found

    return model, taken, step


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a case's steps, and bytes at its fullest moment."""
    model, taken, step = prepared(case)
    for _ in range(WARM_UP):
        loss = step()
    assert torch.isfinite(loss), "the loss is no number"
    clear()
    times = timed(step)
    peak = torch.cuda.max_memory_allocated() / 1e9 if CUDA else 0.0
    found = {"seconds": f"{statistics.median(times):.5f}", "steps": len(times)}
    found |= {"least": f"{min(times):.5f}", "most": f"{max(times):.5f}"}
    return found | {"peak_gb": f"{peak:.3f}"} | sizes(model, taken)


def sizes(model: nn.Module, taken: torch.optim.Optimizer) -> dict[str, str]:
    """Gigabytes of parameters, gradients, and what the optimizer keeps."""
    parameters = list(model.parameters())
    state = [v for p in parameters for v in taken.state[p].values()]
    held = {"parameters": parameters, "gradients": [p.grad for p in parameters]}
    held |= {"optimizer": [v for v in state if torch.is_tensor(v)]}
    return {f"{name}_gb": gigabytes(them) for name, them in held.items()}


def timed(step: Callable[[], Any]) -> list[float]:
    """Seconds of each step, by the device's clock: the host may run ahead."""
    if not CUDA:
        marks = [time.perf_counter()]
        for _ in range(STEPS):
            step()
            marks.append(time.perf_counter())
        return [b - a for a, b in zip(marks, marks[1:], strict=False)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    pairs = zip(events, events[1:], strict=False)
    return [a.elapsed_time(b) / 1e3 for a, b in pairs]


def gigabytes(tensors: list[torch.Tensor]) -> str:
    """Their bytes, all together."""
    return f"{sum(t.numel() * t.element_size() for t in tensors) / 1e9:.3f}"


def clear() -> None:
    """Collect what nobody holds, and begin to count anew."""
    gc.collect()
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def ceilings() -> str:
    """What the card reaches at best: a large product, and a copy of 4 GB."""
    if not CUDA:
        return "no GPU: nothing here is worth keeping"
    a, b = (torch.randn(8192, 8192, device=PLACE).bfloat16() for _ in range(2))
    flat = torch.randn(2**30, device=PLACE)
    to = torch.empty_like(flat)
    for _ in range(2):  # the first round warms up
        product = statistics.median(timed(lambda: a @ b))
        copy = statistics.median(timed(lambda: to.copy_(flat)))
    return (
        f"{torch.cuda.get_device_name()}: a product of 8192 in bfloat16 at "
        f"{2 * 8192**3 / product / 1e12:.0f} TFLOP/s, a copy at "
        f"{8 * 2**30 / copy / 1e12:.2f} TB/s read and written"
    )


def main() -> None:
    """Measure all cases, as far as the time reaches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a CSV file, made anew")
    parser.add_argument("--seconds", type=float, default=420.0, help="begin no case "
        "after so many")  # fmt: skip
    parser.add_argument("--tiny", action="store_true", help="small models, for a try")
    words = parser.parse_args()
    begun = time.monotonic()
    print(ceilings(), flush=True)
    card = torch.cuda.get_device_name() if CUDA else "CPU"
    made = {"card": card, "software": f"torch {torch.__version__}"}
    made |= {"date": datetime.date.today().isoformat()}
    with words.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, CASE + FOUND, restval="", lineterminator="\n")
        table.writeheader()
        for case in cases(words.tiny):
            if time.monotonic() - begun > words.seconds:
                print("The time is over: the rest was not measured.")
                break
            clear()
            try:
                found = measure(case)
            except (torch.cuda.OutOfMemoryError, RuntimeError) as failed:
                found = {"cannot": f"{type(failed).__name__}: {failed}".splitlines()[0]}
            table.writerow(case | found | made)
            file.flush()
            said = [f"{k} {v}" for k, v in (case | found).items() if v not in ("", 0)]
            print(f"[{time.monotonic() - begun:4.0f} s]", ", ".join(said), flush=True)
            with contextlib.suppress(AttributeError):
                torch.compiler.reset()


if __name__ == "__main__":
    main()
