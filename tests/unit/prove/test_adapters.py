"""Each kind of step comes before the judge in a few lines: a right one, a wrong one."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import tensorflow as tf

import manygpu
from manygpu.measure import shares
from manygpu.prove import adapters, history, judge, small
from manygpu.prove.adapters import (
    Training,
    of_fit,
    of_loop,
    of_ring,
    of_step,
    of_variables,
    of_workers,
)
from manygpu.prove.adapters.engine import Made, rule_of
from manygpu.prove.found import with_rule
from manygpu.prove.invariants import (
    over_a_save,
    with_an_empty_shard,
    with_an_overflow,
)
from manygpu.prove.judge import trial
from manygpu.prove.rules import RULES
from manygpu.prove.subject import Case
from manygpu.prove.trials import Trial
from manygpu.prove.verdict import Finding
from manygpu.scratch import allreduce_gradients, get_params, gradients, train_batch
from manygpu.scratch.beyond.many_workers import member_step, ring_sums
from manygpu.scratch.data_parallel.many_devices import shard_gradients, split_batch
from manygpu.trace.working import Working
from manygpu.trainings.engines import adding_strategy
from tests.unit.prove.readme_code import readme_code

RATE = 0.5


@pytest.mark.parametrize("address", ["mine:my_fit", "loop:my_loop"])
def test_the_readmes_example_is_judged_as_it_is_copied(address):
    """By the check that counts: a rate that is doubled is the first that it sees."""
    file, _, name = address.partition(":")
    mine: dict = {"__name__": file}
    exec(compile(readme_code(address), f"{file}.py", "exec"), mine)
    subject = mine[name]()
    assert list(trial(subject, Case(2, 4, 2))) == []
    wrong = replace(subject, lr=2 * subject.lr)
    assert [saw.broken for saw in trial(wrong, Case(2, 4))] == ["mean"]


def test_help_has_a_call_of_each_adapter_that_it_takes():
    said = adapters.__doc__
    told = re.findall(r"^- `([\w.]+)`: .+\.\n    (\w+)\((.*)\)$", said, flags=re.M)
    names = [path.rpartition(".")[2] for path, _, _ in told]
    assert names == [name for _, name, _ in told]
    assert {name for name in adapters.__all__ if name.startswith("of_")} < {*names}
    for path, name, arguments in told:
        home = path.rpartition(".")[0] or "manygpu.prove.adapters"
        call = ast.parse(f"{name}({arguments})", mode="eval").body
        given = {keyword.arg: 0.1 for keyword in call.keywords}
        bound = inspect.signature(getattr(import_module(home), name)).bind(
            *call.args, **given
        )
        positional = dict(zip(bound.arguments, call.args, strict=False))
        if name != "of_step":  # each argument is called what the adapter calls it
            assert [a.id for a in positional.values()] == list(positional), name


def in_place(X, y, device_params, devices, lr):
    """A right step, but the first device does all the work, for all."""
    sums = gradients(X, y, device_params[0])[1]
    for own in device_params:
        for p, g in zip(own, sums, strict=True):
            p.assign_sub(lr * g / len(y))


def with_the_first(X, y, device_params, devices, lr):
    """A right step in which each device computes with the first one's variables."""
    return train_batch(X, y, device_params, devices, lr, of=_of_first(device_params))


def _of_first(device_params):
    return lambda X, y, own: gradients(X, y, device_params[0])


def on_one_device(params, devices):
    """All copies lie on the first device."""
    replicas = [get_params(params, devices[0]) for _ in devices]
    first = [devices[0]] * len(devices)

    def take(X, y):
        return train_batch(X, y, replicas, first, RATE, of=small.reference)

    return take, lambda: replicas


@pytest.mark.parametrize(
    "subject, said",
    [
        (lambda: of_step(in_place), "1 of 3 devices worked; idle: 1, 2"),
        (
            lambda: of_step(with_the_first),
            "/device:CPU:1 worked with variables of /device:CPU:0",
        ),
        (
            lambda: of_variables(
                on_one_device,
                small.reference,
                small.drawn_weights(),
                small.draw,
                RATE,
            ),
            "1 of 3 devices worked",
        ),
    ],
    ids=["first works", "first is read", "first has all"],
)
def test_where_a_step_ran_is_seen(subject, said):
    found, *_ = judge(subject()).findings
    assert found.broken == "place"
    assert said in found.sentence


