"""Right steps that are unusual, on lists of variables."""

from __future__ import annotations

from functools import partial

import numpy as np
import tensorflow as tf
from cases import case
from net import (
    CLASSES,
    FEATURES,
    HIDDEN,
    SHAPES,
    a_count,
    added_up,
    cross_entropies,
    draw,
    draw32,
    gradients_of,
    in_order,
    like,
    logits_of,
    loop,
    numbers,
    on_each,
    over,
    sgd,
    subject,
    summed,
)
from right import (
    CLASS_WEIGHTS,
    PARAMS_32,
    PLACE,
    class_weighed,
    gathered,
    normed_gradients,
    with_adam,
)
from wrong import scaling

from manygpu.prove import Training

SMOOTHING = tf.constant(0.1, tf.float64)  # at the top of the file, as people do
PARAMS = [tf.Variable(w) for w in numbers(*SHAPES)]


@case("odd")
def constants_at_the_top():
    """The file has a constant and the parameters' variables at its top."""

    def total(X, y, p):
        wanted = tf.one_hot(y, CLASSES, dtype=SMOOTHING.dtype)
        wanted = wanted * (1 - SMOOTHING) + SMOOTHING / CLASSES
        logits = logits_of(X, p)
        return tf.reduce_sum(
            tf.nn.softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
        )

    return subject(gradients_of(total), params=PARAMS)


# Optimizers


@case("odd", of_rule=True)
def nadam():
    """NAdam; no reference."""
    return with_adam(None, None, how="nadam")


@case("odd", of_rule=True)
def amsgrad():
    """AMSGrad, told to be Adam, with a reference."""
    from right import adam_update, with_slots

    kept = with_slots("m", "v", "most", count=True)
    update = adam_update(how="amsgrad")
    return subject(lr=0.01, update=update, kept=kept, about={"rule": "adam"})


@case("odd", of_rule=True)
def adam_with_other_betas():
    """Adam with 0.9 and 0.95, and an epsilon of 1e-6, with a reference."""
    return with_adam(betas=(0.9, 0.95), epsilon=1e-6)


@case("odd")
def rate_in_float32():
    """The rate is held in float32, as Keras holds it; the weights are float64."""

    def update(own, mean, slots):
        sgd(own, mean, slots, tf.cast(tf.constant(0.1), tf.float64))

    return subject(lr=0.1, update=update)


@case("odd")
def lookahead():
    """Lookahead: every second step goes back halfway to slow weights."""

    def kept(own):
        return {"slow": [tf.Variable(v) for v in own], "t": a_count()}

    def update(own, mean, slots):
        sgd(own, mean, slots)
        slots["t"][0].assign_add(1)
        if int(slots["t"][0]) % 2 == 0:
            for s, v in zip(slots["slow"], own):
                s.assign((s + v) / 2)
                v.assign(s)

    return subject(None, update=update, kept=kept)


@case("odd")
def centered_gradient():
    """Each column of the mean gradient is centered; no reference."""

    def update(own, mean, slots):
        centered = [
            g - tf.reduce_mean(g, 0, True) if len(g.shape) > 1 else g for g in mean
        ]
        sgd(own, centered, slots)

    return subject(None, update=update)


# Fewer bits


def sent_in(dtype):
    """Each device's sum is sent in fewer bits."""

    def reduce(found, counts, d):
        sent = [[tf.cast(tf.cast(g, dtype), g.dtype) for g in own] for own in found]
        return added_up(sent, counts, d)

    return reduce


@case("odd")
def sent_in_float16():
    """Gradients are sent in float16; weights are float32."""
    return subject(summed, draw32, PARAMS_32, reduce=sent_in("float16"))


@case("odd")
def sent_in_bfloat16():
    """Gradients are sent in bfloat16; weights are float64; no reference."""
    return subject(None, start=partial(loop, reduce=sent_in("bfloat16")))


@case("odd")
def summed_in_bfloat16():
    """Gradients are sent and summed in bfloat16; weights are float32."""

    def reduce(found, counts, d):
        total = [tf.cast(g, "bfloat16") for g in found[0]]
        for own in found[1:]:
            total = [a + tf.cast(g, "bfloat16") for a, g in zip(total, own)]
        return [tf.cast(g, "float32") / float(sum(counts)) for g in total]

    return subject(summed, draw32, PARAMS_32, reduce=reduce)


