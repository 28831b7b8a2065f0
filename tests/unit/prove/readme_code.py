"""The whole files of the README's section on `prove`, as readers copy them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def readme_code(address):
    """The README's code of an address such as "mine:my_fit", which it must name."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Is my step right?")[2].partition("\n## ")[0]
    assert f"manygpu prove {address}`" in section
    name = address.partition(":")[2]
    codes = re.findall(r"```python\n(.*?)```", section, flags=re.S)
    (code,) = [one for one in codes if f"def {name}():" in one]
    return code
