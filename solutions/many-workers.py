"""The book's answers to exercises of many-workers."""


def my_messages(pieces):
    """A stream has no pieces: join them, then let each length say where one ends."""
    stream, messages, at = sum(pieces, []), [], 0
    while at < len(stream) and at + 1 + stream[at] <= len(stream):
        end = at + 1 + stream[at]
        messages.append(stream[at + 1 : end])
        at = end
    return messages


def my_plan(n):
    """Rank i adds chunk i in the last step, and gives in each what it added before."""
    return [
        [((i + s + 1) % n, (i + s + 2) % n) for s in range(n - 1)] for i in range(n)
    ]


def my_rounds(first):
    """Whoever sends must meet one who receives; if nobody does, nobody ever will."""
    other, n, rounds = {"send": "receive", "receive": "send"}, len(first), 0
    to_do = [[one, other[one]] for one in first]
    while any(to_do):
        now = [own[0] if own else "" for own in to_do]
        pass_on = [
            i for i in range(n) if (now[i], now[(i + 1) % n]) == ("send", "receive")
        ]
        if not pass_on:
            return None
        for i in pass_on:
            to_do[i].pop(0), to_do[(i + 1) % n].pop(0)
        rounds += 1
    return rounds
