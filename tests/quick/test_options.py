"""Numbers of options: what is read, and what is refused."""

import argparse
import math

import pytest

from manygpu import __main__ as command
from manygpu import options

BAD = ("", "x", "1_0", "\u0663", "\uff13", "nan", "-1", "0", "101", "9" * 5000, "inf")


@pytest.mark.parametrize("text", [*BAD, "1.5", "0x10", "1e1"])
def test_what_is_no_whole_number_within_bounds_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number from"):
        options.whole(1, 100)(text)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_number_within_bounds_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number from 0.1"):
        options.number(0.1, 100)(text)


def test_a_number_is_read():
    assert options.whole(1, 100)("100") == 100
    assert options.number(0, math.inf)("2.5e3") == 2500
    with pytest.raises(argparse.ArgumentTypeError, match="of at least 0, got 'inf'"):
        options.number(0, math.inf)("inf")


WHOLE = "must be a whole number"
GRADE = ["grade", ".", "--chapter", "pipeline"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["launch", "--workers", "0", "x"], "--workers: must be a whole number from 1"),
        (["launch", "--workers", "\u0662", "x"], "'\u0662': write it in digits 0 to 9"),
        (["launch", "--workers", "1", "--servers", "-1", "x"], "--servers: must be"),
        (["launch", "--workers", "1", "--port", "65536", "x"], "from 1 to 65,535, got"),
        (["launch", "--workers", "1", "--timeout", "nan", "x"], "--timeout: must be a"),
        (["launch", "--workers", "1", "--grace", "inf", "x"], "--grace: must be a"),
        *(
            ([*GRADE, "--seconds", n], f"--seconds: {WHOLE} from 1 to 600, got '{n}'")
            for n in ("0", "-5", "601", "99999999999")  # all would get nothing
        ),
        ([*GRADE, "--seed", "1.5"], "--seed: must be a whole number from 0"),
        (
            ["choose", "--gpus", "\u0663"],
            "--gpus: must be a whole number, got '\u0663': ",
        ),
        (["choose", "--gpus", "1_0"], "got '1_0': write it in digits 0 to 9"),
        (["choose", "--gpus", "x"], "--gpus: must be a whole number, got 'x'"),
        (["choose", "--rate", "\uff13e12"], "--rate: must be a number, got"),
        (["bench", "--steps", "10000000"], "--steps: must be a whole number from 1"),
        (["bench", "--batch", "1e3"], "--batch: must be a whole number from 1"),
    ],
)
def test_each_option_has_bounds(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