def rounded_to(bits):
    """Round to so many bits of the mantissa, with the gradient of no rounding."""

    def of(a):
        power = 2.0 ** tf.floor(tf.math.log(tf.abs(a) + 1e-30) / np.log(2.0))
        near = tf.round(a / power * 2.0**bits) / 2.0**bits * power
        return a + tf.stop_gradient(near - a)

    return of


def low_precision(X, y, p, bits):
    short = rounded_to(bits)
    h = tf.tanh(short(X) @ short(p[0]) + p[1])
    logits = short(h) @ short(p[2]) + p[3]
    return tf.reduce_sum(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    )


@case("odd")
def tf32_products():
    """Products see 10 bits of their inputs, as TF32's; the reference is float32's."""
    own = gradients_of(partial(low_precision, bits=10))
    return subject(summed, draw32, PARAMS_32, start=partial(loop, gradients=own))


@case("odd")
def float8_products():
    """Products see 3 bits of their inputs, as float8's, in step and reference."""
    own = gradients_of(partial(low_precision, bits=3))
    return subject(own, draw32, PARAMS_32)


@case("odd")
def products_bfloat16_plain_reference():
    """Products in bfloat16 in the step; the reference is float32's."""
    from right import products_in

    start = partial(loop, gradients=products_in(tf.bfloat16))
    return subject(summed, draw32, PARAMS_32, start=start)


@case("odd")
def products_bfloat16_unknown():
    """Products in bfloat16; no reference."""
    from right import products_in

    start = partial(loop, gradients=products_in(tf.bfloat16))
    return subject(None, draw32, PARAMS_32, start=start)


@case("odd")
def dynamic_scale():
    """A loss scale that halves at a skipped step, and doubles after two good ones."""
    return subject(start=scaling(), about={"guarded": True})


# Losses


@case("odd")
def tokens_counted_globally():
    """Sequences of different lengths; the mean is over all tokens of the batch."""

    def drawn(samples, seed):
        X, y = draw(samples, seed)
        lengths = np.random.default_rng(seed + 5).integers(1, 4, samples)
        tokens = np.repeat(X[:, None], 3, 1) * np.array([1.0, -0.5, 0.3])[:, None]
        labels = np.stack([y, (y + 1) % CLASSES, (y + 2) % CLASSES], 1)
        return tokens, np.where(np.arange(3) < lengths[:, None], labels, -1)

    def total(X, y, p):
        each = cross_entropies(X, tf.maximum(y, 0), p)
        return tf.reduce_sum(tf.cast(y >= 0, each.dtype) * each)

    count = lambda X, y: tf.reduce_sum(tf.cast(y >= 0, tf.float64))  # noqa: E731
    return subject(gradients_of(total), drawn, count=count)


@case("odd")
def class_weights_summed_known():
    """Class weights; divided by all weights of the batch; with a reference."""
    count = lambda X, y: tf.reduce_sum(tf.gather(CLASS_WEIGHTS, y))  # noqa: E731
    return subject(gradients_of(class_weighed), count=count)


def softmax_features(x, t, p):
    return logits_of(x, p), tf.one_hot(t, CLASSES, dtype=tf.float64)


@case("odd")
def dice():
    """Dice over the whole batch: a ratio of sums."""

    def loss(z, wanted):
        s = tf.nn.softmax(z)
        return 1 - 2 * tf.reduce_sum(s * wanted) / (tf.reduce_sum(s + wanted) + 1.0)

    return subject(None, start=gathered(loss, softmax_features))


@case("odd")
def correlation():
    """Barlow Twins: the features of two views are decorrelated over the batch."""

    def features(x, t, p):
        return tf.tanh(x @ p[0]), tf.tanh(t @ p[1])

    def loss(z, w):
        z, w = (a - tf.reduce_mean(a, 0) for a in (z, w))
        z, w = (a / (tf.norm(a, axis=0) + 0.1) for a in (z, w))
        return tf.reduce_sum((tf.transpose(z) @ w - tf.eye(4, dtype=z.dtype)) ** 2)

    from right import draw_pairs

    params = numbers((FEATURES, 4), (FEATURES, 4))
    return subject(None, draw_pairs, params, start=gathered(loss, features))


