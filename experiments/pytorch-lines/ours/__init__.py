"""The book's own functions, for the parameters and data of each block."""

from ours import beyond, choosing, data_parallel, engine, splitting, today  # noqa: F401
from ours.cases import CASES  # noqa: F401
