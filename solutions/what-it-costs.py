"""The book's answers to exercises of what-it-costs."""


def my_price(hours, devices, efficiency, dollars, at_once):
    """It takes hours / (devices * efficiency), and whole machines are paid for."""
    machines = -(-devices // at_once)
    return hours / (devices * efficiency) * machines * at_once * dollars


def my_worth(one, many):
    """The lines meet where what many cost more is what the spared hours are worth."""
    spared, more = one[1] - many[1], many[0] - one[0]
    if spared > 0:
        return max(0, more / spared)
    return 0 if spared == 0 and more <= 0 else None


def my_hour(spot, demand, goodput, waiting):
    """An hour of work takes 1 / goodput hours: all who are paid are paid longer."""
    return min((spot + waiting) / goodput, demand + waiting)


def my_bill(seconds, runs, devices, dollars):
    """Round what is paid, and nothing before."""
    return round(seconds * runs / 3600 * devices * dollars, 2)