def test_a_graph_is_seen_when_it_is_made():
    @tf.function
    def product(a):
        with tf.device("CPU:0"):
            return a @ a

    for heavy in ({"/device:CPU:0": 1}, {}):
        with Working() as seen:
            product(tf.ones((2, 2)))
        assert dict(seen.heavy) == heavy


def asserts(X):
    tf.debugging.assert_greater(tf.shape(X)[0], 2, "X must have 3 samples")


def breaks(X):
    tf.reshape(X[2], [small.WIDTHS[0]])  # there is no third sample


def finds_no_number(X):
    tf.debugging.check_numerics(X / tf.cast(tf.shape(X)[0] - 2, X.dtype), "X")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("stop", "broken", "said"),
    [
        (asserts, None, "the step is refused: ValueError: "),
        (breaks, "empty", "shares of 1, 1 and 0 samples: it stops with "),
        (finds_no_number, "empty", "it stops with FloatingPointError: X : Tensor had"),
    ],
)
def test_only_an_assertion_of_tensorflow_refuses_a_batch(stop, broken, said, compiled):
    stop = tf.function(stop) if compiled else stop

    def start(params, devices):
        take, copies, *_ = lost_momentum(params, devices)
        return lambda X, y: (stop(X), take(X, y))[1], copies

    given = small.reference, small.drawn_weights(), small.draw, RATE
    subject = of_variables(start, *given, rule="momentum")
    saw = list(with_an_empty_shard(Trial(subject, Case(3, 7))))
    assert any(said in getattr(one, "sentence", str(one)) for one in saw), saw
    assert [one.broken for one in saw if isinstance(one, Finding)] == [broken][
        : bool(broken)
    ]


def test_a_number_that_is_checked_may_stop_a_step_that_overflows():
    def start(params, devices):
        take, copies, *_ = lost_momentum(params, devices)
        return lambda X, y: (tf.debugging.check_numerics(X, "X"), take(X, y))[1], copies

    given = small.reference, small.drawn_weights(), small.draw, RATE
    subject = of_variables(start, *given, rule="momentum")
    assert list(with_an_overflow(Trial(subject, Case(2, 4)))) == []


def lost_momentum(params, devices, resumed=True):
    """Momentum on replicas of a dense model; a resume may lose it."""
    replicas = [get_params(params, device) for device in devices]
    velocity = [[tf.Variable(tf.zeros_like(p)) for p in own] for own in replicas]

    def take(X, y):
        shards = split_batch(X, y, devices)
        losses, sums = shard_gradients(*shards, replicas, devices, small.reference)
        total = allreduce_gradients(sums)
        for own, kept, grads in zip(replicas, velocity, total, strict=True):
            for p, v, g in zip(own, kept, grads, strict=True):
                v.assign(0.9 * v + g / len(y))
                p.assign_sub(RATE * v)
        return tf.add_n(losses) / len(y)

    def save():
        return [[v.numpy() for v in one] for one in (replicas[0], velocity[0])]

    def resume(saved):
        for kept, values in zip((replicas, velocity), saved, strict=True):
            for own in kept if resumed or kept is replicas else ():
                for v, value in zip(own, values, strict=True):
                    v.assign(value)

    def state():
        parts = enumerate(zip(*velocity, strict=True))
        return {f"velocity {i}": own for i, own in parts}

    return Training(take, lambda: replicas, state, save, resume)


@pytest.mark.parametrize("resumed", [True, False])
def test_what_a_training_keeps_goes_over_a_save(resumed):
    start = partial(lost_momentum, resumed=resumed)
    own = small.reference, small.drawn_weights(), small.draw, RATE
    verdict = judge(of_variables(start, *own, rule="momentum"))
    assert verdict.right == resumed, str(verdict)
    assert resumed or "velocity 0 is back at zero" in verdict.findings[0].sentence


# Keras


