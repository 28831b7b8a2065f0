"""The dated tables of models, GPUs and links: they agree with what others publish."""

import csv
import datetime
import math
from pathlib import Path

import pytest

from manygpu.choosing import presets, tables
from manygpu.simulate.cluster import LINKS, Link

ASKED_FOR = "resnet-50 bert-base bert-large gpt-2 gpt-2-xl vit-b vit-l llama-3-8b "
ASKED_FOR += "llama-3-70b llama-3-405b llama-2-7b llama-2-13b qwen-2.5-7b mistral-7b "
ASKED_FOR += "gemma-2-9b gpt-3-175b phi-3-mini"
BEFORE = {
    "NVLink 4": Link(3e-6, 450e9),
    "PCIe 5": Link(5e-6, 64e9),
    "InfiniBand NDR": Link(5e-6, 50e9),
    "Ethernet 100G": Link(20e-6, 12.5e9),
}


@pytest.mark.parametrize("row", tables.models(), ids=lambda row: row.name)
def test_parameters_are_those_published(row):
    assert row.parameters == pytest.approx(row.published, rel=0.01)


def test_what_people_ask_for_is_there():
    assert {row.name for row in tables.models()} >= set(ASKED_FOR.split())
    assert tables.model("Llama 3 8B").layers == 32  # however it is written
    assert tables.gpu("A100 80").memory == 80e9
    assert tables.wire("nvlink-4").link == LINKS["NVLink 4"]


@pytest.mark.parametrize("row", [*tables.models(), *tables.gpus(), *tables.links()])
def test_each_row_has_a_day_and_a_source(row):
    assert datetime.date(2026, 1, 1) < row.date <= datetime.date(2026, 11, 26)
    assert row.source
    if isinstance(row, tables.Known):
        assert row.published_source.startswith("https://")
        assert row.source.startswith("https://" if row.transformer else "counted: ")


@pytest.mark.parametrize("row", tables.models(), ids=lambda row: row.name)
def test_shapes_can_be(row):
    if row.transformer:
        assert row.heads % row.kv_heads == 0 and row.inner > row.hidden
        assert row.positions in (0, row.sequence)
        assert row.hidden % 64 == 0
    else:
        assert row.kept > row.layers * row.handed / 2


def test_a_device_reaches_less_than_its_data_sheet_says():
    for row in tables.gpus():
        for reached in (row.conv, row.matmul, row.product):
            assert reached is None or 0.1 < reached / row.peak < 0.9, row.name
        assert row.conv is None or row.matmul is None or row.conv < row.matmul
        assert row.single < row.peak
    assert tables.gpu("a100-80").conv == pytest.approx(3 * 8.178e9 * 2711, rel=1e-3)


def test_links_are_the_simulators_and_those_of_before():
    assert {row.name: row.link for row in tables.links()} == LINKS
    assert {name: LINKS[name] for name in BEFORE} == BEFORE
    assert [*LINKS][:4] == [*BEFORE]
    assert LINKS["PCIe 3"].latency == presets.PCIE_3.latency
    for row in tables.links():
        assert row.reached is None or 0.5 < row.reached / row.bandwidth < 1
        assert bool(row.reached) == bool(row.reached_source)
        assert (row.cards is None) == (row.place == "inside")


def test_a_gpu_finds_its_prices():
    v100, a100 = tables.gpu("v100-16"), tables.gpu("a100-80")
    assert {price.device for price in v100.prices} == {"V100 16 GB"}
    assert v100.price(1).devices == 1 and v100.price(1).dollars_an_hour == 3.06
    assert v100.price(8).provider == "Lambda"  # eight at once for 6.32
    assert a100.price(1).provider == "RunPod"
    assert v100.price(1, "spot").terms == "spot"
    assert tables.gpu("t4").prices == () and tables.gpu("t4").price(4) is None


