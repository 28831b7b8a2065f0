"""What a device holds, against the sources' own formulas, tables and measurements."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manygpu.choosing import forecast, presets, tables
from manygpu.choosing.question import Machine, Model, Setting
from manygpu.costs import memory as costs
from manygpu.costs.layout import ALL, ATTENTION, NOTHING, SELECTIVE, Layout
from manygpu.costs.memory import FLOAT32, MAIN_GRADIENTS, MIXED, Stored, held
from manygpu.costs.shape import Shape
from manygpu.scratch.beyond.whole_cluster import simulate
from manygpu.scratch.splitting import pipeline
from manygpu.scratch.splitting.pipeline import gpipe, needs, one_forward_one_backward
from manygpu.simulate import steps
from manygpu.simulate.cluster import Cluster, Link
from manygpu.simulate.peak import peaks, weighed
from manygpu.simulate.works import Agenda, put_plan

# Korthikanti et al. (arXiv:2205.05198), table 3: heads, width, layers, stages. All
# with 8 layerwise devices, sequences of 2,048 tokens, 51,200 words. The last number is
# a micro-batch; interleaved stages are left out.
MODELS = {
    "22B": (64, 6144, 48, 1, 4),
    "175B": (96, 12288, 96, 8, 1),
    "530B": (128, 20480, 105, 35, 1),
    "1T": (160, 25600, 128, 64, 1),
}
T, S, V = 8, 2048, 51_200


def gpt(name: str) -> Shape:
    a, h, layers, _, _ = MODELS[name]
    return Shape(layers, h, 4 * h, True, V, S, a, gated=False)


def of_paper(name: str, cut_tokens=True, recompute=NOTHING):
    """What the paper's layout takes, many micro-batches in flight, loss fused."""
    *_, p, b = MODELS[name]
    stored = costs.of_shape(gpt(name), cut_tokens, flash=False, logit=costs.FUSED)
    layout = Layout(T * p, T, p, 8 * p, recompute=recompute)
    return held(stored, layout, b, MAIN_GRADIENTS)


