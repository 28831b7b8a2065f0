"""The book's answers to exercises of trees-and-hierarchy."""


def my_broadcast(n):
    """Who has it sends it to one who hasn't: twice as many have it after each step."""
    plan, have = [], 1
    while have < n:
        plan.append([(i, i + have) for i in range(have) if i + have < n])
        have *= 2
    return plan


def my_leaving(n, size, distances):
    """Each step's message is half as long; it leaves if the partner's group differs."""
    total = 0
    for step, far in enumerate(distances):
        leave = sum(i // size != (i ^ far) // size for i in range(n))
        total += leave / 2 ** (step + 1)
    return total


def my_seconds(groups, members, size, inside, outside):
    """Twice a ring's half inside; across, a whole ring with a member's chunk."""
    (a, b), (far_a, far_b) = inside, outside
    chunk = size / members
    within = 2 * (members - 1) * (a + b * chunk)
    return within + 2 * (groups - 1) * (far_a + far_b * chunk / groups)


def my_busiest(messages):
    """Add up by wire and way; a message passes all wires between its ends."""
    load = {}
    for sender, receiver, size in messages:
        for wire in range(min(sender, receiver), max(sender, receiver)):
            key = wire, sender < receiver
            load[key] = load.get(key, 0) + size
    return max(load.values())
