"""The set-up that each block of PyTorch assumes, and what is compared."""

from theirs import beyond, choosing, data_parallel, engine, hangs, splitting, today  # noqa: F401
