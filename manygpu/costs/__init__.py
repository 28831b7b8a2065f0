"""What training costs: FLOPs, seconds, bytes, dollars, each by one formula.

`graphs` counts what layers do; `layout` says how the work may be shared out; `memory`
and `seconds` say what that takes. A closed formula is here, once; the loop that plays
the same step event by event is in `manygpu.simulate`.
"""

from manygpu.costs.graphs import (
    NOT_KEPT,
    LayerCost,
    kept_bytes,
    kept_tensors,
    layer_costs,
    model_costs,
)

__all__ = [
    "NOT_KEPT",
    "LayerCost",
    "kept_bytes",
    "kept_tensors",
    "layer_costs",
    "model_costs",
]
