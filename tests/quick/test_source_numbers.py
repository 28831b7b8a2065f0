"""The arithmetic behind the claims of the sources: their numbers, compared with others.

The page `sources-checked` shows about ten of these checks. The others are here, and
`manygpu/sources/claims.csv` names each of them as the evidence of its claims.
"""

import itertools
import math

import pytest

from manygpu import records
from manygpu.choosing import tables
from manygpu.simulate.cluster import LINKS

MNIST = 60_000  # training images
RUN_S = {1: 36, 2: 19, 4: 11, 8: 7}  # seconds for five epochs, by GPUs
EPOCH_S = {1: 20.0, 2: 10.5, 4: 5.8, 8: 3.5}
EXPECTED = {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.6, 16: 9.6}  # speedups
PARAMETERS = 331_000  # of the guide's table of memory


# The guide: times


def test_the_guides_four_lengths_of_a_step_disagree():
    steps = {batch: math.ceil(MNIST / batch) for batch in (256, 128)}
    of_an_epoch = 1e3 * EPOCH_S[1] / steps[256]
    of_the_run = {batch: 1e3 * RUN_S[1] / (5 * n) for batch, n in steps.items()}
    by_its_parts, of_the_split_model = 4.6, 2.0  # ms
    assert round(of_an_epoch) == 85
    assert round(of_the_run[256]) == 31
    # Even if the 2.0 ms are only a forward pass, a step is three times as long.
    assert round(of_the_run[128]) == 15 > 2 * 3 * of_the_split_model
    assert of_an_epoch > 18 * by_its_parts
    assert 5 * EPOCH_S[1] == 100 > 2 * RUN_S[1]


def test_a_backward_pass_of_lenet_has_nearly_twice_the_flops():
    first = 2 * 26 * 26 * 3 * 3 * 1 * 20
    forward = first + 2 * 9 * 9 * 5 * 5 * 20 * 50 + 2 * 800 * 128 + 2 * 128 * 10
    backward = 2 * forward - first  # the gradient of the images isn't needed
    assert 1.9 < backward / forward < 2 == 1.0 / 0.5  # the guide's milliseconds


def test_loss_and_update_are_calls_and_the_all_reduce_is_a_wire():
    """128 samples of ten classes, and Adam with 28 bytes per parameter, on a V100."""
    bandwidth = tables.gpu("v100-16").bandwidth
    loss_ms = 1e3 * 4 * 128 * 10 / bandwidth
    update_ms = 1e3 * 28 * PARAMETERS / bandwidth
    assert loss_ms < 1e-5 < 0.1
    assert 0.01 < update_ms < 0.011 < 0.3 / 25
    sent = 4 * PARAMETERS  # by each of two GPUs, in a ring
    low, high = (sent / (1e6 * ms) for ms in (0.35, 0.25))  # 0.3 ms, rounded; GB/s
    nvlink = tables.wire("NVLink 2").bandwidth / 1e9
    assert 3.7 < low < high < 5.4 < 2 * high < 12 < nvlink / 10


def test_the_file_of_training_images_has_60_000_of_them():
    assert MNIST == (47_040_016 - 16) / (28 * 28)


def test_the_loss_for_each_added_gpu_falls_with_each_doubling():
    added = {n: (n / s - 1) / (n - 1) for n, s in EXPECTED.items() if n > 1}
    assert sorted(added.values(), reverse=True) == list(added.values())
    assert round(added[2], 2) == 0.11 and added[16] < 0.05


def test_a_pipeline_that_limits_eight_gpus_limits_sixteen():
    fed = {(n, pipes): min(n, pipes * EXPECTED[8]) for n in (8, 16) for pipes in (1, 2)}
    assert fed[8, 1] == fed[16, 1] == EXPECTED[8] < EXPECTED[16]
    assert EXPECTED[16] < fed[16, 2]  # a second machine brings a second pipeline


# The guide: prices


def test_a_hundred_runs_cost_what_the_guide_prints_but_for_early_rounding():
    hours = {n: 100 * seconds / 3600 for n, seconds in RUN_S.items()}
    bill = {n: 2.5 * n * hours[n] for n in RUN_S}
    printed = {1: 2.50, 2: 2.65, 4: 3.10, 8: 3.80}
    assert [f"{dollars:.2f}" for dollars in bill.values()] == [
        "2.50",
        "2.64",
        "3.06",
        "3.89",
    ]
    for n, hour in hours.items():
        assert round(hour, 2) * 2.5 * n == pytest.approx(printed[n])
    assert 0.08 < max(abs(bill[n] - printed[n]) for n in bill) < 0.09
    assert [2.5 * n for n in RUN_S] == [2.5, 5.0, 10.0, 20.0]  # dollars per hour
    split_model = 42 * 5.0  # its seconds, and its dollars per hour
    assert round(split_model / (RUN_S[1] * 2.5), 1) == 2.3