@pytest.mark.parametrize("name", MODELS)
def test_the_shapes_have_the_parameters_of_their_names(name):
    size = {"22B": 22e9, "175B": 175e9, "530B": 530e9, "1T": 1e12}[name]
    assert gpt(name).parameters == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_those_of_the_papers_second_table(name):
    """A first stage has all layers' worth in flight, whatever the number of stages."""
    a, h, layers, p, b = MODELS[name]
    sbh, scores = S * b * h, 5 * a * S / h
    rows = {
        (False, NOTHING): 10 + 24 / T + scores / T,
        (True, NOTHING): (34 + scores) / T,
        (False, ATTENTION): 10 + 24 / T,
        (True, ATTENTION): 34 / T,
        (False, ALL): 2,
    }
    for (cut, again), each in rows.items():
        stage = -(-layers // p) * p  # 35 stages of 3 layers, 64 of 2
        kept = sbh * (each * stage + p / (T if cut else 1))  # with the first mask
        if again == ATTENTION:  # of the layer whose turn it is
            kept += sbh * scores / T
        if again == ALL:
            kept += sbh * (10 + 24 / T + scores / T)
        assert of_paper(name, cut, again).activations == pytest.approx(kept)


def test_shares_are_those_of_the_papers_text():
    """Attention has 70% and 65% of a layer; all together, five times less."""
    for name, share in (("175B", 0.70), ("530B", 0.65)):
        kept = gpt(name).kept
        assert kept.scores / sum(kept) == pytest.approx(share, abs=5e-3)
    for name in ("175B", "530B", "1T"):
        plain, less = of_paper(name, False), of_paper(name, True, ATTENTION)
        assert 4.2 < plain.activations / less.activations < 5.5


def test_at_one_stage_there_are_logits():
    """4 s b h / t (1 + v / h): the last norm, the head's input, float32 logits."""
    _, h, _, _, b = MODELS["22B"]
    assert of_paper("22B").logits == pytest.approx(4 * S * b * h * (1 + V / h) / T)
    assert of_paper("175B").logits == 0  # the first stage is fuller


def test_tokens_that_are_cut_save_what_a_run_saved():
    """GPT-2 large, 2 H200, 64 sequences of 1,024: nvidia-smi showed 85,969 MiB without
    and 71,571 with --sequence-parallel (Chua, notes on Megatron-LM, September 2025).
    """
    shape = Shape(36, 1280, 4 * 1280, True, 50_304, 1024, 20, gated=False)
    stored = [costs.of_shape(shape, cut) for cut in (False, True)]
    whole, cut = (held(one, Layout(2, 2), 64).total for one in stored)
    assert (whole - cut) / 2**20 == pytest.approx(85_969 - 71_571, rel=0.01)


def test_a_22_billion_model_fits_as_it_did():
    """Chua 2025, megatron-tutorials, 02-tp-sp.md: on 8 H100, FlashAttention, the 22B
    model of the paper runs out of memory; with cut tokens it takes 62.1 GB a GPU, and
    recomputed instead 57.6. That counts the CUDA context and NCCL's buffers too.
    """
    shape, b = gpt("22B"), 4
    whole, cut = (costs.of_shape(shape, c, logit=costs.FUSED) for c in (False, True))
    asked = ((whole, NOTHING), (cut, NOTHING), (whole, ALL))
    oom, fine, again = (
        held(one, Layout(8, 8, recompute=r), b, MAIN_GRADIENTS).total / 2**30
        for one, r in asked
    )
    assert fine - again == pytest.approx(62.1 - 57.6, rel=0.05)
    beside = 62.1 - fine
    assert 3 < beside < 7
    assert oom + beside > 81_559 / 1024 > fine + beside


def test_the_last_stage_may_be_the_fuller_one():
    """The same model in two stages: 61,249 MiB on the first, 88,299 on the last."""
    shape = Shape(36, 1280, 4 * 1280, True, 50_304, 1024, 20, gated=False)
    found = held(costs.of_shape(shape), Layout(2, 1, 2, 1), 64)
    assert found.logits > 0
    alone = held(costs.of_shape(shape._replace(vocabulary=0)), Layout(2, 1, 2, 1), 64)
    assert found.total > alone.total


@pytest.mark.parametrize(
    "held_by_one, among",
    [
        # NVIDIA, Megatron Core user guide, Distributed optimizer.
        (costs.Bytes(2, 2, 16), lambda d: (20, 4 + 16 / d)),
        (MAIN_GRADIENTS, lambda d: (18, 6 + 12 / d)),
        (FLOAT32, lambda d: (16, 8 + 8 / d)),
        (MIXED, lambda d: (16, 4 + 12 / d)),
    ],
)
def test_bytes_a_parameter_are_megatrons(held_by_one, among):
    one = Stored(1, 1e9, 0, 0, 0, 0)
    for d in (2, 64):
        found = [held(one, Layout(d, zero=z), 1, held_by_one) for z in (0, 1)]
        assert [each.total / 1e9 for each in found] == pytest.approx(among(d))


def test_the_fullest_stage_is_what_megatrons_own_report_says():
    """Llama 2 7B in 4 stages on 8 GPUs, distributed optimizer: 1.7502 billion in the
    most loaded shard, 20,029.52 MiB (its theoretical_memory_usage.py, in a log of
    Infinigence's training guide, August 2025). Others have 1.6191 billion.
    """
    shape = Shape(32, 4096, 11_008, False, 32_000, 4096, 32)
    layout = Layout(8, 1, 4, 32, zero=1)
    found = held(costs.of_shape(shape), layout, 1, MAIN_GRADIENTS)
    assert found.parameters / 2e9 == pytest.approx(1.7502, abs=1e-3)
    assert sum(found[:3]) / 2**20 == pytest.approx(20_029.52, rel=1e-3)
    assert shape.layers * shape.layer / 4e9 == pytest.approx(1.6191, abs=1e-3)


@pytest.mark.parametrize(
    "size, devices, by_stage",
    [  # Rajbhandari et al. (arXiv:1910.02054), table 1: GB by ZeRO 1, 2, 3.
        (7.5e9, 1, (120, 120, 120)),
        (7.5e9, 4, (52.5, 41.3, 30)),
        (7.5e9, 16, (35.6, 21.6, 7.5)),
        (7.5e9, 64, (31.4, 16.6, 1.88)),
        (7.5e9, 256, (30.4, 15.4, 0.47)),
        (7.5e9, 1024, (30.1, 15.1, 0.12)),
        (128e9, 64, (536, 284, 32)),
        (1e12, 1024, (4011, 2013, 15.6)),
    ],
)
def test_state_is_that_of_the_zero_paper(size, devices, by_stage):
    layers = Stored(32, size / 32, 0, 0, 0, 0)
    layout = Layout(devices, zero=np.array([1, 2, 3]))
    state = sum(held(layers, layout, 1)[:3]) / 1e9
    assert state == pytest.approx(by_stage, rel=5e-3, abs=5e-3)


def test_it_is_what_deepspeeds_estimators_say():
    """T5-3B on 8 GPUs, in its documentation: 15.93 and 6.09 GiB, gradients in float32.

    Its estimate has one layer at work, and counts parameters in two precisions.
    """
    layers = Stored(1, 2851e6, 0, 0, 0, 0)
    two = held(layers, Layout(8, zero=2), 1, costs.Bytes(4, 0, 16))
    assert two.total / 2**30 == pytest.approx(15.93, abs=5e-3)
    ends = Stored(1, 2851e6 - 32e6, 0, 0, 0, 0, first=32e6)
    three = held(ends, Layout(8, zero=3), 1, costs.Bytes(2, 2, 14))
    assert sum(three[:3]) / 2**30 + 4 * 32e6 / 2**30 == pytest.approx(6.09, abs=5e-3)


def test_groups_of_replicas_each_share_the_state():
    """HSDP: 2 nodes of 8, each with all of it, hold what 8 devices do."""
    model = Stored(4, 1e9, 1e6, 1e6, 0, 1e5)
    two = held(model, Layout(16, zero=3, copies=2), 1)
    assert two == held(model, Layout(8, zero=3), 1)


def test_in_flight_are_no_more_micro_batches_than_stages():
    model = Stored(8, 1.0, 0, 3.0, 0, 1.0)
    for m, p in itertools.product((1, 2, 4, 16), (1, 2, 4, 8)):
        found = held(model, Layout(p, 1, p, m), 5.0).activations
        assert found == 5 * 3 * 8 / p * min(m, p)


@pytest.mark.parametrize("p, m", [(1, 3), (2, 8), (4, 2), (4, 9)])
def test_that_is_what_the_pipeline_chapter_counts(p, m):
    orders = pipeline.orders_of(one_forward_one_backward(p, m))
    said = [costs.in_flight(Layout(p, 1, p, m), s) for s in range(p)]
    assert pipeline.in_flight(orders) == said


def test_uneven_stages_have_one_layer_more():
    model = Stored(7, 1.0, 0, 1.0, 0, 0)
    assert held(model, Layout(4, 1, 4, 8), 1).parameters == 2 * 2
    assert held(model, Layout(4, 1, 4, 8), 1, dealt=(3, 1)).parameters == 3 * 2


def test_tied_matrices_are_there_once_on_one_stage_and_twice_on_two():
    shape = Shape(2, 8, 32, True, 100, 4, 2)
    for stages, matrices in ((1, 1), (2, 1)):
        found = held(costs.of_shape(shape), Layout(stages, 1, stages), 1)
        own = shape.layer * 2 // stages + matrices * shape.embedding
        assert found.parameters == 2 * own
    apart = held(costs.of_shape(shape._replace(tied=False)), Layout(1), 1)
    assert apart.parameters == 2 * (shape.parameters + shape.embedding)


def test_what_fits_leaves_a_tenth_free():
    model = Stored(1, 1.0, 0, 2.0, 0, 0)
    found = held(model, Layout(1), 1)
    assert costs.fits(found, 20.0) and not costs.fits(found, 19.9)
    assert found.total == 18 == costs.ROOM * 20


layouts = st.builds(
    lambda d, t, p, m, zero, again: Layout(d * t * p, t, p, m, zero, 1, again),
    *[st.sampled_from((1, 2, 4))] * 4,
    st.integers(0, 3),
    st.sampled_from((NOTHING, ATTENTION, ALL)),
)


@given(st.lists(layouts, min_size=1, max_size=5))
def test_an_array_of_layouts_is_answered_like_each_of_them(found):
    stored = costs.of_shape(Shape(6, 16, 64, True, 128, 32, 4, 2), flash=False)
    together = held(stored, Layout(*map(np.array, zip(*found, strict=True))), 3)
    for i, layout in enumerate(found):
        alone = held(stored, layout, 3)
        assert [np.broadcast_to(x, len(found))[i] for x in together] == list(alone)


@given(layouts)
def test_more_sharing_and_recomputing_never_take_more_activations(layout):
    stored = costs.of_shape(Shape(6, 16, 64, True, 128, 32, 4, 2), flash=False)
    kept = [held(stored, layout._replace(recompute=r), 3).activations for r in range(3)]
    assert kept[1] <= kept[0] * (1 + 1e-12)
    state = [held(stored, layout._replace(zero=z), 3)[:3] for z in range(4)]
    assert all(sum(b) <= sum(a) for a, b in itertools.pairwise(state))
    assert all(math.isfinite(x) for x in held(stored, layout, 3))


# ------------------------------------------------- what is played, and the formulas


FAST = Link(1e-9, 1e15)


def setting_of(layers: int, devices: int, batch: int) -> Setting:
    model = Model("any", layers, 1e6 * layers, 1e9 * layers, 3e3, 7e4 * layers, sent=2)
    return Setting(model, Machine(Cluster(1, devices, FAST, FAST), 1e12, 1e12), batch)


@given(
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from((1, 2, 3, 5, 8)),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_step_that_is_played_peaks_where_the_formula_says(d, t, p, m, recompute):
    """Data parallel, layerwise, in stages by 1F1B: each stage holds what it should."""
    setting = setting_of(8, d * t * p, 4 * m * d)
    plan = Layout(d * t * p, t, p, m, recompute=recompute)
    works = forecast.agenda(setting, plan, one_forward_one_backward, needs)
    layout = Layout(d * t * p, t, p, m, recompute=ALL * recompute)
    stored, each = setting.model.stored, setting.model.each
    between, again = costs.kept(stored, layout, 4)
    own = stored._replace(layers=8 / p)
    works = weighed(works, 8 / p * between, again, where=lambda work: work.lanes[0])
    found = peaks(simulate(works))
    for s in range(p):
        said = costs.of_stage(own, layout, 4, each, s)
        assert found[s] == pytest.approx(said.activations)
    assert max(found.values()) == pytest.approx(held(stored, layout, 4).activations)


@given(st.integers(2, 8), st.integers(1, 3), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_sharded_step_peaks_at_most_a_layer_below_the_formula(layers, m, recompute):
    """The last gradients are made when the last layer's activations are gone."""
    setting = setting_of(layers, 4, 16 * m)
    plan = Layout(4, micro_batches=m, zero=3, recompute=recompute)
    works = forecast.agenda(setting, plan, one_forward_one_backward, needs)
    layout = Layout(4, micro_batches=m, zero=3, recompute=ALL * recompute)
    stored, each = setting.model.stored, setting.model.each
    between, again = costs.kept(stored, layout, 4)
    own = stored.layer * each.weight, stored.layer * each.gradient
    (found,) = peaks(simulate(weighed(works, between, again, *own))).values()
    said = held(stored, layout, 4, each)
    most = said.activations + said.gathered
    assert most - max(own[1], between) <= found <= most


@pytest.mark.parametrize("p, m", [(2, 3), (4, 8)])
def test_all_at_once_keeps_all_micro_batches(p, m):
    """GPipe's schedule, where 1F1B keeps no more than there are stages."""
    for schedule, most in ((gpipe, m), (one_forward_one_backward, min(m, p))):
        works = Agenda()
        put_plan(works, schedule(p, m), needs, lambda op: 1.0)
        found = peaks(simulate(weighed(works, 5.0, where=lambda work: work.lanes[0])))
        assert max(found.values()) == 5 * most


def test_what_ends_has_given_back_before_the_next_one_begins():
    works = Agenda()
    for name, seconds in (("forward", 1.0), ("backward", 0.0), ("forward", 1.0)):
        works.put(name, ["GPU"], seconds)
    works.put("backward", ["GPU"], 1.0)
    assert peaks(simulate(weighed(works, 3.0, again=1.0))) == {0: 4.0}


def test_gradients_that_wait_for_a_slow_network_pile_up():
    """No engine lets them: the formula has two layers of them."""
    layers = steps.Layers(6, 1e-3, 1e-3, 1e9, 1.0)
    works = steps.sharded(layers, Cluster(1, 4, Link(0.0, 1e9), FAST))
    assert peaks(simulate(weighed(works, 0.0, gradients=1.0)))[0] >= 2


# --------------------------------------------- what nothing here was fitted to


def llama_8b(sequence: int) -> Shape:
    return Shape(32, 4096, 14_336, False, 128_256, sequence, 32, 8)


def test_long_sequences_take_what_torchtitan_measured():
    """torchtitan, benchmarks/llama3_h100_202412: 8 H100, all recomputed, 32,768 tokens
    a GPU: 83.9 GiB reserved. Two thirds are logits, by the 14 bytes that are counted.
    """
    stored = costs.of_shape(llama_8b(32_768))
    found = held(stored, Layout(8, zero=3, recompute=ALL), 1)
    assert found.total / 2**30 == pytest.approx(83.9, rel=0.05)
    assert 0.6 < found.logits / found.total < 0.7


def test_sharding_over_more_saves_what_it_saved():
    """The same source, tables 1 and 3: 82.4 GiB on 8 GPUs, 67.0 on 128; compiled 77.0
    and 62.0. What selective recomputation keeps is the same, and not counted here.
    """
    stored = costs.of_shape(llama_8b(8192))
    few, many = (held(stored, Layout(n, zero=3), 2).total / 2**30 for n in (8, 128))
    assert few - many == pytest.approx(77.0 - 62.0, rel=0.1)
    assert few - many == pytest.approx(82.4 - 67.0, rel=0.1)


def test_of_what_is_reserved_a_fifth_may_be_gaps():
    """The same, table 4: 70 B on 32 x 8 GPUs, 16 sequences each: 71.9 GiB, or 67.6 if
    sums are cut up. So much too low is the count there, and no more.
    """
    shape = Shape(80, 8192, 28_672, False, 128_256, 8192, 64, 8)
    layout = Layout(256, 8, zero=3, recompute=ALL)
    said = held(costs.of_shape(shape), layout, 16).total / 2**30
    assert 0.8 < said / 71.9 < said / 67.6 < 0.9


def test_interleaved_stages_keep_more_micro_batches():
    """1 + (p - 1) / (p v) times as many on the first device (Korthikanti et al.)."""
    for p, v in ((4, 2), (8, 3), (16, 8)):
        layout = Layout(p, stages=p, micro_batches=8 * p, chunks=v)
        plain = costs.in_flight(layout._replace(chunks=1), 0)
        assert costs.in_flight(layout, 0) == pytest.approx(
            plain * (1 + (p - 1) / (p * v))
        )
        last = costs.in_flight(
            layout, p - 1
        )  # all its other chunks, once round, and one
        assert last == pytest.approx(((v - 1) * p + 1) / v)
        assert costs.in_flight(layout._replace(micro_batches=2), 0) == 2


def test_results_of_products_are_less_than_all_and_more_than_a_layer_s_input():
    """By hand for Llama 3 8B: input, two h; q, k, v, attention; wo; two inner."""
    shape = tables.model("llama-3-8b")
    model = presets.known_model(shape, 8192)
    stored, h, inner = model.stored, 4096, 14336
    kept_of = {
        kind: float(costs.kept(stored, Layout(1, recompute=kind), 1)[0])
        for kind in (NOTHING, SELECTIVE, ALL)
    }
    by_hand = 2 * h + (2 + 1 + 2) * h + 2 * h + 2 * 2 * inner
    assert kept_of[SELECTIVE] == 8192 * by_hand
    assert kept_of[ALL] < kept_of[SELECTIVE] < 0.6 * kept_of[NOTHING]
