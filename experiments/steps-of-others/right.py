"""Right steps on lists of variables, as people write them."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf
from cases import case
from net import (
    CLASSES,
    FEATURES,
    HIDDEN,
    RATE,
    SHAPES,
    a_count,
    added_up,
    cross_entropies,
    draw,
    draw32,
    gradients_of,
    in_order,
    like,
    loop,
    numbers,
    on_each,
    over,
    sgd,
    subject,
    summed,
)

from manygpu.prove import Training

# Gradients in pieces, and who has which samples


def in_pieces(X, y, own, *, pieces=2):
    """Add up the gradients of micro-batches; the last one may be smaller."""
    size = max(1, -(-len(X) // pieces))
    total, sums = 0.0, None
    for at in range(0, max(1, len(X)), size):
        loss, grads = summed(X[at : at + size], y[at : at + size], own)
        total += loss
        sums = grads if sums is None else [a + b for a, b in zip(sums, grads)]
    return total, sums


@case("right")
def accumulation():
    """Micro-batches are added up on each device, and reduced after the last one."""
    return subject(start=partial(loop, gradients=in_pieces))


@case("right")
def last_window():
    """Micro-batches of two samples; what is left over makes a smaller last one."""
    pieces = lambda X, y, own: in_pieces(X, y, own, pieces=max(1, -(-len(X) // 2)))  # noqa: E731
    return subject(start=partial(loop, gradients=pieces))


def like_cards(X, y, k):
    """Deal the samples out one by one."""
    return [(X[d::k], y[d::k]) for d in range(k)]


@case("right")
def dealt_like_cards():
    """Each device takes every k-th sample."""
    return subject(cut=like_cards)


@case("right")
def fast_device():
    """The first device is faster, and takes half of the batch."""

    def cut(X, y, k):
        first = len(X) if k == 1 else len(X) // 2
        rest = in_order(X[first:], y[first:], k - 1) if k > 1 else []
        return [(X[:first], y[:first]), *rest]

    return subject(cut=cut)


@case("right")
def last_takes_the_rest():
    """All shares have n // k samples, and the last device takes what is left."""

    def cut(X, y, k):
        size = len(X) // k
        ends = [*(d * size for d in range(k)), len(X)]
        return [(X[a:b], y[a:b]) for a, b in zip(ends, ends[1:])]

    return subject(cut=cut)


