"""The book's answers to exercises of collectives."""


def my_reduce_scatter(n):
    """Chunk i starts one to the right of its owner, and ends there."""
    return [
        [(i, (i + 1) % n, (i - step - 1) % n) for i in range(n)]
        for step in range(n - 1)
    ]


def my_packing(sizes, n, alpha, beta):
    """As many steps and bytes in each ring; a step is a chunk, an n-th, long."""
    chunk = beta * sum(sizes) / n
    return (len(sizes) * alpha + chunk) / (alpha + chunk)


def my_both_ways(n):
    """Each chunk goes half way round to the right, and half to the left."""
    plan = []
    for step in range(n // 2):
        right = [(i, (i + 1) % n, (i - step) % n) for i in range(n)]
        left = [(i, (i - 1) % n, (i + step) % n) for i in range(n)]
        plan.append(right + left * (step < (n - 1) // 2))
    return plan
