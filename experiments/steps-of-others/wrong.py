"""Wrong steps on lists of variables: mistakes that were reported somewhere."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import tensorflow as tf
from cases import case
from net import (
    CLASSES,
    FEATURES,
    SHAPES,
    added_up,
    cross_entropies,
    draw,
    gradients_of,
    in_order,
    loop,
    numbers,
    on_each,
    over,
    sgd,
    state_of,
    subject,
    summed,
)
from right import (
    CLASS_WEIGHTS,
    DROPOUT,
    STEEP,
    class_weighed,
    contrasted,
    contrastive_features,
    draw_pairs,
    draw_words,
    dropped,
    embedded,
    in_pieces,
    masked,
    normed,
    scaled_loss,
    some_ignored,
    sparse_and_dense,
    valid,
    with_dropout,
    zero_1,
)

from manygpu.prove import Training


def mean_of_means(found, counts, _):
    """What a mean over devices makes of the shares' means."""
    means = [
        [g / tf.maximum(tf.cast(c, g.dtype), tf.cast(1e-3, g.dtype)) for g in own]
        for own, c in zip(found, counts)
    ]
    return [tf.add_n(list(g)) / len(found) for g in zip(*means)]


# Who divides by what


@case("wrong", "shares")
def tokens_per_rank():
    """Each rank divides by its own valid targets, no reference (prime-rl #1957)."""
    count = lambda X, y: tf.maximum(valid(X, y), 1.0)  # noqa: E731
    start = partial(loop, gradients=gradients_of(masked), count=count)
    start = partial(start, reduce=mean_of_means)
    return subject(None, some_ignored, start=start)


@case("wrong", "shares", "devices")
def class_weights_per_rank():
    """Each rank divides by its own classes' weights (speculators #942)."""
    count = lambda X, y: tf.reduce_sum(tf.gather(CLASS_WEIGHTS, y))  # noqa: E731
    own = {"gradients": gradients_of(class_weighed), "count": count}
    return subject(None, start=partial(loop, reduce=mean_of_means, **own))


def times(k):
    def reduce(found, counts, d):
        return [k * g for g in added_up(found, counts, d)]

    return reduce


@case("wrong", "mean")
def four_times():
    """The devices' means are added up, on exactly four devices."""
    only = {"least_devices": 4, "most_devices": 4}
    return subject(reduce=times(4), about=only)


@case("wrong", "mean")
def four_times_even():
    """The same, in a step that takes even shares only."""
    only = {"least_devices": 4, "most_devices": 4, "even": True}
    return subject(reduce=times(4), about=only)


@case("wrong", "mean")
def three_times_even():
    """The same on exactly three devices."""
    only = {"least_devices": 3, "most_devices": 3, "even": True}
    return subject(reduce=times(3), about=only)


@case("wrong", "parameter")
def sparse_summed():
    """The sparse gradient is summed, the dense one averaged (horovod #2279)."""

    def reduce(found, counts, d):
        rows, dense = added_up(found, counts, d)
        return [len(found) * rows, dense]

    reference, params = gradients_of(embedded), numbers((9, 5), (5, CLASSES))
    start = partial(loop, gradients=sparse_and_dense, reduce=reduce)
    return subject(reference, draw_words, params, start=start)


@case("wrong", "loss")
def loss_of_one_replica():
    """The loss of the first replica, times k, is reported (tensorflow #45923)."""

    def loss(losses, counts):
        return losses[0] * len(losses) / sum(counts)

    return subject(loss=loss)