@case("right")
def padded_with_weight_zero():
    """Short shares are filled up with a sample of weight 0."""

    def cut(X, y, k):
        size = -(-len(X) // k)
        more = size * k - len(X)
        X = tf.concat([X, tf.zeros((more, FEATURES), X.dtype)], 0)
        y = tf.concat([y, -tf.ones((more,), y.dtype)], 0)
        return list(zip(tf.split(X, k), tf.split(y, k)))

    def weighed(X, y, p):
        each = cross_entropies(X, tf.maximum(y, 0), p)
        return tf.reduce_sum(tf.cast(y >= 0, each.dtype) * each)

    count = lambda X, y: tf.reduce_sum(tf.cast(y >= 0, tf.float64))  # noqa: E731
    return subject(
        start=partial(loop, gradients=gradients_of(weighed), cut=cut, count=count)
    )


@case("right")
def reports_its_loss():
    """The losses are summed over the devices, and divided by all samples."""
    return subject(loss=lambda losses, counts: tf.add_n(losses) / sum(counts))


# What is done with the whole gradient


def clipped_update(most, by=tf.linalg.global_norm):
    def update(own, mean, slots):
        scale = tf.minimum(tf.cast(1.0, mean[0].dtype), most / (by(mean) + 1e-6))
        sgd(own, [scale * g for g in mean], slots)

    return update


STEEP = {"params": numbers(*SHAPES, size=2.0)}


@case("right")
def clipped_to_one():
    """The mean gradient is clipped to a norm of 1, as PyTorch does."""
    return subject(update=clipped_update(1.0), about={"rule": "clipped"}, **STEEP)


@case("right")
def clipped_to_half():
    """The mean gradient is clipped to a norm of 0.5; no reference is given."""
    return subject(None, update=clipped_update(0.5), **STEEP)


@case("right", of_rule=True)
def clipped_to_half_known():
    """The mean gradient is clipped to a norm of 0.5, with a reference."""
    return subject(update=clipped_update(0.5), about={"rule": "clipped"}, **STEEP)


@case("right")
def clipped_by_value():
    """Each number of the mean gradient is kept between -0.1 and 0.1."""

    def update(own, mean, slots):
        sgd(own, [tf.clip_by_value(g, -0.1, 0.1) for g in mean], slots)

    return subject(None, update=update, **STEEP)


@case("right")
def clipped_each_parameter():
    """The mean gradient of each parameter is clipped alone."""

    def update(own, mean, slots):
        sgd(own, [tf.clip_by_norm(g, 0.2) for g in mean], slots)

    return subject(None, update=update, **STEEP)


def scaled_loss(scale):
    def total(X, y, p):
        return scale * tf.reduce_sum(cross_entropies(X, y, p))

    return gradients_of(total)


@case("right")
def clipped_after_unscaling():
    """A loss scale of 1024 is taken out of the gradient before it is clipped."""

    def update(own, mean, slots):
        clipped_update(1.0)(own, [g / 1024 for g in mean], slots)

    start = partial(loop, gradients=scaled_loss(1024), update=update)
    return subject(start=start, about={"rule": "clipped"}, **STEEP)


def zero_1(params, devices, norm_of="whole"):
    """Start a training in which rank d updates the parameters d, d + k, ... alone."""
    replicas, k = on_each(params, devices), len(devices)

    def take(X, y):
        found, n = [], len(X)
        for own, share in over(devices, replicas, in_order(X, y, k)):
            found.append(summed(*share, own)[1])
        mean = [tf.add_n(list(g)) / n for g in zip(*found)]
        norms = [tf.linalg.global_norm(mean)] * k
        if norm_of == "own":
            norms = [k * tf.linalg.global_norm([g / n for g in own]) for own in found]
        for p, g in enumerate(mean):
            with tf.device(devices[p % k]):
                scale = tf.minimum(1.0, 1.0 / (tf.cast(norms[p % k], "float64") + 1e-6))
                new = replicas[p % k][p] - RATE * tf.cast(scale, "float64") * g
            for own in over(devices, replicas):
                own[p].assign(new)

    return Training(take, lambda: replicas)


@case("right")
def zero_1_whole_norm():
    """Each rank updates its parameters and sends them; clipped by the whole norm."""
    return subject(start=zero_1, about={"rule": "clipped"}, **STEEP)


@case("right")
def update_on_first():
    """The first device keeps the momentum, updates, and broadcasts the weights."""

    def start(params, devices):
        replicas = on_each(params, devices)
        with tf.device(devices[0]):
            velocity = like(replicas[0])

        def take(X, y):
            found = [
                summed(*share, own)[1]
                for share, own in over(devices, in_order(X, y, len(devices)), replicas)
            ]
            for p, (v, *g) in enumerate(zip(velocity, *found)):
                with tf.device(devices[0]):
                    v.assign(0.9 * v + tf.add_n(g) / len(X))
                    replicas[0][p].assign_sub(RATE * v)
                for own, device in zip(replicas[1:], devices[1:]):
                    with tf.device(device):
                        own[p].assign(replicas[0][p])

        def state():
            nothing = [None] * (len(devices) - 1)
            return {f"velocity {i}": [v, *nothing] for i, v in enumerate(velocity)}

        return Training(take, lambda: replicas, state)

    return subject(start=start, about={"rule": "momentum"})


@case("right")
def sharpness_aware():
    """SAM climbs by the mean gradient, and descends by the gradient found there."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)

        def mean_at(X, y, weights):
            shares = in_order(X, y, k)
            found = [
                summed(*one, own)[1] for one, own in over(devices, shares, weights)
            ]
            return [tf.add_n(list(g)) / len(X) for g in zip(*found)]

        def take(X, y):
            up = mean_at(X, y, replicas)
            far = 0.3 / tf.linalg.global_norm(up)
            moved = [
                [tf.Variable(v + far * g) for v, g in zip(own, up)]
                for own in over(devices, replicas)
            ]
            mean = mean_at(X, y, moved)
            for own in over(devices, replicas):
                sgd(own, mean, {})

        return Training(take, lambda: replicas)

    return subject(None, start=start)


# Nets of other forms


def draw_words(samples, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 9, (samples, 3)), rng.integers(0, CLASSES, samples)


def embedded(X, y, p):
    """The sum of three words' rows, then a dense layer."""
    h = tf.reduce_sum(tf.gather(p[0], X), 1)
    logits = h @ p[1]
    return tf.reduce_sum(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    )


def sparse_and_dense(X, y, own):
    """Keep the table's gradient sparse until it is summed."""
    with tf.GradientTape() as tape:
        loss = embedded(X, y, own)
    table, dense = tape.gradient(loss, own)
    rows = tf.scatter_nd(table.indices[:, None], table.values, own[0].shape)
    return loss, [rows, dense]


@case("right")
def sparse_averaged():
    """An embedding's sparse gradient is averaged as the dense ones are."""
    reference, params = gradients_of(embedded), numbers((9, 5), (5, CLASSES))
    start = partial(loop, gradients=sparse_and_dense)
    return subject(reference, draw_words, params, start=start)


@case("right")
def tied_embedding():
    """One table embeds the words, and makes the logits of the next."""

    def total(X, y, p):
        h = tf.tanh(tf.reduce_sum(tf.gather(p[0], X), 1) @ p[1])
        logits = h @ tf.transpose(p[0])
        return tf.reduce_sum(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )

    return subject(gradients_of(total), draw_words, numbers((9, 5), (5, 5)))


@case("right")
def frozen_layer():
    """The first layer is frozen: its gradient is 0, and nothing moves it."""

    def total(X, y, p):
        return tf.reduce_sum(
            cross_entropies(X, y, [*map(tf.stop_gradient, p[:2]), *p[2:]])
        )

    return subject(gradients_of(total))


def with_l2(X, y, p):
    """The sum of the samples' losses, each with the L2 of all weights."""
    l2 = tf.add_n([tf.nn.l2_loss(w) for w in p])
    return tf.reduce_sum(cross_entropies(X, y, p) + 0.02 * l2)


@case("right")
def l2_in_loss():
    """L2 is in the loss, and in the reference."""
    return subject(gradients_of(with_l2))


def normed_gradients(devices, shares, replicas, variances, n, normal=None):
    """Return the loss, the sum of the gradients, each device's h, and the mean.

    Each device goes back alone, but for the two sums, which all of them wait for.
    """
    normal = normal or (lambda h, m, v: (h - m) / tf.sqrt(v + 1e-3))
    first, hs = [], []
    for (x, _), own in over(devices, shares, replicas):
        with tf.GradientTape() as tape:
            hs.append(x @ own[0])
        first.append(tape)
    with tf.GradientTape() as between:
        between.watch(hs)
        stats = variances(hs)
    losses, back = [], []
    for (_, t), h, own in over(devices, shares, hs, replicas):
        with tf.GradientTape() as tape:
            tape.watch([h, *stats])
            z = tf.tanh(normal(h, *stats)) @ own[2] + own[3]
            losses.append(
                tf.reduce_sum(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=t, logits=z)
                )
                / n
            )
        back.append(tape.gradient(losses[-1], [*own, h, *stats], None, "zero"))
    of_stats = [tf.add_n([one[-2 + i] for one in back]) for i in range(2)]
    of_hs = between.gradient(list(stats), hs, of_stats)
    found = []
    for tape, h, own, one, more in over(devices, first, hs, replicas, back, of_hs):
        before = tape.gradient(h, own[0], one[-3] + more)
        found.append([one[0] + before, *one[1 : len(own)]])
    mean = [tf.add_n(list(g)) for g in zip(*found)]
    return tf.add_n(losses), mean, hs, stats[0]


