"""The dated tables of models, GPUs and links: they agree with what others publish."""

import contextlib
import csv
import datetime

import pytest

from manygpu.choosing import experts, presets, residuals, tables
from manygpu.costs.layout import Layout
from manygpu.simulate.cluster import LINKS, TABLE, Link

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
    assert tables.wire("nvlink-4").link.bandwidth == 3.6761e11  # reached, of 4.5e11
    assert tables.wire("NVLink 4").link.latency == LINKS["NVLink 4"].latency


@pytest.mark.parametrize("row", [*tables.models(), *tables.gpus(), *tables.links()])
def test_each_row_has_a_day_and_a_source(row):
    assert datetime.date(2026, 1, 1) < row.date <= datetime.date(2026, 11, 29)
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
        assert row.single <= row.peak and row.halves is (row.single < row.peak)
    assert tables.gpu("a100-80").conv == pytest.approx(3 * 8.178e9 * 2711, rel=1e-3)


def test_links_are_the_simulators_and_those_of_before():
    sheets = {row.name: Link(row.latency, row.bandwidth) for row in tables.links()}
    assert sheets == LINKS
    assert {name: LINKS[name] for name in BEFORE} == BEFORE
    assert [*LINKS][:4] == [*BEFORE]
    assert LINKS["PCIe 3"].latency == presets.PCIE_3.latency
    for row in tables.links():
        assert row.reached is None or 0.5 < row.reached / row.bandwidth < 1
        assert 0.7 < row.link.bandwidth / row.bandwidth < 1
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
    with pytest.raises(ValueError, match=f"no .* {said}.*; manygpu choose --list") as e:
        find(name)
    sizes = "; --layers, --hidden and --heads describe a transformer without a name"
    assert str(e.value).endswith(sizes if find is tables.model else "shows all")


def changed(tmp_path, table, row, column, value):
    """A copy of a table with another value in one place."""
    file = TABLE if table == "links.csv" else tables.DATA / table
    with file.open(encoding="utf-8", newline="") as file:
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


FAMILIES = {"one", "data", "zero1", "zero2", "zero3", "hsdp", "tp", "pp", "nothing"}


def test_an_expert_s_setting_can_be_asked_and_has_a_source():
    """Only a recommender's tables are no setting; each family is a known one."""
    asked = experts.advice()
    assert len(asked) >= 89 and len({a.number for a in asked}) == len(asked)
    assert {a.name for a in asked if a.setting is None} == {"recommender"}
    for one in asked:
        said = {part for family in one.families for part in family.split("+")}
        assert said <= FAMILIES | {*experts.BEYOND} and one.said and one.source
    assert 0 < sum(not one.sayable for one in asked) <= 10


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(1), "one"),
        (Layout(4), "data"),
        (Layout(4, zero=2), "zero2"),
        (Layout(16, zero=3, copies=2), "hsdp"),
        (Layout(16, 4, 2, zero=1), "zero1+tp+pp"),
        (Layout(8, 8), "tp"),
    ],
)
def test_a_layout_has_a_family(layout, said):
    assert experts.family(layout) == said


