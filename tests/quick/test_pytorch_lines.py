"""Each block of PyTorch in the pages was run as it is: it has a row in results.csv."""

import csv
import importlib.util

import pytest

from workshop import evidence

FOLDER = evidence.ROOT / "experiments" / "pytorch-lines"
SPEC = importlib.util.spec_from_file_location("pytorch_blocks", FOLDER / "blocks.py")
blocks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(blocks)
BLOCKS = blocks.of_pages()
with (FOLDER / "results.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {(row["page"], row["hash"]): row for row in csv.DictReader(file)}


# Their corrections have a row that is equal: take a page out once it has them.
WRONG = set()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]}-{block[1]}")
def test_a_block_was_run_as_it_is(block):
    asked = f"run experiments/pytorch-lines/run.py --only {block.page}"
    assert (block.page, block.hash) in ROWS, f"a new block: {asked}\n{block.text}"
    verdict = ROWS[block.page, block.hash]["verdict"]
    if block.page not in WRONG or verdict != "differs":
        assert verdict.startswith(("equal", "needs a GPU")), f"{verdict}\n{block.text}"


def test_blocks_are_found_and_others_are_not():
    text = "```python\nloss.backward()\n```\nand\n```python\ntf.add(1, 2)\n```\n"
    text += "```bash\ntorchrun train.py\n```\n```bash\nls\n```\n"
    found = blocks.blocks_in(text, "part/page")
    texts = [block.text for block in found]
    assert texts == ["loss.backward()\n", "torchrun train.py\n"]
    assert [block.number for block in found] == [1, 2]
    changed = found[0]._replace(text="loss.backward() \n")
    assert changed.hash != found[0].hash


def test_a_change_that_a_block_lacks_is_refused():
    (block,) = blocks.blocks_in("```python\nmodel.to(0)\n```\n", "part/page")
    assert block.on_cpu({"to(0)": "cpu()"}).text == "model.cpu()\n"
    with pytest.raises(ValueError, match="no 'cuda' any more"):
        block.on_cpu({"cuda": "cpu"})