def test_a_price_is_for_whole_products():
    h100 = tables.gpu("h100")
    paid = [-(-9 // p.devices) * p.dollars_an_hour for p in h100.prices
            if p.terms == "on demand"]  # fmt: skip
    best = h100.price(9)
    assert -(-9 // best.devices) * best.dollars_an_hour == min(paid)


def test_the_list_names_all_with_their_days():
    lines = tables.listed()
    text = "\n".join(lines)
    for row in (*tables.models(), *tables.gpus(), *tables.links()):
        assert f"  {row.name} " in text
    assert text.count("2026-11-26") == 3
    assert "  llama-3-8b        8.03 B  32 layers of 4096, 8192 tokens" in lines
    assert max(map(len, lines)) <= 79


@pytest.mark.parametrize(
    ("find", "name", "said"),
    [
        (tables.model, "llama-3-9b", "there is .*llama-3-8b"),
        (tables.gpu, "a100", "there is .*a100-40"),
        (tables.wire, "NVLink 9", "there is .*NVLink 4"),
        (tables.gpu, "??", "nothing near it"),
    ],
)
def test_a_strange_name_is_told_the_nearest(find, name, said):
    with pytest.raises(ValueError, match=f"no .* {said}.*; manygpu choose --list"):
        find(name)


def changed(tmp_path, table, row, column, value):
    """A copy of a table with another value in one place."""
    with (tables.DATA / table).open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    at = next(line for line in lines if line[0] == row)
    at[lines[0].index(column)] = value
    with (copy := tmp_path / table).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    return copy


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("models.csv", "gpt-2", "layers", "twelve"),
        ("models.csv", "gpt-2", "layers", ""),
        ("models.csv", "gpt-2", "hidden", "-768"),
        ("models.csv", "gpt-2", "gated", "2"),
        ("models.csv", "gpt-2", "kind", "GPT"),
        ("models.csv", "gpt-2", "heads", ""),
        ("models.csv", "gpt-2", "source", ""),
        ("models.csv", "gpt-2", "date", "yesterday"),
        ("models.csv", "gpt-2", "name", "gpt-2-xl"),
        ("models.csv", "resnet-50", "kept", ""),
        ("gpus.csv", "t4", "peak", "nan"),
        ("gpus.csv", "t4", "inside", "NVLink 0"),
        ("gpus.csv", "t4", "priced", "T5"),
        ("gpus.csv", "t4", "conv", "1e13"),
        ("links.csv", "PCIe 3", "place", "above"),
        ("links.csv", "PCIe 3", "latency", "0"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, table, row, column, value):
    copy = changed(tmp_path, table, row, column, value)
    named = value if column == "name" else row
    with pytest.raises(ValueError, match=rf"{table}.*\({named}\).*"):
        getattr(tables, table.removesuffix(".csv"))(copy)


def test_wrong_columns_are_named(tmp_path):
    file = tmp_path / "links.csv"
    file.write_text("name,speed\nx,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="links.csv must have the columns name, place"):
        tables.links(file)


FAMILIES = {"one", "data", "zero1", "zero2", "zero3", "hsdp", "tp", "pp", "cp"} | {
    "tables",
    "offload",
    "nothing",
}


def experts():
    file = Path(__file__).parents[2] / "experiments" / "expert_settings.csv"
    with file.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


@pytest.mark.parametrize("row", experts(), ids=lambda row: row["number"])
def test_an_experts_setting_can_be_asked(row):
    """Every name is in a table, the layout uses the devices, and it has a source."""
    assert row["gpu"] in {gpu.name for gpu in tables.gpus()}
    links = {wire.name for wire in tables.links()} | {""}
    assert {row["inside"], row["across"]} <= links
    assert row["shape"] or row["model"] in {model.name for model in tables.models()}
    assert int(row["gpus"]) % int(row["nodes"]) == 0
    assert (row["across"] == "") == (row["nodes"] == "1")
    for advice in row["advice"].split("|"):
        assert set(advice.split("+")) <= FAMILIES
    assert row["recompute"] in ("yes", "no", "any")
    degrees = [int(part.split("=")[1]) for part in row["layout"].split(";") if part]
    assert int(row["gpus"]) % math.prod(degrees) == 0
    assert row["said"] and row["source"]
