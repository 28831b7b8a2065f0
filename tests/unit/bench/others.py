"""The models of `experiments/models-of-others`, as a module that tests can name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).resolve().parents[3] / "experiments" / "models-of-others"
_spec = importlib.util.spec_from_file_location("kinds", HERE / "kinds.py")
_kinds = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_kinds)
globals().update({k: v for k, v in vars(_kinds).items() if not k.startswith("_")})