def normed(parts, variances):
    """A layer normalized over the whole batch; each device sends two sums."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)
        kept = [[tf.Variable(tf.zeros(HIDDEN, tf.float64))] for _ in devices]

        def take(X, y):
            shares = in_order(X, y, k)
            loss, grads, hs, mean = normed_gradients(
                devices, shares, replicas, variances, len(X)
            )
            for own, (average,), h in over(devices, replicas, kept, hs):
                sgd(own, grads, {})
                seen = mean if parts == "all" else tf.reduce_mean(h, 0)
                average.assign(0.9 * average + 0.1 * seen)
            return loss

        def state():
            return {"running mean": [own[0] for own in kept]}

        return Training(take, lambda: replicas, state)

    return start


def of_all(hs):
    return tf.nn.moments(tf.concat(hs, 0), [0])


def weighed_moments(hs):
    """Add up sums and squares, which the samples of each share weigh."""
    n = sum(len(h) for h in hs)
    mean = tf.add_n([tf.reduce_sum(h, 0) for h in hs]) / n
    return mean, tf.add_n([tf.reduce_sum(h * h, 0) for h in hs]) / n - mean**2


@case("right")
def synced_norm():
    """A normalization over the batch, whose two sums are those of all devices."""
    return subject(None, start=normed("all", weighed_moments))


@case("right")
def running_mean_of_all():
    """The running mean is that of the whole batch on each replica."""
    return subject(None, start=normed("all", of_all))


@case("right")
def float32():
    """Everything is float32."""
    params = numbers(*SHAPES, dtype=np.float32)
    return subject(draw=draw32, params=params)


# Losses that aren't a mean over samples


def some_ignored(samples, seed):
    X, y = draw(samples, seed)
    off = np.random.default_rng(seed + 77).random(samples) < 0.4
    off[seed % samples] = False
    return X, np.where(off, -1, y)


def masked(X, y, p):
    each = cross_entropies(X, tf.maximum(y, 0), p)
    return tf.reduce_sum(tf.cast(y >= 0, each.dtype) * each)


def valid(X, y):
    return tf.reduce_sum(tf.cast(y >= 0, tf.float64))


@case("right")
def masked_counted_globally():
    """The mean over the valid targets of the whole batch; no reference."""
    own = gradients_of(masked)
    start = partial(loop, gradients=own, count=valid)
    return subject(None, some_ignored, start=start)


@case("right")
def masked_counted_globally_known():
    """The mean over the valid targets of the whole batch, with a reference."""
    return subject(gradients_of(masked), some_ignored, count=valid)


CLASS_WEIGHTS = np.array([0.5, 1.0, 2.0, 4.0])


def class_weighed(X, y, p):
    return tf.reduce_sum(tf.gather(CLASS_WEIGHTS, y) * cross_entropies(X, y, p))


@case("right")
def class_weights_as_keras():
    """Class weights; the sum is divided by the samples, as Keras does."""
    return subject(gradients_of(class_weighed))


@case("right")
def class_weights_summed():
    """Class weights; the sum is divided by all weights of the batch."""
    count = lambda X, y: tf.reduce_sum(tf.gather(CLASS_WEIGHTS, y))  # noqa: E731
    own = gradients_of(class_weighed)
    return subject(None, start=partial(loop, gradients=own, count=count))


@case("right")
def regularized_over_k():
    """Each device adds its k-th part of the L2, and sums make it whole."""

    def start(params, devices):
        def own(X, y, p):
            l2 = 0.02 * tf.add_n([tf.nn.l2_loss(w) for w in p]) / len(devices)
            return tf.reduce_sum(cross_entropies(X, y, p)), l2

        replicas = on_each(params, devices)

        def take(X, y):
            found = []
            for (x, t), p in over(devices, in_order(X, y, len(devices)), replicas):
                with tf.GradientTape() as tape:
                    loss, l2 = own(x, t, p)
                    part = loss / len(X) + l2
                found.append(tape.gradient(part, p))
            for p in over(devices, replicas):
                sgd(p, [tf.add_n(list(g)) for g in zip(*found)], {})

        return Training(take, lambda: replicas)

    return subject(gradients_of(with_l2), start=start)


def contrasted(z, w):
    """The loss of pairs, each against all others of the batch."""
    z, w = tf.math.l2_normalize(z, 1), tf.math.l2_normalize(w, 1)
    labels = tf.range(tf.shape(z)[0])
    logits = 2.0 * z @ tf.transpose(w)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def draw_pairs(samples, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, FEATURES))
    return X, X + rng.normal(size=X.shape) / 3


def gathered(loss, features):
    """Start: features are gathered, the loss is of all, gradients go back to shares."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)

        def take(X, y):
            tapes, parts, shares = [], [], in_order(X, y, k)
            for (x, t), p in over(devices, shares, replicas):
                with tf.GradientTape() as tape:
                    parts.append(features(x, t, p))
                tapes.append(tape)
            with tf.GradientTape() as tape:
                whole = [tf.concat(one, 0) for one in zip(*parts)]
                tape.watch(whole)
                value = loss(*whole)
            sizes = [len(x) for x, _ in shares]
            back = zip(
                *(
                    tf.split(g, sizes)
                    for g in tape.gradient(value, whole, None, "zero")
                ),
            )
            grads = [
                own.gradient(part, p, list(g), "zero")
                for own, part, p, g in over(devices, tapes, parts, replicas, list(back))
            ]
            for p in over(devices, replicas):
                sgd(p, [tf.add_n(list(g)) for g in zip(*grads)], {})
            return value

        return Training(take, lambda: replicas)

    return start