def published(name):
    """What others measured, for holding a simulator against: numbers as numbers."""
    with (residuals.DATA / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        assert row["source"] and datetime.date.fromisoformat(row["date"])
        for key, value in row.items():
            with contextlib.suppress(ValueError):
                row[key] = float(value)
    return rows


DEGREES = ["megatron", "megatron_h100", "korthikanti", "llama3", "torchtitan"]
DEGREES += ["kempner"]


@pytest.mark.parametrize("name", DEGREES)
def test_published_degrees_use_all_gpus(name):
    for row in published(name):
        degrees = row["dp"] * row["tp"] * row["pp"] * row.get("cp", 1)
        assert degrees == row["gpus"]


def test_megatrons_columns_agree():
    """Parameters by the paper's formula, days by its estimate, and the sums."""
    for row in published("megatron"):
        layers, hidden = row["layers"], row["hidden"]
        ends = (row["vocabulary"] + row["sequence"]) / (12 * layers * hidden)
        billions = 12 * layers * hidden**2 * (1 + 13 / (12 * hidden) + ends) / 1e9
        assert row["params_billion"] == pytest.approx(billions, rel=0.01, abs=0.05)
        assert row["batch"] % (row["dp"] * row["micro_batch"]) == 0
        if row["table"] == 1:
            assert row["percent_of_peak"] == round(row["tflops"] / 3.12)
            whole = row["tflops"] * row["gpus"] / 1000
            assert row["petaflops"] == pytest.approx(whole, rel=0.01)
        else:
            seconds = 8 * 300e9 * billions * 1e9 / (row["gpus"] * row["tflops"] * 1e12)
            assert row["days"] == pytest.approx(seconds / 86400, rel=0.035)


def test_megatrons_columns_agree_on_h100():
    """Embeddings and the last layer are two matrices there; the peak is 989.5."""
    for row in published("megatron_h100"):
        layers, hidden = row["layers"], row["hidden"]
        both = 2 * row["vocabulary"] * hidden
        billions = (12 * layers * hidden**2 + both) / 1e9
        assert row["params_billion"] == pytest.approx(billions, rel=0.017, abs=0.05)
        assert row["mfu_percent"] == pytest.approx(row["tflops"] / 9.895, abs=0.6)
        whole = row["tflops"] * row["gpus"] / 1000
        assert row["petaflops"] == pytest.approx(whole, rel=0.002)


def test_korthikantis_columns_agree():
    """MFU by the paper's count of FLOPs over its seconds, memory by its percents."""
    whole = {}
    for row in published("korthikanti"):
        layers, hidden, length = row["layers"], row["hidden"], row["sequence"]
        if row["activations_percent"] == 100:
            whole[row["model"]] = row["activations_gib"]
        elif row["activations_gib"]:
            percent = 100 * row["activations_gib"] / whole[row["model"]]
            assert row["activations_percent"] == pytest.approx(percent, rel=0.01)
        if row["mfu_percent"]:
            ends = length / (6 * hidden) + row["vocabulary"] / (12 * hidden * layers)
            flops = 72 * row["batch"] * layers * length * hidden**2 * (1 + ends)
            mfu = 100 * flops / (row["gpus"] * row["seconds"] * 312e12)
            assert row["mfu_percent"] == pytest.approx(mfu, rel=0.01)


def test_llama3s_columns_agree():
    for row in published("llama3"):
        assert row["tokens"] == row["batch"] * row["sequence"]
        assert row["mfu_percent"] == pytest.approx(row["tflops"] / 9.89, abs=1)


def test_mosaicmls_columns_agree():
    """MFU from tokens a second, to the rounding; a full recomputation is 4/3."""
    for row in published("mosaicml"):
        attention = 12 * row["layers"] * row["hidden"] * row["sequence"]
        peak = 989.5e12 if row["gpu"] == "h100" else 312e12
        peak *= 2 if row["precision"] == "amp_fp8" else 1
        flops = row["tokens_per_second_gpu"] * (6 * row["parameters"] + attention)
        assert row["mfu_percent"] == pytest.approx(100 * flops / peak, rel=0.003)
        more = 4 / 3 if row["recompute"] == "full" else 1
        assert row["hfu_percent"] == pytest.approx(more * row["mfu_percent"], rel=0.005)
        steps = row["micro_batch"] * row["accumulation"]
        assert row["batch"] == row["gpus"] * steps


def test_kempners_columns_agree():
    """Tokens a second from the step's seconds, and MFU from the tokens.

    The later report's MFU is of a count without the embeddings.
    """
    for row in published("kempner"):
        tokens = row["batch"] * row["sequence"]
        assert row["tokens_per_second"] == pytest.approx(
            tokens / row["seconds"], rel=0.01
        )
        attention = 12 * row["layers"] * row["hidden"] * row["sequence"]
        counted = 6e9 * row["params_billion"] + attention
        if "embeddings" in row["source"]:
            counted -= 6 * row["vocabulary"] * row["hidden"]
        mfu = 100 * row["tokens_per_second"] * counted / (row["gpus"] * 989e12)
        assert row["mfu_percent"] == pytest.approx(mfu, rel=0.003)
        assert row["batch"] == row["dp"] * row["micro_batch"] * row["accumulation"]


def test_the_rest_is_within_reason():
    """More is done than counts, and never more than the hardware can."""
    for row in published("fms"):
        if row["mfu_percent"]:
            assert 0 < row["mfu_percent"] <= row["hfu_percent"] < 80
        assert row["gpus"] == 8 * row["nodes"]
    for row in published("nemo"):
        assert row["gpus"] % (row["tp"] * row["pp"] * (row["cp"] or 1)) == 0
        assert 500 < row["tflops"] < 1979


def test_data_parallel_gains_no_more_than_its_gpus():
    """1.03 is the most: PaddlePaddle's 8.24 of 8, as published."""
    fewest = {}
    keys = ["model", "engine", "sequence", "gpu", "machine", "batch_per_gpu", "source"]
    for row in published("dataparallel"):
        of = tuple(row[key] for key in keys)
        first = fewest.setdefault(of, row)
        gain = row["per_second"] / first["per_second"] / (row["gpus"] / first["gpus"])
        assert 0.45 < gain < 1.035
