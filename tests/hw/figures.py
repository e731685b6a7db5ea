# SPDX-License-Identifier: Apache-2.0
"""Figures that were measured, and how they are worked out."""

import bisect
import re


def quantile(values, part):
    """The value that this part of them is below; 0 of none.

    >>> quantile([5, 1, 3], 0.5), quantile(range(100), 0.99), quantile([7], 0.99), quantile([], 0.5)
    (3, 99, 7, 0.0)
    """
    values = sorted(values)
    return values[min(int(part * len(values)), len(values) - 1)] if values else 0.0


def number(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def points(values):
    """Parts of a whole as people write them.

    >>> points(shares_of([1, 2, 1])), points(shares_of([0, 0]))
    ('25.0/50.0/25.0', '0.0/0.0')
    """
    return "/".join(f"{100 * v:.1f}" for v in values)


def shares_of(values):
    total = sum(values)
    return [v / total if total else 0.0 for v in values]


def error_allowed(seconds):
    """Points by which a tenant may miss its share over so many seconds.

    >>> [error_allowed(s) for s in (0.8, 1, 3, 9.9, 10, 60)]
    [2, 2, 2, 2, 0.5, 0.5]
    """
    return 0.5 if seconds >= 10 else 2


class Table:
    """Figures with what they should be, which nobody is failed for: they are of this card and this hour."""

    def __init__(self):
        self.rows = []

    def add(self, figure, value, unit, most=None, reference=""):
        target = holds = "-"
        if most is not None:
            target, holds = f"at most {number(most)} {unit}", "yes" if value <= most else "NO"
        self.rows.append((figure, target, reference or "-", f"{number(value)} {unit}", holds))

    def print(self, simulated):
        """Prints them, and what a NO means.

        >>> table = Table()
        >>> table.print(False)
        >>> table.add("pause", 60, "ms", 50)
        >>> table.print(False)
        <BLANKLINE>
        FIGURE  TARGET         REFERENCE  MEASURED  HOLDS
        pause   at most 50 ms  -          60 ms     NO
        <BLANKLINE>
        NO is a figure that misses its target, and no failure. The figures of a busy machine mean nothing: measure again.
        >>> table.add("pause", 40, "ms", 50)
        >>> table.print(True) # doctest: +ELLIPSIS
        <BLANKLINE>
        ...
        NO is a figure that misses its target, and no failure. The figures of a simulated card mean nothing.
        """
        if not self.rows:
            return
        rows = [("FIGURE", "TARGET", "REFERENCE", "MEASURED", "HOLDS"), *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        print()
        for row in rows:
            print("  ".join([f"{cell:{width}}" for cell, width in zip(row, widths)] + [row[4]]))
        whose = "simulated card mean nothing." if simulated else "busy machine mean nothing: measure again."
        print(f"\nNO is a figure that misses its target, and no failure. The figures of a {whose}")


class Said:
    """What a program said of its work. Times are seconds after the epoch at which it began.

    >>> said = Said("ready\\nbatch done=2000000000\\nbatch done=3000000000\\nbatch done=5000000000\\nran kernels=3 of=3\\n", 1000000000)
    >>> said.batches, said.ran
    ([1.0, 2.0, 4.0], [(3, 3)])
    >>> [said.done_by(t) for t in (0, 0.5, 1, 3, 4, 9)]
    [0.0, 0.5, 1.0, 2.5, 3.0, 3.0]
    >>> said.rate(1, 3), said.longest_pause(1.5, 4), said.first_after(2), said.first_after(4.5)
    (0.75, 2.0, 2.0, None)
    >>> Said("request due=3 submit=4 done=6\\nwake at=9\\n", 1).latencies()
    [3e-09]
    """

    def __init__(self, text, epoch):
        def at(ns):
            return (int(ns) - epoch) / 1e9

        self.text = text
        self.batches = sorted(at(n) for n in re.findall(r"^batch done=(\d+)$", text, re.M))
        self.requests = [tuple(map(at, r)) for r in re.findall(r"^request due=(\d+) submit=(\d+) done=(\d+)$", text, re.M)]
        self.wakes = [at(n) for n in re.findall(r"^wake at=(\d+)$", text, re.M)]
        self.ran = [tuple(map(int, r)) for r in re.findall(r"^ran kernels=(\d+) of=(\d+)$", text, re.M)]

    def done_by(self, moment):
        """Batches that were done by then; of the one that was not, the part of its time that had passed."""
        done = bisect.bisect_right(self.batches, moment)
        if done == len(self.batches):
            return float(done)
        before = self.batches[done - 1] if done else 0.0
        return done + max(moment - before, 0.0) / (self.batches[done] - before)

    def rate(self, begin, end):
        """Batches a second."""
        return (self.done_by(end) - self.done_by(begin)) / (end - begin)

    def first_after(self, moment):
        """When the first batch was done at or after a moment, or None."""
        i = bisect.bisect_left(self.batches, moment)
        return self.batches[i] if i < len(self.batches) else None

    def longest_pause(self, begin, end):
        """The longest time without the end of a batch."""
        within = [begin, *(b for b in self.batches if begin < b < end), end]
        return max(after - before for before, after in zip(within, within[1:]))

    def latencies(self):
        return [done - due for due, _, done in self.requests]