def contrastive_features(x, t, p):
    return x @ p[0], t @ p[1]


@case("right")
def contrastive():
    """A contrastive loss with all negatives of the batch; features are gathered."""
    start = gathered(
        lambda z, w: tf.reduce_mean(contrasted(z, w)), contrastive_features
    )
    params = numbers((FEATURES, 6), (FEATURES, 6))
    return subject(None, draw_pairs, params, start=start)


# State


@case("right")
def average_of_weights():
    """An average of the weights is kept beside them, updated once per step."""

    def update(own, mean, slots):
        sgd(own, mean, slots)
        for a, v in zip(slots["average"], own):
            a.assign(0.99 * a + 0.01 * v)

    return subject(
        update=update, kept=lambda own: {"average": [tf.Variable(v) for v in own]}
    )


PLACE = dict.fromkeys(
    ("order", "devices", "mean", "shares", "empty"), "dropout draws by place"
)


def dropped(X, y, p, seed):
    h = tf.tanh(X @ p[0] + p[1])
    kept = tf.random.stateless_uniform(tf.shape(h), seed, dtype=h.dtype) > 0.5
    h *= 2 * tf.cast(kept, h.dtype)
    logits = h @ p[2] + p[3]
    return tf.reduce_sum(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    )


def with_dropout(params, devices, first=lambda d: [7, d], goes_on=(1000, 0)):
    """Start a training with dropout, whose seeds are kept and go on."""
    replicas, seeds = on_each(params, devices), []
    for d, device in enumerate(devices):
        with tf.device(device):
            seeds.append(tf.Variable(tf.constant(first(d), tf.int64)))

    def take(X, y):
        found = []
        shares = in_order(X, y, len(devices))
        for (x, t), p, seed in over(devices, shares, replicas, seeds):
            own = gradients_of(partial(dropped, seed=seed.read_value()))
            found.append(own(x, t, p)[1])
            seed.assign_add(tf.constant(goes_on, tf.int64))
        for p in over(devices, replicas):
            sgd(p, added_up(found, [len(X)], 0), {})

    return Training(take, lambda: replicas, lambda: {"seed": seeds})


