"""transformers' Trainer accumulates micro-batches of unequal token counts: judged.

A sample is a token to predict, a device of a case is a micro-batch: "gpt2" or "llama".
"""

import sys
import tempfile
from importlib.metadata import version

import numpy as np
import torch
import transformers as tr

from manygpu.measure import shares
from manygpu.prove import Subject, judge

LENGTH, WORDS, LR, IGNORED = 4, 11, 0.5, -100
DROPS = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
GPT2 = {"n_positions": LENGTH, "n_embd": 8, "n_layer": 1, "n_head": 2} | DROPS
LLAMA = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
SIZES = {"gpt2": GPT2, "llama": LLAMA | {"num_hidden_layers": 1}}


def model_of(weights=None):
    torch.manual_seed(0)
    config = tr.AutoConfig.for_model(KIND, vocab_size=WORDS, **SIZES[KIND])
    model = tr.AutoModelForCausalLM.from_config(config)
    for p, w in zip(model.parameters(), weights or model.parameters(), strict=True):
        p.data.copy_(torch.as_tensor(w))
    return model


class Run:
    def __init__(self, weights, k):
        self.model, self.k = model_of(weights), k

    def take(self, X, y):
        """Each micro-batch has as many rows; the last ones may have no label."""
        sizes, rows = shares(len(X), self.k), []
        for end, count in zip(np.cumsum(sizes), sizes, strict=True):
            ids, words = np.full((2, max(sizes), LENGTH), [[[0]], [[IGNORED]]])
            ids[:count], words[:count, -1] = X[end - count : end], y[end - count : end]
            rows += [
                {"input_ids": i, "labels": w} for i, w in zip(ids, words, strict=True)
            ]
        sgd = torch.optim.SGD(self.model.parameters(), LR)
        steady = torch.optim.lr_scheduler.LambdaLR(sgd, lambda _: 1.0)
        size = {"per_device_train_batch_size": max(sizes), "max_grad_norm": 0}
        pieces = {
            "gradient_accumulation_steps": self.k,
            "max_steps": 1,
            "use_cpu": True,
        }
        with tempfile.TemporaryDirectory() as folder:
            about = {"report_to": "none", "save_strategy": "no", **size, **pieces}
            own = {"train_dataset": rows, "optimizers": (sgd, steady)}
            trainer = tr.Trainer(
                self.model, tr.TrainingArguments(folder, **about), **own
            )
            in_order = torch.utils.data.SequentialSampler(rows)
            trainer._get_train_sampler = lambda *_: in_order
            trainer.train()

    def copies(self):
        return [[p.detach().numpy().copy() for p in self.model.parameters()]]


def gradient(X, y, weights):
    model = model_of(weights)
    logits = model(torch.from_numpy(X)).logits[:, -2]
    loss = torch.nn.CrossEntropyLoss(reduction="sum")(logits, torch.from_numpy(y))
    loss.backward()
    return float(loss), [p.grad.numpy() for p in model.parameters()]


def draw(samples, seed):
    ids = np.random.default_rng(seed).integers(0, WORDS, (samples, LENGTH))
    return ids, ids[:, -1]


for KIND in sys.argv[1:]:
    start = [p.detach().numpy() for p in model_of().parameters()]
    name = f"Trainer, {KIND}, transformers {version('transformers')}"
    print(judge(Subject(Run, gradient, draw, start, LR, name=name)))