def build():
    """A small model, compiled."""
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(5)]
    model = tf.keras.Sequential([tf.keras.Input((small.WIDTHS[0],)), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(RATE), loss)
    return model


def draw(samples, seed):
    """A batch of Keras' own dtype."""
    X, y = small.draw(samples, seed)
    return X.astype(np.float32), y


def loop(strategy, model, X, y):
    """A step on a whole batch, under either strategy."""
    return looped(strategy, model, X, y, len(y))


def summing_loop(strategy, model, X, y):
    """Divides by the samples of a share: a sum where a mean is meant."""
    samples = -(-len(y) // strategy.num_replicas_in_sync)
    return looped(strategy, model, X, y, samples)


def looped(strategy, model, X, y, samples):
    """Each replica takes its share; the optimizer sums over the replicas."""
    sizes = shares(len(y), strategy.num_replicas_in_sync)
    parts = list(zip(tf.split(X, sizes), tf.split(y, sizes), strict=True))

    def mine(context):
        return parts[context.replica_id_in_sync_group]

    @tf.function
    def replica(X, y):
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(X))
            loss = tf.reduce_sum(each) / samples
        grads = tape.gradient(loss, model.trainable_variables)
        pairs = zip(grads, model.trainable_variables, strict=True)
        model.optimizer.apply_gradients(pairs)
        return loss

    own = strategy.experimental_distribute_values_from_function(mine)
    loss = strategy.run(replica, args=own)
    return strategy.reduce("SUM", loss, axis=None)


@pytest.mark.parametrize("step, broken", [(loop, None), (summing_loop, "mean")])
def test_a_loop_of_ones_own_is_judged(step, broken):
    verdict = judge(of_loop(build, step, draw, RATE))
    assert [one.broken for one in verdict.findings[:1]] == [broken][: bool(broken)]


OPTIMIZERS = tf.keras.optimizers
STEP_DECAY = OPTIMIZERS.schedules.ExponentialDecay(0.5, 1, 0.5)


@pytest.mark.parametrize(
    ("make", "rule", "some"),  # made in the test: a worker imports this file first
    [
        (partial(OPTIMIZERS.SGD, 0.25), "sgd", {"rates": (0.25,)}),
        (partial(OPTIMIZERS.SGD, 0.25, momentum=0.8), "momentum", {"momentum": 0.8}),
        (
            partial(OPTIMIZERS.SGD, STEP_DECAY),
            "sgd",
            {"rates": [0.5**t for t in range(1, 9)]},
        ),
        (
            partial(OPTIMIZERS.AdamW, 0.25, weight_decay=0.1),
            "adam",
            {"decay": (0.1,) * 4},
        ),
        (partial(OPTIMIZERS.Adam, 0.25, beta_2=0.95), "adam", {"betas": (0.9, 0.95)}),
        (partial(OPTIMIZERS.RMSprop, 0.25, rho=0.8), "rmsprop", {"rho": 0.8}),
        (partial(OPTIMIZERS.Adam, 0.25, amsgrad=True), None, {}),
        (partial(OPTIMIZERS.SGD, 0.25, clipnorm=1.0), None, {}),
        (partial(OPTIMIZERS.Lion, 0.25), None, {}),
    ],
)
def test_an_optimizer_of_keras_says_what_it_is(make, rule, some):
    model, optimizer = build(), make()
    model.compile(optimizer, model.loss)
    optimizer.build(model.trainable_variables)
    said = rule_of(Made(model))
    assert (said and said[0]) == rule
    assert {name: said[1][name] for name in some} == some if said else not some
    if said:
        RULES[rule](0.5, **said[1])  # takes all of them


def test_a_wrong_rate_of_a_fit_is_told_and_the_optimizers_own_is_used():
    def of_adam():
        model = build()
        model.compile(OPTIMIZERS.Adam(0.25, beta_2=0.95), model.loss)
        return model

    told, note = with_rule(of_fit(of_adam, draw, 0.5))
    assert (told.rule, told.lr, told.hyperparameters["betas"]) == (
        "adam",
        0.25,
        (0.9, 0.95),
    )
    own = "its optimizer is Adam with betas 0.9 and 0.95 and epsilon 1e-07 beside "
    assert f"{own}the root, before the bias is corrected" in note
    assert "lr must be its learning rate, 0.25, got 0.5: correct it" in note


def build_with_state():
    """A model that isn't compiled, and what else its loop keeps."""
    tf.keras.utils.set_random_seed(0)
    wide, out = small.WIDTHS[0], small.WIDTHS[-1]
    layers = [tf.keras.Input((wide,)), tf.keras.layers.Dense(out)]
    model = tf.keras.Sequential(layers)
    average = [tf.Variable(v, trainable=False) for v in model.trainable_variables]
    steps = tf.Variable(0, trainable=False)
    optimizer = tf.keras.optimizers.SGD(RATE, momentum=0.9)
    return model, {"optimizer": optimizer, "average": average, "steps": steps}


def summed_loss(model, X, y):
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(X)))


