"""The book's answers to exercises of one-device."""


def my_flops(batch, widths):
    """Three products a layer, but for the first: nobody needs its input's gradient."""
    layers = [2 * batch * inner * outer for inner, outer in zip(widths, widths[1:])]
    return 3 * sum(layers) - layers[0]


def my_training(w, batches):
    """Each step looks at w as it is now, and at its own batch only."""
    for X, y in batches:
        w = w - 0.1 * (X @ w - y) @ X / len(y)
    return w


def my_batch(parameters, activations, copies, memory):
    """Samples share what the parameters and all that is as large leave free."""
    left = memory - 4 * (2 + copies) * parameters
    return max(0, left // (4 * activations))


def my_sizes(size, widths, deviation):
    """A layer sums a product an input, each deviation ** 2 times the inputs' square."""
    found = []
    for layer, inputs in enumerate(widths[:-1]):
        size = size * inputs * deviation**2
        if layer < len(widths) - 2:  # a ReLU follows
            size = size / 2
        found.append(size)
    return found