def test_one_gpu_is_the_cheapest_of_the_guides_gpus():
    bill = {n: 2.5 * n * 100 * seconds / 3600 for n, seconds in RUN_S.items()}
    printed = {1: 2.50, 2: 2.65, 4: 3.10, 8: 3.80}
    assert min(bill, key=bill.get) == 1
    for of in (bill, printed):
        assert list(of.values()) == sorted(of.values())
    on_the_cpu = 100 * 811 / 3600 * 0.05
    assert on_the_cpu < bill[1] and round(on_the_cpu, 2) == 1.13


# The guide: memory


def test_the_guides_megabytes_are_units_of_two_to_the_twenty():
    size = 4 * PARAMETERS
    assert round(size / 1e6, 2) == 1.32 and round(size / 2**20, 2) == 1.26
    fitting = [n for n in range(331_000, 332_000) if round(4 * n / 2**20, 2) == 1.27]
    assert fitting[0] == 331_613 and fitting[-1] == 331_999


def parameters_of(padded: bool, pool_2: bool, norm_2: bool, dense: bool) -> int:
    """Count the parameters of a reading of the guide's network, averages included.

    Args:
        padded: the convolutions keep the size of their input.
        pool_2: there is a second pooling.
        norm_2: there is a second normalization.
        dense: there is a dense layer of 256.
    """
    side = (28 if padded else 26) // 2
    side = (side if padded else side - 2) // (2 if pool_2 else 1)
    # Two convolutions with biases; normalizations keep four numbers per channel.
    count = 9 * 32 + 32 + 4 * 32 + 9 * 32 * 64 + 64 + norm_2 * 4 * 64
    widths = [side * side * 64, *([256] if dense else []), 10]
    return count + sum((a + 1) * b for a, b in itertools.pairwise(widths))


def test_no_reading_of_the_guides_network_has_331_thousand_parameters():
    readings = [parameters_of(*r) for r in itertools.product([False, True], repeat=4)]
    nearest = min(readings, key=lambda n: abs(n - PARAMETERS))
    picture = parameters_of(False, False, True, True)
    first_half = 9 * 32 + 32 + 4 * 32  # a convolution, its biases, a normalization
    assert (picture, first_half, nearest) == (2_004_490, 448, 431_370)
    assert parameters_of(False, False, False, False) == 96_394  # the code, as it is


def test_the_guides_numbers_of_layers_disagree():
    first = ["Conv2D", "BatchNorm", "MaxPooling"]
    second = ["Conv2D", "BatchNorm", "Flatten", "Dense", "Output"]
    in_the_picture = [3 - 0 + 1, 8 - 4 + 1]
    in_best_practices = [5 - 0 + 1, 10 - 6 + 1]
    assert in_the_picture == [1 + len(first), len(second)]  # layer 0: the input
    assert sum(in_the_picture) == 9 and sum(in_best_practices) == 11


def test_gpt_3s_weights_fill_more_than_four_gpus_of_80_gb():
    parameters = 175e9
    assert 2 * parameters == 350e9 > 4 * 80e9
    assert 16 * parameters == 2_800e9  # with gradients and Adam's state


def test_the_tensors_of_the_guides_cut_fit_pcie_3():
    side = (28 - 3 + 1) // 2  # a 3 x 3 convolution without padding, then pooling
    crossing = 4 * 256 * side * side * 32  # bytes in float32, for 256 samples
    low, high = (crossing / seconds / 1e9 for seconds in (2e-3, 0.5e-3))
    pcie_3 = 16 * 8 * 128 / 130 / 8  # GB/s: 16 lanes of 8 Gbit/s, 128 of 130 bits
    assert side == 13 and 2.5 < low < 3 and 11 < high < 12 < pcie_3 < 16
    assert LINKS["PCIe 5"].seconds(crossing) < 0.1e-3


# What makes a step scale


def test_a_second_gpu_on_a_slow_link_makes_a_step_longer():
    work_ms, bytes_sent, bandwidth = 10, 100e6, 12.5e9
    summing_ms = 1e3 * 2 * (2 - 1) / 2 * bytes_sent / bandwidth
    assert summing_ms == 8 and work_ms / 2 + summing_ms > work_ms


