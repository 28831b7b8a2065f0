"""What the book's own functions make of the same parameters and data.

Run by run.py in the project's environment: `reference.py GIVEN ANSWER`, two npz files.
"""

import sys
import traceback

import numpy as np
import ours


def main(given: str, answer: str) -> None:
    found, answers = {}, {}
    for name, array in np.load(given).items():
        key, name = name.split("|")
        found.setdefault(key, {})[name] = array
    for key, own in found.items():
        page, number, _ = key.split("#")
        own.pop("")
        try:
            results = ours.CASES[page, int(number)](own)
        except Exception as error:
            traceback.print_exc()
            results = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers |= {f"{key}|{name}": np.asarray(a) for name, a in results.items()}
    np.savez(answer, **answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