def averaging_loop(strategy, model, X, y, kept, sign=1, by=1):
    """A step by an optimizer of one's own; then the average follows the weights."""
    sizes = shares(len(y), strategy.num_replicas_in_sync)
    parts = list(zip(tf.split(X, sizes), tf.split(y, sizes), strict=True))
    weights = model.trainable_variables

    @tf.function
    def replica(own_X, own_y):
        with tf.GradientTape() as tape:
            loss = summed_loss(model, own_X, own_y) / len(y)
        grads = tape.gradient(loss, weights)
        kept["optimizer"].apply_gradients(zip(grads, weights, strict=True))
        return loss

    own = strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )
    loss = strategy.reduce("SUM", strategy.run(replica, args=own), axis=None)
    for average, v in zip(kept["average"], weights, strict=True):
        average.assign(average + sign * 0.1 * (v - average))
    kept["steps"].assign_add(by)
    return loss


def loop_subject(step=averaging_loop, **about):
    about = {"loss": summed_loss, "rule": "momentum", "name": "the loop"} | about
    return of_loop(build_with_state, step, draw, RATE, **about)


def test_what_a_loop_keeps_is_judged_without_compile():
    verdict = judge(loop_subject())
    assert verdict.right, str(verdict)
    said = " ".join(str(verdict).split())
    assert "each sample counted once" in said and "when saved and resumed" in said
    running = (subject := loop_subject()).start(subject.weights, 2)
    kept = [name.split(" ")[0] for name in running.state()]
    assert [*dict.fromkeys(kept)] == ["optimizer", "average", "steps"]


@pytest.mark.parametrize(
    "how, broken, named",
    [({"sign": -1}, "kept", "average (0)"), ({"by": 2}, None, "steps on replica 0")],
)
def test_what_a_loop_does_to_its_state_is_seen(how, broken, named):
    subject = loop_subject(partial(averaging_loop, **how))
    saw = list(history.look(Trial(subject, Case(2, 4, 1))))
    told = [getattr(one, "sentence", one) for one in saw]
    assert any(named in one for one in told), told
    assert [one.broken for one in saw if broken] == [broken][: bool(broken)]


@pytest.mark.parametrize("lost", [(), ("average",)])
def test_a_loop_is_saved_and_resumed_by_its_own_functions(lost):
    def parts(model, kept):
        own = {"model": model.weights, "steps": [kept["steps"]]}
        own |= {"optimizer": kept["optimizer"].variables, "average": kept["average"]}
        return [v for name, one in own.items() if name not in lost for v in one]

    def save(model, kept):
        return [v.numpy() for v in parts(model, kept)]

    def resume(model, kept, saved):
        for v, value in zip(parts(model, kept), saved, strict=True):
            v.assign(value)

    trial = Trial(loop_subject(save=save, resume=resume), Case(2, 4, 2))
    saw = list(over_a_save(trial))
    assert [one.broken for one in saw] == ["resume"][: len(lost)]
    assert not lost or "average (0) is not what was saved" in saw[0].sentence


def test_a_loop_must_say_its_loss_and_both_of_save_and_resume():
    with pytest.raises(ValueError, match="loss must be a function where the model"):
        loop_subject(loss=None)
    with pytest.raises(ValueError, match="save and resume must be given together"):
        loop_subject(save=repr)


# Processes


def averaging_step(ring, X, y, params, lr):
    """Divides the sum once more by the members."""
    return member_step(ring, X, y, params, lr / ring.size, of=small.reference)


def dense_step(ring, X, y, params, lr):
    """What `member_step` does, on the dense model."""
    return member_step(ring, X, y, params, lr, of=small.reference)


def keeping_step(ring, X, y, params, lr):
    """Only the first member moves."""
    loss, total = ring_sums(ring, X, y, params, small.reference)
    for p, g in zip(params, total, strict=True):
        p.assign_sub((ring.rank == 0) * lr * g / len(y))
    return loss / len(y)


@pytest.mark.parametrize(
    "step, broken",
    [(dense_step, None), (averaging_step, "mean"), (keeping_step, "copies")],
)
def test_a_ring_of_processes_is_judged(step, broken):
    params = [tf.Variable(w) for w in small.drawn_weights()]
    with of_ring(step, small.reference, params, small.draw, RATE) as subject:
        verdict = judge(subject)
    assert [one.broken for one in verdict.findings[:1]] == [broken][: bool(broken)]


def test_a_cluster_of_processes_is_judged():
    with of_workers(build, loop, draw, RATE) as subject:
        verdict = judge(subject)
    assert verdict.right, str(verdict)
    assert "on 1 to 3 devices" in " ".join(str(verdict).split())