@case("odd")
def balanced_experts():
    """A mixture of experts whose balance loss is over the whole batch."""

    def features(x, t, p):
        return tf.nn.softmax(x @ p[0][:, :3]), cross_entropies(x, t, p)

    def loss(gates, each):
        share = tf.reduce_mean(gates, 0)
        return tf.reduce_mean(each) + 0.5 * 3 * tf.reduce_sum(share * share)

    return subject(None, start=gathered(loss, features))


@case("odd")
def listwise():
    """A ranking loss over the list of each sample."""

    def total(X, y, p):
        logits = logits_of(X, p)
        wanted = tf.nn.softmax(
            tf.cast(
                tf.math.floormod(y[:, None] + tf.range(CLASSES, dtype=y.dtype), 3),
                X.dtype,
            )
        )
        return tf.reduce_sum(
            tf.nn.softmax_cross_entropy_with_logits(labels=wanted, logits=logits)
        )

    return subject(gradients_of(total))


# State


@case("odd")
def generator_dropout():
    """Dropout by tf.random.Generator, one for each replica; all that can be said."""

    def start(params, devices):
        replicas, generators = on_each(params, devices), []
        for d, device in enumerate(devices):
            with tf.device(device):
                generators.append(tf.random.Generator.from_seed(100 + d))

        def take(X, y):
            found = []
            shares = in_order(X, y, len(devices))
            for (x, t), own, random in over(devices, shares, replicas, generators):
                keep = tf.cast(random.uniform((len(x), HIDDEN)) > 0.5, tf.float64)

                def total(X, y, p, keep=keep):
                    h = 2 * keep * tf.tanh(X @ p[0] + p[1])
                    z = h @ p[2] + p[3]
                    return tf.reduce_sum(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(
                            labels=y, logits=z
                        )
                    )

                found.append(gradients_of(total)(x, t, own)[1])
            for own in over(devices, replicas):
                sgd(own, added_up(found, [len(X)], 0), {})

        def state():
            return {"generator": [g.state for g in generators]}

        return Training(take, lambda: replicas, state)

    about = {"excused": PLACE, "apart": {"generator": "each draws its own"}}
    return subject(None, start=start, about=about)


@case("odd")
def mean_teacher():
    """The targets come from an average of the weights, which goes on."""

    def gradients(X, y, own, slots):
        teacher = tf.nn.softmax(logits_of(X, slots["teacher"]))

        def total(X, y, p):
            z = logits_of(X, p)
            apart = tf.nn.softmax_cross_entropy_with_logits(labels=teacher, logits=z)
            return tf.reduce_sum(cross_entropies(X, y, p) + 0.5 * apart)

        return gradients_of(total)(X, y, own)

    def update(own, mean, slots):
        sgd(own, mean, slots)
        for a, v in zip(slots["teacher"], own):
            a.assign(0.8 * a + 0.2 * v)

    kept = lambda own: {"teacher": [tf.Variable(v) for v in own]}  # noqa: E731
    start = partial(loop, gradients=gradients, update=update, kept=kept)
    return subject(None, start=start)


@case("odd")
def error_feedback():
    """Each device sends signs and one size, and keeps the rest for the next step."""

    def start(params, devices):
        replicas = on_each(params, devices)
        rests = [like(own) for own in replicas]

        def take(X, y):
            sent, n = [], len(X)
            shares = in_order(X, y, len(devices))
            for (x, t), own, rest in over(devices, shares, replicas, rests):
                grads = [g / n + r for g, r in zip(summed(x, t, own)[1], rest)]
                signs = [tf.sign(g) * tf.reduce_mean(tf.abs(g)) for g in grads]
                for r, g, s in zip(rest, grads, signs):
                    r.assign(g - s)
                sent.append(signs)
            for own in over(devices, replicas):
                sgd(own, [tf.add_n(list(g)) for g in zip(*sent)], {})

        def state():
            return {f"rest {p}": [own[p] for own in rests] for p in range(len(params))}

        return Training(take, lambda: replicas, state)

    sends = dict.fromkeys(
        ("order", "devices", "mean", "shares", "empty", "state"), "what is sent differs"
    )
    apart = {f"rest {p}": "each keeps its own rest" for p in range(len(SHAPES))}
    return subject(None, start=start, about={"excused": sends, "apart": apart})