@case("wrong", "data")
def leftover_dropped():
    """Micro-batches of two; what is left over isn't used."""

    def pieces(X, y, own):
        whole = len(X) // 2 * 2
        if not whole:
            return summed(X, y, own)
        return in_pieces(X[:whole], y[:whole], own, pieces=whole // 2)

    return subject(start=partial(loop, gradients=pieces))


@case("wrong", "copies")
def synced_at_the_first_piece():
    """Of the micro-batches, only the first is reduced (FunASR #3472)."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)

        def take(X, y):
            firsts, rests = [], []
            for (x, t), own in over(devices, in_order(X, y, k), replicas):
                firsts.append(summed(x[:1], t[:1], own)[1])
                rests.append(summed(x[1:], t[1:], own)[1])
            first = [tf.add_n(list(g)) for g in zip(*firsts)]
            for own, rest in over(devices, replicas, rests):
                sgd(
                    own,
                    [(a + k * b) / len(X) for a, b in zip(first, rest)],
                    {},
                )

        return Training(take, lambda: replicas)

    return subject(start=start)


# Clipping


@case("wrong", "clipping")
def zero_1_own_norm():
    """The norm is that of a gradient that isn't reduced yet (llm.c #524)."""
    return subject(
        start=partial(zero_1, norm_of="own"), about={"rule": "clipped"}, **STEEP
    )


@case("wrong", "clipping")
def clipped_before_unscaling():
    """A gradient is clipped while the loss scale is in it (returnn #1595)."""

    def update(own, mean, slots):
        scale = tf.minimum(tf.cast(1.0, "float64"), 1 / tf.linalg.global_norm(mean))
        sgd(own, [scale * g / 1024 for g in mean], slots)

    start = partial(loop, gradients=scaled_loss(1024), update=update)
    return subject(start=start, about={"rule": "clipped"}, **STEEP)


# What each device does alone


@case("wrong", "devices")
def own_negatives():
    """A contrastive loss with the negatives of the own device (similarity #258)."""

    def own(X, y, p):
        return tf.reduce_sum(contrasted(*contrastive_features(X, y, p)))

    params = numbers((FEATURES, 6), (FEATURES, 6))
    start = partial(loop, gradients=gradients_of(own))
    return subject(None, draw_pairs, params, start=start)


@case("wrong", "devices")
def sam_by_own_gradient():
    """SAM climbs by each device's own gradient (sam #78)."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)

        def take(X, y):
            found = []
            for (x, t), own in over(devices, in_order(X, y, k), replicas):
                up = summed(x, t, own)[1]
                far = 0.3 / (tf.linalg.global_norm(up) + 1e-12)
                moved = [tf.Variable(v + far * g) for v, g in zip(own, up)]
                found.append(summed(x, t, moved)[1])
            for own in over(devices, replicas):
                sgd(own, added_up(found, [len(X)], 0), {})

        return Training(take, lambda: replicas)

    return subject(None, start=start)


@case("wrong", "kept")
def running_mean_of_own():
    """The running mean is that of each device's own samples (amago #43)."""
    return subject(
        None, start=normed("own", lambda hs: tf.nn.moments(tf.concat(hs, 0), [0]))
    )


def mean_of_moments(hs):
    """Average the devices' means and variances, whatever their shares."""
    both = [tf.nn.moments(h, [0]) for h in hs]
    return [tf.add_n(list(one)) / len(hs) for one in zip(*both)]


@case("wrong", "devices")
def synced_norm_of_means():
    """A synced norm averages the devices' means and variances (Paddle #32464)."""
    return subject(None, start=normed("all", mean_of_moments))


@case("wrong", "state", "kept")
def own_buffer():
    """A buffer of the last own samples is used in the next step (pytorch #63916)."""

    def kept(own):
        return {"center": [tf.Variable(tf.zeros(FEATURES, tf.float64))]}

    def gradients(X, y, own, slots):
        found = summed(X - slots["center"][0], y, own)
        if len(X):
            slots["center"][0].assign(tf.reduce_mean(X, 0))
        return found

    return subject(start=partial(loop, gradients=gradients, kept=kept))


@case("wrong", "random")
def seed_stays():
    """Dropout's seed never goes on (keras #20378)."""
    start = partial(with_dropout, goes_on=(0, 0))
    return subject(None, start=start, about=DROPOUT)


@case("wrong", "random")
def same_mask():
    """All replicas begin with one seed, and drop the same units."""
    start = partial(with_dropout, first=lambda d: [7, 0])
    return subject(None, start=start, about=DROPOUT)


@case("wrong", "kept")
def average_with_wrong_sign():
    """An average of the weights moves away from them (ai-toolkit #1034)."""

    def update(own, mean, slots):
        sgd(own, mean, slots)
        for a, v in zip(slots["average"], own):
            a.assign_add(0.01 * (a - v))

    kept = lambda own: {"average": [tf.Variable(v) for v in own]}  # noqa: E731
    return subject(update=update, kept=kept)


# Hard to see


@case("hard", "random")
def same_mask_by_numbers_drawn():
    """One seed on all replicas; it goes on by as many numbers as were drawn."""

    def start(params, devices):
        replicas, seeds = on_each(params, devices), []
        for device in devices:
            with tf.device(device):
                seeds.append(tf.Variable(tf.constant([7, 0], tf.int64)))

        def take(X, y):
            found = []
            shares = in_order(X, y, len(devices))
            for (x, t), own, seed in over(devices, shares, replicas, seeds):
                gradients = gradients_of(partial(dropped, seed=seed.read_value()))
                found.append(gradients(x, t, own)[1])
                seed.assign_add(tf.constant([len(x) * 7, 0], tf.int64))
            for own in over(devices, replicas):
                sgd(own, added_up(found, [len(X)], 0), {})

        return Training(take, lambda: replicas, lambda: {"seed": seeds})

    return subject(None, start=start, about=DROPOUT)


@case("hard", "kept")
def average_updated_k_times():
    """An average of the weights is updated once for each device."""

    def start(params, devices):
        replicas = on_each(params, devices)
        averages = on_each(params, devices)

        def take(X, y):
            shares = in_order(X, y, len(devices))
            found = [
                summed(x, t, own)[1] for (x, t), own in over(devices, shares, replicas)
            ]
            for own in over(devices, replicas):
                sgd(own, added_up(found, [len(X)], 0), {})
            for average in over(devices, averages):
                for own in replicas:
                    for a, v in zip(average, own):
                        a.assign(0.9 * a + 0.1 * v)

        state = partial(state_of, [{"average": own} for own in averages])
        return Training(take, lambda: replicas, state)

    return subject(start=start)


def scaling(halved=True, all_agree=True):
    """Start a training with a loss scale that halves, and doubles after two steps."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)
        scales = [tf.Variable(1024.0) for _ in devices]
        good = [tf.Variable(0, dtype=tf.int64) for _ in devices]

        def take(X, y):
            scale = float(scales[0])
            shares = in_order(X, y, k)
            own = gradients_of(
                lambda X, y, p: scale * tf.reduce_sum(cross_entropies(X, y, p))
            )
            found = [own(x, t, p)[1] for (x, t), p in over(devices, shares, replicas)]
            mean = [g / scale for g in added_up(found, [len(X)], 0)]
            fine = [all(np.isfinite(g).all() for g in grads) for grads in found]
            for d, p in over(devices, range(k), replicas):
                if all(fine):
                    sgd(p, mean, {})
                    good[d].assign((good[d] + 1) % 2)
                    scales[d].assign(scales[d] * (2.0 if good[d] == 0 else 1.0))
                elif not fine[d] or all_agree:
                    good[d].assign(0)
                    if halved:
                        scales[d].assign(scales[d] / 2)

        return Training(take, lambda: replicas, lambda: {"scale": scales, "good": good})

    return start


@case("hard", "overflow", "kept")
def scale_not_halved():
    """A step that isn't finite is skipped, and the loss scale stays."""
    return subject(start=scaling(halved=False), about={"guarded": True})


@case("hard", "overflow", "kept")
def scale_halved_by_one():
    """Only the device that saw an infinity halves its loss scale."""
    return subject(start=scaling(all_agree=False), about={"guarded": True})


@case("hard", "clipping")
def clipped_by_mean_of_norms():
    """The mean gradient is clipped by the mean of the devices' norms."""

    def reduce(found, counts, d):
        norms = [
            tf.linalg.global_norm([g / c for g in own]) for own, c in zip(found, counts)
        ]
        norm = tf.add_n(norms) / len(norms)
        scale = tf.minimum(tf.cast(1.0, "float64"), 1.0 / (norm + 1e-6))
        return [scale * g for g in added_up(found, counts, d)]

    return subject(reduce=reduce, about={"rule": "clipped"}, **STEEP)


@case("hard", "shares")
def mean_of_means_in_bfloat16():
    """The mean of the devices' means, weights and all in bfloat16."""
    params = numbers(*SHAPES, dtype=ml_dtypes.bfloat16)
    cast = partial(draw, dtype=ml_dtypes.bfloat16)
    return subject(draw=cast, params=params, reduce=mean_of_means)


@case("hard", "clipping")
def clipped_per_device():
    """Each device clips its own mean gradient; with a reference."""

    def reduce(found, counts, d):
        own = [[g / c for g in grads] for grads, c in zip(found, counts)]
        clipped = [tf.clip_by_global_norm(grads, 1.0)[0] for grads in own]
        n = sum(counts)
        weighed = [[g * c / n for g in o] for o, c in zip(clipped, counts)]
        return [tf.add_n(list(g)) for g in zip(*weighed)]

    return subject(reduce=reduce, about={"rule": "clipped"}, **STEEP)


@case("hard", "mean")
def products_in_bfloat16_k_times():
    """Products in bfloat16, and the devices' means are added up."""
    from net import draw32
    from right import PARAMS_32, products_in

    def reduce(found, counts, d):
        return [len(found) * g for g in added_up(found, counts, d)]

    return subject(products_in(tf.bfloat16), draw32, PARAMS_32, reduce=reduce)


@case("hard", "shares")
def products_in_bfloat16_mean_of_means():
    """Products in bfloat16, and uneven shares weigh alike."""
    from net import draw32
    from right import PARAMS_32, products_in

    return subject(products_in(tf.bfloat16), draw32, PARAMS_32, reduce=mean_of_means)


@case("hard", "shares", "devices")
def sent_in_float16_mean_of_means():
    """Means are sent in float16, and uneven shares weigh alike; no reference."""
    from net import draw32
    from right import PARAMS_32

    def reduce(found, counts, d):
        sent = [[tf.cast(tf.cast(g, "float16"), g.dtype) for g in own] for own in found]
        return mean_of_means(sent, counts, d)

    start = partial(loop, reduce=reduce)
    return subject(None, draw32, PARAMS_32, start=start)
