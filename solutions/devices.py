"""The book's answers to exercises of devices."""


def my_fetched(lies, work):
    """What lies elsewhere travels, the first time that it is needed there."""
    home, found = dict(lies), []
    for device, inputs, result in work:
        for name in inputs:
            if home[name] != device and (name, device) not in found:
                found.append((name, device))
        home[result] = device
    return found


def my_astray(asked, got):
    """A full name ends with the short one: the slash before it keeps 1 and 11 apart."""
    pairs = enumerate(zip(asked, got))
    return [i for i, (short, full) in pairs if short and not full.endswith(short)]


def my_seconds(work, cores):
    """No thread is faster than a core, nor all together faster than all cores."""
    return max(max(work), sum(work) / cores)


def my_device(name):
    """The last part has the kind and the number, whatever stands before it."""
    kind, number = name.split("/")[-1].split(":")[-2:]
    return kind.upper(), int(number)
