"""Blocks of the part `today`."""

import given
import torch
from ranks import NeedsGPUError, case

from theirs.nets import names

TOKENS = 16


@case(
    "today/long-sequences", 1, "which tokens each rank has inside (it is zigzag)", 2,
    changes={'"cuda"': '"cpu"'},
)  # fmt: skip
def long_sequences(block, rank, ranks):
    """Run the block, which CPUs refuse; then look at the tokens of its context."""
    positions = torch.arange(TOKENS, dtype=torch.float32)
    q, k, v = (positions.reshape(1, 1, -1, 1).repeat(1, 2, 1, 4) for _ in range(3))
    own = names(q=q, k=k, v=v)
    try:
        block.run(own)
    except NotImplementedError as error:
        assert "flash_attention_for_cpu" in str(error), error
        held = positions.clone()
        with own["context_parallel"](
            own["mesh"], buffers=(held,), buffer_seq_dims=(0,)
        ):
            inside = held.tolist()
        first = list(range(4 * rank, 4 * rank + 4))
        assert inside == first + [TOKENS - 1 - p for p in reversed(first)], inside
        raise NeedsGPUError(
            "inside, each rank has the tokens of zigzag; then attention refuses CPUs"
        ) from error
    raise AssertionError("CPUs have computed attention: compare its output with ours")


@case(
    "today/experts", 1,
    "the answers, and the gradients of the rows and of the experts",
)  # fmt: skip
def experts(block, rank, ranks):
    """Run the block with one expert per rank, and more rows for later ranks."""
    rows, matrices, leaving = given.rows_of_experts(ranks)
    own = torch.tensor(rows[rank], requires_grad=True)
    matrix = torch.tensor(matrices[rank], requires_grad=True)
    sizes = {"leaving": leaving[rank], "arriving": [one[rank] for one in leaving]}
    found = block.run(
        names(rows=own, work_on=lambda rows: torch.tanh(rows @ matrix), **sizes)
    )
    (found["back"] ** 2).sum().backward()
    return {
        "answers": found["back"].detach(),
        "of rows": own.grad,
        "of experts": matrix.grad,
    }
