"""The book's answers to exercises of roofline."""


def my_seconds(layers, peak, bandwidth):
    """Each layer waits for the slower of the two; then comes the next layer."""
    return sum(max(flops / peak, size / bandwidth) for flops, size in layers)


def my_batch(inputs, outputs, ridge):
    """2 b i o >= ridge 4 (b i + i o + b o), solved for b."""
    room = inputs * outputs - 2 * ridge * (inputs + outputs)
    if room <= 0:
        return None
    return -(-2 * ridge * inputs * outputs // room)


def my_flops(batch, size, kernel, channels, filters, padded):
    """Numbers of the output, times products of each, times 2."""
    side = size if padded else size - kernel + 1
    return 2 * batch * side**2 * filters * kernel**2 * channels


def my_intensity(batch, inputs, outputs, width):
    """FLOPs over all bytes: those of input, kernel and output."""
    moved = batch * inputs + inputs * outputs + batch * outputs
    return 2 * batch * inputs * outputs / (width * moved)