@pytest.mark.parametrize("returned, kind", [([], "list"), ("0.5 or so", "str")])
def test_a_step_that_returns_no_loss_is_told_so(returned, kind):
    def returns_something_else(*given):
        in_place(*given)
        return returned

    said = " ".join(str(judge(of_step(returns_something_else))).split())
    assert f"must return its batch's mean loss, or None; this one's: {kind}" in said


def test_fit_is_a_step_and_no_end_of_a_training():
    """At its end, Keras makes the averages of the weights the weights."""

    def build():
        tf.keras.utils.set_random_seed(0)
        wide = tf.keras.Input((small.WIDTHS[0],))
        model = tf.keras.Sequential([wide, tf.keras.layers.Dense(small.WIDTHS[-1])])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        averaged = tf.keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9)
        model.compile(averaged, loss)
        return model

    def draw(samples, seed):
        X, y = small.draw(samples, seed)
        return X.astype(np.float32), y

    assert list(trial(of_fit(build, draw, 0.5), Case(2, 4, 2))) == []


def normed(momentum=0.9, **compiled):
    """A model whose training keeps more than its weights, compiled."""
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.Input((small.WIDTHS[0],)), tf.keras.layers.BatchNormalization()]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(small.WIDTHS[-1])])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(RATE, momentum), loss, **compiled)
    return model


def ends(running):
    """All that a training has, of each replica: as bytes."""
    kept = [a for own in running.state().values() for a in own]
    return [a.tobytes() for a in [*sum(running.copies(), []), *kept]]


def test_trainings_by_fit_do_not_disturb_each_other_on_one_model():
    batches = [draw(4, seed) for seed in range(3)]

    def after(running, *numbers):
        for i in numbers:
            running.take(*batches[i])
        return ends(running)

    subject = of_fit(normed, draw, RATE)
    start = partial(subject.start, subject.weights, 2)
    first = start()
    fresh, middle = ends(first), after(first, 0)
    second = start()
    assert ends(second) == fresh != middle
    right = after(second, 0, 1)
    assert ends(first) == middle
    assert after(first, 1) == right != middle
    assert first.places().worked == second.places().worked
    assert min(first.places().worked) > 0  # by the graphs that the first one made


@pytest.mark.parametrize("eager, built", [(False, 1), (True, 3)])
def test_fit_builds_a_model_again_only_where_python_may_keep_something(eager, built):
    made = []

    def counted():
        made.append(normed(0.0, run_eagerly=eager))
        return made[-1]

    subject = of_fit(counted, draw, RATE)
    alone = len(made)
    moved = []
    for _ in range(3):
        running = subject.start(subject.weights, 2)
        running.take(*draw(4, 0))
        moved.append(ends(running))
    assert len(made) - alone == built
    assert moved[0] == moved[1] == moved[2]


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_fit_gets_the_shares_that_the_engine_deals(samples):
    """Keras' own iterators move the weights alike, whatever the shares are."""

    def after(fit):
        tf.keras.utils.set_random_seed(0)
        with strategy.scope():
            model = build()
        before = [v.numpy() for v in model.trainable_variables]
        fit(model)
        return [v.numpy() - b for v, b in zip(model.weights, before, strict=True)]

    strategy = adding_strategy(manygpu.devices(3, quiet=True))
    even, odd = draw(3, 0), draw(samples, 1)
    subject = of_fit(build, draw, RATE)
    running = subject.start(subject.weights, 3)
    running.take(*odd)
    own = [a - w for a, w in zip(running.copies()[0], subject.weights, strict=True)]

    def by_keras(model):
        first, then = (tf.data.Dataset.from_tensors(one) for one in (even, odd))
        model.fit(first, verbose=0)  # its first batch must be even
        for v, w in zip(model.weights, subject.weights, strict=True):
            v.assign(w)
        for step in strategy.experimental_distribute_dataset(then):
            model.train_function(iter([step]))

    for a, b in zip(own, after(by_keras), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


STARTED = """
import tensorflow as tf

from manygpu.scratch import train_batch

NOTHING = tf.constant(0.0)  # TensorFlow starts here, with one device


def step(X, y, device_params, devices, lr):
    return train_batch(X, y, device_params, devices, lr)
"""


def test_a_file_that_starts_tensorflow_is_judged_in_a_process_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(STARTED, encoding="utf-8")
    words = [sys.executable, "-m", "manygpu", "prove", "mine.py:step"]
    about = {"cwd": tmp_path, "env": os.environ, "text": True, "check": False}
    done = subprocess.run(words, **about, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "step: right in" in done.stdout