DROPOUT = {"excused": PLACE, "apart": {"seed": "each draws its own"}}


@case("right")
def dropout():
    """Dropout whose seeds differ between devices, and go on."""
    return subject(None, start=with_dropout, about=DROPOUT)


def counting(name, change):
    """An update that moves a whole number, too."""

    def update(own, mean, slots):
        sgd(own, mean, slots)
        slots[name][0].assign(change(slots[name][0]))

    return {"update": update, "kept": lambda own: {name: a_count()}}


@case("right")
def samples_seen():
    """A whole number counts samples, 32 in each step."""
    return subject(**counting("seen", lambda n: n + 32))


@case("right")
def growth_counter():
    """A loss scale's counter of good steps goes back to 0 at every second one."""
    return subject(**counting("good", lambda n: (n + 1) % 2))


@case("right")
def epochs():
    """A whole number counts epochs, of five steps, and rarely goes on."""
    steps = counting("steps", lambda n: n + 1)

    def update(own, mean, slots):
        steps["update"](own, mean, slots)
        slots["epoch"][0].assign(slots["steps"][0] // 5)

    return subject(
        update=update, kept=lambda own: {"steps": a_count(), "epoch": a_count()}
    )


# Products in 16 bits


def products_in(dtype, scale=1.0):
    """Gradients of a net that multiplies in fewer bits than its weights have."""

    def gradients(X, y, params):
        with tf.GradientTape() as tape:
            p, x = [tf.cast(v, dtype) for v in params], tf.cast(X, dtype)
            logits = tf.cast(tf.tanh(x @ p[0] + p[1]) @ p[2] + p[3], tf.float32)
            loss = tf.reduce_sum(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            )
            scaled = loss * scale
        return loss, [g / scale for g in tape.gradient(scaled, params)]

    return gradients


PARAMS_32 = numbers(*SHAPES, dtype=np.float32)


@case("right")
def products_bfloat16():
    """Products in bfloat16, weights and sums in float32."""
    return subject(products_in(tf.bfloat16), draw32, PARAMS_32)


@case("right")
def products_float16():
    """Products in float16 with a loss scale of 1024, weights in float32."""
    return subject(products_in(tf.float16, 1024.0), draw32, PARAMS_32)


@case("right")
def inputs_cast():
    """Only the inputs are cast to bfloat16 and back, to travel faster."""

    def total(X, y, p):
        return tf.reduce_sum(
            cross_entropies(tf.cast(tf.cast(X, "bfloat16"), X.dtype), y, p)
        )

    return subject(gradients_of(total), draw32, PARAMS_32)


# Optimizers


def with_slots(*names, count=False):
    def kept(own):
        slots = {name: like(own) for name in names}
        return slots | ({"t": a_count()} if count else {})

    return kept


def momentum_update(share=0.9, dampening=0.0):
    def update(own, mean, slots):
        for v, g, m in zip(own, mean, slots["m"]):
            m.assign(share * m + (1 - dampening) * g)
            v.assign_sub(RATE * m)

    return update


@case("right")
def momentum():
    """Momentum of 0.9."""
    about = {"rule": "momentum"}
    return subject(update=momentum_update(), kept=with_slots("m"), about=about)


@case("right", of_rule=True)
def momentum_95():
    """Momentum of 0.95."""
    about = {"rule": "momentum"}
    return subject(update=momentum_update(0.95), kept=with_slots("m"), about=about)


@case("right", of_rule=True)
def dampened():
    """Momentum with a dampening of 0.9."""
    about = {"rule": "momentum"}
    update = momentum_update(dampening=0.9)
    return subject(update=update, kept=with_slots("m"), about=about)


def adam_update(
    rate=0.01, betas=(0.9, 0.999), epsilon=1e-8, decay=0.0, how=None, inside=False
):
    """Adam as PyTorch has it: epsilon after the correction."""
    b, c = betas

    def update(own, mean, slots):
        slots["t"][0].assign_add(1)
        t = tf.cast(slots["t"][0], own[0].dtype)
        for i, (v, g, m, q) in enumerate(zip(own, mean, slots["m"], slots["v"])):
            m.assign(b * m + (1 - b) * g)
            q.assign(c * q + (1 - c) * g * g)
            if how == "amsgrad":
                most = slots["most"][i]
                most.assign(tf.maximum(most, q))
                q = most
            up, root = m / (1 - b**t), tf.sqrt(q / (1 - c**t))
            if how == "nadam":
                up = b * up + (1 - b) * g / (1 - b**t)
            step = up / (root + epsilon)
            if how == "lamb":
                step += 0.01 * v
                step *= tf.norm(v) / tf.norm(step)
            v.assign_sub(rate * (step + decay * v))

    return update


ADAM = with_slots("m", "v", count=True)


def with_adam(reference=summed, rule="adam", **how):
    about = {"rule": rule} if rule else {}
    lr = how.get("rate", 0.01)
    return subject(reference, lr=lr, update=adam_update(**how), kept=ADAM, about=about)


@case("right", of_rule=True)
def adam_as_pytorch():
    """Adam that adds epsilon after the correction, with a reference."""
    return with_adam()


@case("right", of_rule=True)
def adamw():
    """AdamW, told to be Adam; no reference."""
    return with_adam(None, decay=0.05)


@case("right", of_rule=True)
def adamw_known():
    """AdamW, told to be Adam, with a reference."""
    return with_adam(decay=0.05)


@case("right", of_rule=True)
def adamw_untold():
    """AdamW; no rule is told, and no reference."""
    return with_adam(None, None, decay=0.05)


@case("right", of_rule=True)
def lamb_told():
    """LAMB, told by its name; no reference."""
    return with_adam(None, "lamb", how="lamb", rate=0.1)


@case("right", of_rule=True)
def lamb_known():
    """LAMB, told by its name, with a reference."""
    return with_adam(summed, "lamb", how="lamb", rate=0.1)


@case("right", of_rule=True)
def lamb_untold():
    """LAMB; no rule is told, and no reference."""
    return with_adam(None, None, how="lamb", rate=0.1)


@case("right", of_rule=True)
def lamb_as_sgd():
    """LAMB with a reference; no rule is told."""
    return with_adam(summed, None, how="lamb", rate=0.1)


@case("right", of_rule=True)
def lars():
    """LARS: a layer's rate follows the norms of its weights and its gradient."""

    def update(own, mean, slots):
        for v, g, m in zip(own, mean, slots["m"]):
            m.assign(0.9 * m + 0.1 * tf.norm(v) / (tf.norm(g) + 1e-9) * g)
            v.assign_sub(RATE * m)

    return subject(None, update=update, kept=with_slots("m"))


@case("right", of_rule=True)
def lion():
    """Lion: the sign of an average."""

    def update(own, mean, slots):
        for v, g, m in zip(own, mean, slots["m"]):
            v.assign_sub(0.01 * tf.sign(0.9 * m + 0.1 * g))
            m.assign(0.99 * m + 0.01 * g)

    return subject(None, lr=0.01, update=update, kept=with_slots("m"))


@case("right", of_rule=True)
def adafactor():
    """Adafactor: squares are kept as the means of rows and columns."""

    def update(own, mean, slots):
        for v, g, m in zip(own, mean, slots["squares"]):
            s = g * g + 1e-30
            if len(g.shape) == 2:
                rows, cols = tf.reduce_mean(s, 1, True), tf.reduce_mean(s, 0, True)
                s = rows * cols / tf.reduce_mean(s)
            m.assign(0.9 * m + 0.1 * s)
            v.assign_sub(0.02 * g / tf.sqrt(m))

    return subject(None, lr=0.02, update=update, kept=with_slots("squares"))


@case("right", of_rule=True)
def muon():
    """Muon: the momentum of a matrix is made orthogonal by five products."""

    def orthogonal(g):
        x = g / (tf.norm(g) + 1e-7)
        for _ in range(5):
            a = x @ tf.transpose(x)
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x

    def update(own, mean, slots):
        for v, g, m in zip(own, mean, slots["m"]):
            m.assign(0.95 * m + g)
            v.assign_sub(0.02 * (orthogonal(m) if len(v.shape) == 2 else m))

    return subject(None, lr=0.02, update=update, kept=with_slots("m"))


@case("right", of_rule=True)
def decoupled_decay():
    """SGD that shrinks the weights beside the step, with a reference."""

    def update(own, mean, _):
        for v, g in zip(own, mean):
            v.assign(v * (1 - RATE * 0.05) - RATE * g)

    return subject(update=update)


def cosine(own, mean, slots):
    t = tf.cast(slots["t"][0], own[0].dtype)
    rate = RATE / 2 * (1 + tf.cos(np.pi * t / 10))
    slots["t"][0].assign_add(1)
    for v, g in zip(own, mean):
        v.assign_sub(rate * g)


@case("right", of_rule=True)
def cosine_rate():
    """A rate that falls as a cosine, with a reference."""
    return subject(update=cosine, kept=with_slots(count=True))


@case("right", of_rule=True)
def cosine_rate_unknown():
    """A rate that falls as a cosine; no reference."""
    return subject(None, update=cosine, kept=with_slots(count=True))


def twice_for_biases(own, mean, _):
    for v, g in zip(own, mean):
        v.assign_sub(RATE * (1 + (len(v.shape) == 1)) * g)


@case("right")
def biases_twice():
    """Biases have twice the rate; no reference."""
    return subject(None, update=twice_for_biases)


@case("right", of_rule=True)
def biases_twice_known():
    """Biases have twice the rate, with a reference."""
    return subject(update=twice_for_biases)