def test_more_samples_make_more_work_per_byte_of_a_dense_layer():
    def intensity(batch: int, width: int = 4096) -> float:
        moved = 4 * (batch * width + width * width + batch * width)
        return 2 * batch * width * width / moved

    per_byte = [intensity(batch) for batch in (1, 16, 256, 4096)]
    assert sorted(per_byte) == per_byte
    assert round(per_byte[0], 1) == 0.5 and round(per_byte[2]) == 114


def test_a_wider_layer_has_no_more_work_per_byte_that_it_sends():
    def work(batch: int, width: int, positions: int = 1) -> float:
        return 6 * batch * positions * width**2 / (4 * width**2)

    assert {work(64, width) for width in (128, 1024, 8192)} == {96}
    assert work(128, 128) == 2 * 96  # more samples do
    assert work(64, 128, positions=81) == 81 * 96  # and so does a convolution


def test_the_order_of_links_is_one_of_links_that_are_met_together():
    names = ("NVLink 4", "PCIe 5", "Ethernet 100G")
    rates = [LINKS[name].bandwidth / 1e9 for name in names]
    assert all(5 < a / b < 7.1 for a, b in itertools.pairwise(rates))
    assert rates[0] > 800 / 8 > rates[1]  # Ethernet 800G is faster than PCIe 5


def test_nccl_reaches_about_four_fifths_of_nvlink():
    """Measured by others, on eight GPUs: the source is in the table of wires."""
    for name in ("NVLink 3", "NVLink 4"):
        wire = tables.wire(name)
        assert 0.75 < wire.reached / wire.bandwidth < 0.85


def test_megatrons_cut_through_layers_divides_the_work():
    """Billions of parameters and milliseconds of a step, from its authors' table."""
    table = {1: (1.2, 1288), 2: (2.0, 1242), 4: (4.2, 1357), 8: (8.7, 1508)}
    larger = {n: billions / table[1][0] for n, (billions, _) in table.items()}
    longer = {n: ms / table[1][1] for n, (_, ms) in table.items()}
    assert larger[8] > 7 and longer[8] < 1.2
    assert all(larger[n] / longer[n] > 0.75 * n for n in table)


# The article


def test_meeting_seldom_evens_out_only_what_changes():
    def seconds(rounds: list, meet_every: int) -> int:
        starts = range(0, len(rounds), meet_every)
        sums = [map(sum, zip(*rounds[i : i + meet_every], strict=True)) for i in starts]
        return sum(map(max, sums))

    alternately, always = [(1, 2), (2, 1)] * 4, [(1, 2), (1, 2)] * 4
    assert [seconds(alternately, n) for n in (1, 2)] == [16, 12]
    assert [seconds(always, n) for n in (1, 2)] == [16, 16]


def test_an_order_of_reading_saves_traffic_and_no_room():
    side = 4096
    whole = 4 * side * side

    def product(tile: int) -> tuple[int, int]:
        """Bytes that a product holds, and that it moves if each tile is read once."""
        return 3 * whole, 2 * whole * side // tile + whole

    (held, moved), (same, less) = product(1), product(64)
    assert same == held and moved > 60 * less
    assert whole == 32 * (4 * 128 * side)  # scores, stored whole or by blocks of rows


def test_a_single_gpu_needs_ten_days_at_most_for_resnet_on_imagenet():
    """256 GPUs need an hour at 90% of the efficiency of eight (Goyal et al. 2017)."""
    days = 1 * 256 * 0.9 / 24  # if eight are eight times as fast as one
    assert 9 < days < 10


# The slides


def test_a_slice_of_a_short_list_of_gpus_raises_nothing():
    gpus = ["/device:GPU:0"]
    assert len(gpus[:2]) == 1


def test_the_slides_network_has_129_068_parameters():
    after_1 = (28 - 3 + 1) // 2
    after_2 = (after_1 - 5 + 1) // 2
    features = after_2 * after_2 * 50
    weights = 9 * 1 * 20 + 25 * 20 * 50 + features * 128 + 128 * 10
    total = weights + 20 + 50 + 128 + 10
    assert (after_2, features, total) == (4, 800, 129_068)
    assert features * 128 > 0.79 * total
    assert 1000 * 16 * total < 80e9  # with Adam, a thousand times over


def test_the_slides_weights_guess_for_an_epoch_and_end_at_their_accuracy():
    runs = records.load("source-experiment")["runs"]
    kept = [run for run in runs if (run["step"], run["init"]) == ("eager", "source")]
    first = [run["per_epoch"][0]["test_accuracy"] for run in kept]
    last = [run["per_epoch"][-1]["test_accuracy"] for run in kept]
    assert len(first) == 2 and max(first) < 0.15
    assert all(abs(end - 0.84) < 0.02 for end in last)
