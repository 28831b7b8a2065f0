"""What pages say of this machine: a measurement that is shown has a verdict."""

from __future__ import annotations

import re

from tests.rendered.test_pages import soup

VERDICT = r"Here:\s+the verdict on the first pipeline is: ([a-z-]+(?: [a-z]+)?\??)"


def test_feeding_the_devices_says_what_its_first_pipeline_waits_for(html_root):
    """Whatever the verdict is: the least times of five rounds leave it clear."""
    text = soup(html_root, "book/engine/feeding-the-devices").get_text(" ")
    [said] = re.findall(VERDICT, text)
    assert said.rstrip("?") in {
        "little overlap",
        "input-bound",
        "compute-bound",
        "crowded",
    }
