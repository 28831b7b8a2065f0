"""What a reader tells of an optimizer, by the names that its framework uses.

PyTorch, Optax and Keras call the same number by different names, and mean different
things by one name: PyTorch's `eps` is added after the bias is corrected, and Keras'
`epsilon` before.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from manygpu.prove.rules import DEFAULT, RULES
from manygpu.prove.subject import Subject

NAMED = tuple(name for name in RULES if " " not in name)  # those that a reader may name
AROUND = ("clip", "decay", "decoupled", "rates", "layers", "rate_inside")
OF_MOMENTUM = ("momentum", "dampening", "dampens_first")
OF_ADAM = ("betas", "epsilon", "inside", "before", "corrected")
OF_RULE = {
    "momentum": OF_MOMENTUM,
    "nesterov": OF_MOMENTUM,
    "adam": OF_ADAM,
    "adamw": OF_ADAM,
    "rmsprop": ("rho", "epsilon", "inside"),
    "adagrad": ("start", "epsilon", "inside"),
}
FLAGS = ("decoupled", "rate_inside", "dampens_first", "inside", "before", "corrected")
ANY_COUNT = ("rates", "layers", "decay")
ALIASES = {
    "weight_decay": "decay",
    "max_norm": "clip",
    "clipnorm": "clip",
    "global_clipnorm": "clip",
    "alpha": "rho",
    "initial_accumulator_value": "start",
    "eps": "epsilon",
    "learning_rate": "lr",
}
BETAS = {"beta_1": 0, "beta1": 0, "b1": 0, "beta_2": 1, "beta2": 1, "b2": 1}
# Where PyTorch, and so its name for it, has epsilon.
OF_EPS: dict[str, dict[str, Any]] = {
    "adam": {"before": False},
    "rmsprop": {"inside": False},
    "adagrad": {"inside": False, "start": 0.0},
}
LISTED = (
    f"of every rule: lr, {', '.join(AROUND)}; of momentum and nesterov: "
    f"{', '.join(OF_MOMENTUM)}; of adam and adamw: {', '.join(OF_ADAM)}; of rmsprop: "
    f"{', '.join(OF_RULE['rmsprop'])}; of adagrad: {', '.join(OF_RULE['adagrad'])}. "
    "PyTorch's names mean the same: weight_decay, eps, alpha, max_norm, nesterov"
)


def with_known_names(subject: Subject) -> Subject:
    """Return a subject whose rule and hyperparameters have the names of `rules`.

    Raises:
        ValueError: a hyperparameter has no such name, or no such value.
    """
    rule = subject.rule
    if isinstance(rule, str) and rule.strip().lower() in RULES:
        rule = rule.strip().lower()
    if subject.hyperparameters is None or rule not in (None, *RULES):
        return replace(subject, rule=rule)
    numbers = lowered(subject.hyperparameters)
    rule, numbers = of_momentum(rule, numbers)
    if "eps" in numbers:
        numbers = OF_EPS.get(rule or DEFAULT, {}) | numbers
    numbers = {ALIASES.get(name, name): x for name, x in with_betas(numbers).items()}
    known = [*OF_RULE.get(rule or DEFAULT, ()), *AROUND]
    for name, value in numbers.items():
        if name not in (*known, "lr"):
            raise ValueError(unknown(name, rule or DEFAULT, known))
        if wanted := why_not(name, value):
            raise ValueError(
                f"hyperparameter {name} must be {wanted}, got {value!r}: give it so"
            )
    lr = numbers.pop("lr", subject.lr)
    told = numbers if numbers or not subject.hyperparameters else None  # only the rate
    return replace(subject, rule=rule, hyperparameters=told, lr=lr)


def lowered(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters by their names in lower case."""
    return {str(name).strip().lower(): x for name, x in numbers.items()}


def of_momentum(
    rule: str | None, numbers: dict[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """Return the rule that SGD with these is: PyTorch has one name for three."""
    nesterov = numbers.get("nesterov")
    if rule in (None, DEFAULT, "momentum") and isinstance(nesterov, bool):
        numbers = {name: x for name, x in numbers.items() if name != "nesterov"}
        rule = "nesterov" if nesterov else rule
    if rule in (None, DEFAULT) and numbers.get("momentum") == 0:
        numbers = {name: x for name, x in numbers.items() if name not in OF_MOMENTUM}
    elif rule in (None, DEFAULT) and "momentum" in numbers:
        rule = "momentum"
    return rule, numbers


def with_betas(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return hyperparameters whose betas are a pair, if they were given one by one."""
    if not BETAS.keys() & numbers.keys():
        return numbers
    pair = [*numbers.get("betas", (0.9, 0.999))]
    for name, which in BETAS.items():
        pair[which] = numbers.get(name, pair[which])
    own = {name: x for name, x in numbers.items() if name not in BETAS}
    return own | {"betas": tuple(pair)}


def why_not(name: str, value: Any) -> str:
    """Return what a hyperparameter must be, if this isn't it; or ""."""
    if name in FLAGS:
        return "" if isinstance(value, bool) else "True or False"
    if name == "betas":
        two = isinstance(value, tuple | list) and len(value) == 2
        right = two and all(is_number(x) and 0 <= x < 1 for x in value)
        return "" if right else "two numbers from 0 to 1, such as 0.9,0.999"
    several = value if isinstance(value, tuple | list | np.ndarray) else [value]
    if name in ANY_COUNT and len(several) and all(map(is_number, several)):
        return ""
    if name in ANY_COUNT:
        return "a number, or several with commas between them"
    return "" if is_number(value) else "a number"


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def unknown(name: str, rule: str, known: list[str]) -> str:
    """Say that a rule has no such hyperparameter, and which it has."""
    every = [*known, *ALIASES, "lr", *sum(OF_RULE.values(), ())]
    near = difflib.get_close_matches(name, every, 1)
    do = f"do you mean {near[0]}?" if near else "give one of these, or another rule"
    own = [one for one in OF_RULE if ALIASES.get(name, name) in OF_RULE[one]]
    do = f"say rule={' or '.join(own)}, too" if own else do
    return (
        f"a hyperparameter of rule={rule!r} must be one of {', '.join(known)} or lr "
        f"(PyTorch's names are taken, too, such as weight_decay, eps, max_norm), got "
        f"{name}: {do}"
    )