@case("odd")
def curriculum():
    """The weight of a second loss grows with a counter of steps; no reference."""

    def gradients(X, y, own, slots):
        weight = tf.cast(slots["t"][0], tf.float64) / 10

        def total(X, y, p):
            z = logits_of(X, p)
            return tf.reduce_sum(cross_entropies(X, y, p)) + weight * tf.reduce_sum(
                z**2
            )

        return gradients_of(total)(X, y, own)

    def update(own, mean, slots):
        sgd(own, mean, slots)
        slots["t"][0].assign_add(1)

    kept = lambda own: {"t": a_count()}  # noqa: E731
    return subject(
        None, start=partial(loop, gradients=gradients, update=update, kept=kept)
    )


@case("odd")
def queue_of_features():
    """MoCo: keys of earlier batches are negatives; a cursor says where to write."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)
        queues = [tf.Variable(numbers((8, 6))[0]) for _ in devices]
        cursors = [tf.Variable(0, dtype=tf.int64) for _ in devices]

        def take(X, y):
            found, keys = [], []
            shares = in_order(X, y, k)
            for (x, t), own, queue in over(devices, shares, replicas, queues):
                key = tf.stop_gradient(tf.math.l2_normalize(t @ own[1], 1))
                with tf.GradientTape() as tape:
                    q = tf.math.l2_normalize(x @ own[0], 1)
                    logits = tf.concat(
                        [tf.reduce_sum(q * key, 1, True), q @ tf.transpose(queue)], 1
                    )
                    labels = tf.zeros(len(x), tf.int64)
                    loss = tf.reduce_sum(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(
                            labels=labels, logits=logits
                        )
                    )
                found.append(tape.gradient(loss, own, unconnected_gradients="zero"))
                keys.append(key)
            keys = tf.concat(keys, 0)
            for own, queue, cursor in over(devices, replicas, queues, cursors):
                sgd(own, added_up(found, [len(X)], 0), {})
                for key in keys:
                    queue.scatter_nd_update([[int(cursor) % 8]], key[None])
                    cursor.assign((cursor + 1) % 8)

        return Training(
            take, lambda: replicas, lambda: {"queue": queues, "cursor": cursors}
        )

    from right import draw_pairs

    params = numbers((FEATURES, 6), (FEATURES, 6))
    return subject(None, draw_pairs, params, start=start, about={})


@case("odd")
def tokens_seen():
    """A whole number counts the samples of the batch; another counts two a step."""

    def update(own, mean, slots):
        sgd(own, mean, slots)
        slots["pairs"][0].assign_add(2)

    def before(X, y, replicas, slots):
        for own in slots:
            own["seen"][0].assign_add(len(X))

    kept = lambda own: {"pairs": a_count(), "seen": a_count()}  # noqa: E731
    return subject(update=update, before=before, kept=kept)


@case("odd")
def swa():
    """An average of the weights of every second step, and how many are in it."""

    def kept(own):
        return {"average": like(own), "n": a_count(), "t": a_count()}

    def update(own, mean, slots):
        sgd(own, mean, slots)
        slots["t"][0].assign_add(1)
        if int(slots["t"][0]) % 2 == 0:
            n = tf.cast(slots["n"][0], tf.float64)
            for a, v in zip(slots["average"], own):
                a.assign((n * a + v) / (n + 1))
            slots["n"][0].assign_add(1)

    return subject(update=update, kept=kept)


@case("odd")
def renormalized():
    """Batch renormalization: running means are used in training, those of all."""

    def start(params, devices):
        replicas, k = on_each(params, devices), len(devices)
        kept = [tf.Variable(tf.zeros(HIDDEN, tf.float64)) for _ in devices]

        def take(X, y):
            shares, average = in_order(X, y, k), kept[0].read_value()
            loss, grads, _, mean = normed_gradients(
                devices,
                shares,
                replicas,
                lambda hs: tf.nn.moments(tf.concat(hs, 0), [0]),
                len(X),
                lambda h, m, v: (h - (m + average) / 2) / tf.sqrt(v + 1e-3),
            )
            for own, one in over(devices, replicas, kept):
                sgd(own, grads, {})
                one.assign(0.9 * one + 0.1 * mean)
            return loss

        return Training(take, lambda: replicas, lambda: {"running mean": kept})

    return subject(None, start=start)
