# SPDX-License-Identifier: Apache-2.0
"""How the compute of a card is divided, judged by the work that tenants get done.

Kernels multiply and add for a number of rounds that takes as long as is said on a card that does
nothing else, so what is done of them in a time is what a tenant had of the card. Times
and parts are figures. A step fails where a program fails, gets an error, does not
end, or misses kernels that it launched.
"""

import os
import re
import subprocess
import sys
import time

import nvml
from figures import error_allowed, points, quantile, shares_of
from stage import Actor, Fault, Utilisation

MS = 1e-3
# What the client submits at a time takes 5 ms, unless it is told otherwise: so many kernels of 1 ms.
BATCH = 5
HALF = {"cores": 50}
# Seconds that a step takes as a rule, on a real card.
STEP = 25
# Seconds that PyTorch may need besides: it is large.
IMPORTING = 90


class Skip(Exception):
    """A step that this machine cannot take."""


class Compute:
    """The steps."""

    def __init__(self, stage, table):
        self.stage, self.table = stage, table
        self.suite = stage.suite
        self.simulated = self.suite.options.simulated
        self.seconds = 1 if self.simulated else 4
        self.settled = 0.2 if self.simulated else 1.0
        self.crowds = (2,) if self.simulated else (2, 4)
        self.rounds = 0
        self.native = 0.0
        self.turns = {}

    def steps(self):
        return [
            ("the card's own speed and turns", self.speed),
            ("what driver and card do by themselves", self.habits),
            ("20/30/50, guaranteed-burst", lambda: self.divided("20/30/50", "guaranteed-burst-share", [20, 30, 50])),
            ("10/90, native-burst", lambda: self.divided("10/90", "native-burst-share", [10, 90])),
            ("one process beside eight", lambda: self.divided("50/50, 1 process and 8", "fixed-share", [50, 50], ["processes=8", "ahead=1"])),
            ("30/70, one of graphs", lambda: self.divided("30/70, the latter by graphs", "guaranteed-burst-share", [30, 70], ["graph=1"])),
            ("20 alone, fixed", self.fixed),
            ("bursts, and hands back", self.burst),
            ("online beside offline", self.online),
            ("throughput of several", self.throughput),
            ("cost of a launch", self.gate),
            ("copies beside kernels", self.copies),
            ("a holder is killed", self.killed),
            ("the arbiter dies at work", self.restarted),
            ("ranks of one share on one card", self.ranks),
            ("ranks of one claim on two cards", self.cards),
            ("PyTorch beside PyTorch", lambda: self.torch("plain")),
            ("PyTorch beside PyTorch, graphs", lambda: self.torch("graph")),
        ]

    def take(self, do):
        """Takes one step, and leaves nothing of it."""
        try:
            if not self.simulated and self.suite.end - time.monotonic() < STEP:
                raise Skip("no time is left")
            if do != self.speed and not self.native:
                raise Skip("the card's own speed is not known")
            return do()
        finally:
            self.stage.clear()

    # ---- tenants ----

    def work(self, *arguments, seconds=None):
        """A program of so many seconds, with kernels of 1 ms unless it is said otherwise."""
        return [self.suite.client("work"), f"seconds={seconds or self.seconds}", f"rounds={self.rounds}", "log=1", *arguments]

    def tenant(self, *arguments, seconds=None, **share):
        """Work in a share of its own."""
        return Actor(self.work(*arguments, seconds=seconds), self.stage.serve(self.stage.share(**share)))

    def beside(self, number):
        """So many programs with the bare driver."""
        return [Actor(self.work()) for _ in range(number)]

    def rates(self, actors, end=None):
        return [a.said.rate(self.settled, end or self.seconds) for a in actors]

    def watched(self, actors):
        """Has them work, and returns what NVML says that each had, in words."""
        pids, utilisation = [], Utilisation(self.suite.card)

        def begin(_):
            pids.extend(a.pids() for a in actors)
            utilisation.begin()

        try:
            self.stage.play(actors, self.seconds, begin)
        finally:
            utilisation.end()
        each = utilisation.each(pids)
        return f"NVML says {'/'.join(f'{v:.0f}' for v in each)}" if each else "NVML names none of them"

    # ---- steps ----

    def speed(self):
        found = self.stage.figure("rounds", "rounds")
        self.rounds = int(found["per_ms"])
        alone = self.beside(1)
        self.stage.play(alone, self.seconds)
        native = self.rates(alone)[0]
        flops = 2 * native * BATCH * self.rounds * found["fma"]
        self.table.add("multiply-adds by one alone, no runtime", flops / 1e12, "TFLOPS")
        for number in self.crowds:
            actors = self.beside(number)
            self.stage.play(actors, self.seconds)
            self.turns[number] = sum(self.rates(actors)) / native
        self.native = native
        self.table.add("kernels of 1 ms last, no runtime", 1000 / (native * BATCH), "ms")
        return f"{native * BATCH:.0f} kernels of 1 ms in a second, by turns of {'/'.join(map(str, self.crowds))} processes {points(self.turns.values())} % of them"

    def habits(self):
        """What the contract says that only hardware can tell, without the runtime."""
        host, turns = (self.stage.run("habits", how) for how in ("host", "turns"))
        values = {f"{word} {key}": float(value) for word, rest in re.findall(r"^(\w+) (.*)$", host, re.M) for key, value in re.findall(r"(\w+)=(\S+)", rest)}
        for key, figure, unit in (
            ("record ns", "an event between two launches", "ns"),
            ("query ns", "asking for an event", "ns"),
            ("compile us", "loading PTX that is new", "µs"),
            ("wake blocking_us", "a sleeping thread knows of a kernel's end after", "µs"),
            ("wake polling_us", "a thread that waits as the driver likes knows of it after", "µs"),
        ):
            if key in values:
                self.table.add(figure, values[key], unit)
        found = [tuple(map(float, t)) for t in re.findall(r"^turns count=(\S+) median_us=(\S+) longest_us=(\S+) away=(\S+)$", turns, re.M)]
        if not any(count for count, *_ in found):
            return "two kernels of two processes were never interrupted" + (": nothing is computed here" if self.simulated else ": they ran beside each other")
        self.table.add("the hardware's turns between two processes, median", max(t[1] for t in found) / 1000, "ms")
        self.table.add("the hardware's turns between two processes, longest", max(t[2] for t in found) / 1000, "ms")
        return f"a kernel beside another process's is interrupted {found[0][3]:.0f} % of its time, {found[0][0]:.0f} times"

    def divided(self, name, policy, want, last=()):
        actors = [self.tenant(*(last if i == len(want) - 1 else ()), cores=cores, policy=policy) for i, cores in enumerate(want)]
        said = self.watched(actors)
        windows = [(self.settled + s, self.settled + s + 1) for s in range(int(self.seconds - self.settled))]

        def far(begin, end):
            got = shares_of([a.said.rate(begin, end) for a in actors])
            return max(abs(100 * g - w) for g, w in zip(got, want))

        whole, watched = shares_of(self.rates(actors)), self.seconds - self.settled
        self.table.add(f"{name}: farthest from it, over {watched:g} s", far(self.settled, self.seconds), "points", error_allowed(watched), "XSched 0.25")
        if windows:
            self.table.add(f"{name}: farthest from it, over 1 s", max(far(*w) for w in windows), "points", error_allowed(1))
        return f"{points(whole)}, {said}"

    def fixed(self):
        actor = self.tenant(cores=20, policy="fixed-share")
        said = self.watched([actor])
        part = self.rates([actor])[0] / self.native
        self.table.add("fixed 20, alone: above it", max(100 * part - 20, 0), "points", 1)
        self.table.add("fixed 20, alone: below it", max(20 - 100 * part, 0), "points", 1)
        return f"{points([part])}, {said}"

    def burst(self):
        sleep, on = 200, 100
        bursts = self.tenant(cores=30)
        owner = self.tenant("kernels=100000", "batch=1", f"on={on}", f"off={sleep}", f"delay={sleep}", cores=70)
        self.stage.play([bursts, owner], self.seconds)
        waits = [owner.said.first_after(w) - w - 0.1 * MS for w in owner.said.wakes if owner.said.first_after(w)]
        if not waits:
            raise Fault("the owner never woke")
        asleep = [(w - (sleep - 50) * MS, w) for w in owner.said.wakes]
        idle = sum(bursts.said.rate(*span) for span in asleep) / len(asleep) / self.native
        awake = [(w + 20 * MS, w + on * MS) for w in owner.said.wakes if w + on * MS <= self.seconds]
        got = sum(owner.said.rate(*span) for span in awake) / max(len(awake), 1) * 0.1 / (self.native * BATCH)
        self.table.add("30 bursts while 70 sleeps: left idle", 100 * max(1 - idle, 0), "%", 3)
        self.table.add("handed back to who wakes, median", 1000 * quantile(waits, 0.5), "ms", 20, "xGPU 100 ms")
        self.table.add("handed back to who wakes, worst", 1000 * max(waits), "ms", 20, "xGPU 100 ms")
        return f"{points([idle])} of the card while the owner slept, the owner had {points([got])} when it woke, {len(waits)} times"

    def online(self):
        request = ["rate=100", "kernels=500000", "batch=4"]
        alone = self.tenant(*request, cores=50, **{"class": "online"})
        offline_share = self.stage.serve(self.stage.share(policy="best-effort", offline_cores=100, **{"class": "offline"}))
        self.stage.play([alone], self.seconds)
        before = alone.said.latencies()
        told = [f"alone p50 {1000 * quantile(before, 0.5):.2f} ms, p99 {1000 * quantile(before, 0.99):.2f} ms"]
        for length in [1.0] if self.simulated else [0.1, 1.0, 5.0]:
            online = Actor(alone.arguments, alone.box)
            offline = Actor(self.work(f"kernels={int(length * 1e6)}"), offline_share)
            self.stage.play([online, offline], self.seconds)
            after = online.said.latencies()
            if len(after) != len(before):
                raise Fault(f"{len(after)} of {len(before)} requests were served")
            for name, part in (("p50", 0.5), ("p99", 0.99)):
                more = 100 * (quantile(after, part) / quantile(before, part) - 1)
                self.table.add(
                    f"online {name} beside offline kernels of {length:g} ms: more", more, "%", 7 if name == "p99" and length <= 1 else None,
                    "Hummingbird <1, Tally 7.2, XSched 13" if name == "p99" else "",
                )
            done = offline.said.rate(self.settled, self.seconds) / self.native
            told.append(f"beside {length:g} ms p99 {1000 * quantile(after, 0.99):.2f} ms and offline work {points([done])} %")
        return ", ".join(told)

    def throughput(self):
        told = []
        for number in self.crowds:
            actors = [self.tenant(cores=100 // number) for _ in range(number)]
            self.stage.play(actors, self.seconds)
            part = sum(self.rates(actors)) / self.native
            self.table.add(
                f"throughput of {number} tenants: lost", 100 * (1 - part), "%", 3, f"the hardware's own turns {100 * (1 - self.turns[number]):.1f}, XSched 5.7"
            )
            told.append(f"{number}: {points([part])}")
            self.stage.clear()
        return "% of what one alone does: " + ", ".join(told)

    def gate(self):
        def launch(within=None):
            return min(self.stage.figure("measure", "time launch", within)["p50_ps"] for _ in range(3)) / 1000

        bare = launch()
        mine = self.stage.serve(self.stage.share(policy="best-effort"))
        free = launch(mine)
        self.stage.serve(self.stage.share(policy="best-effort"))
        held = launch(mine)
        self.table.add("added to a launch, alone on the card", free - bare, "ns", 20, "HAMi-core 26 to 54, in all")
        self.table.add("added to a launch, beside an idle share", held - bare, "ns", 20, "HAMi-core 26 to 54, in all")
        return f"{bare:.0f} ns without the runtime, {free:.0f} alone, {held:.0f} beside an idle share"

    def copies(self):
        size = 32 << 20
        copy = [f"copy={size}", "kernels=10000", "batch=1"]
        alone = self.tenant(*copy, **HALF)
        self.stage.play([alone], self.seconds)
        before = self.rates([alone])[0] * size / 1e9
        copier, other = Actor(alone.arguments, alone.box), self.tenant(**HALF)
        self.stage.play([copier, other], self.seconds)
        after, part = self.rates([copier])[0] * size / 1e9, self.rates([other])[0] / self.native
        self.table.add("copies of 32 MiB alone", before, "GB/s")
        self.table.add("copies of 32 MiB beside kernels of another 50", after, "GB/s")
        self.table.add("kernels of 50 beside another 50 that copies", 100 * part, "%")
        return f"{after:.1f} of {before:.1f} GB/s, and the other one has {points([part])} %"

    def killed(self):
        stays_in, dies_in = (self.stage.serve(self.stage.share(**HALF)) for _ in range(2))
        pauses, after = [], []
        for _ in range(1 if self.simulated else 3):
            stays, dies = Actor(self.work("batch=1"), stays_in), Actor(self.work(), dies_in)
            moments = []

            def kill(epoch, dies=dies, moments=moments):
                moments.append(self.suite.sleep_until(epoch, self.seconds / 2))
                dies.kill()

            self.stage.play([stays, dies], self.seconds, kill)
            pauses.append(stays.said.longest_pause(moments[0], min(moments[0] + 1, self.seconds)))
            after.append(stays.said.rate(moments[0] + 0.1, self.seconds) / (self.native * BATCH))
        self.table.add("pause of who waits when a holder is killed, worst", 1000 * max(pauses), "ms", 50)
        return f"{len(pauses)} times, the pause {1000 * max(pauses):.1f} ms, and then {points([min(after)])} % for who is left"

    def restarted(self):
        seconds, gone = (2, 0.4) if self.simulated else (6, 1.0)
        actors = [self.tenant("batch=1", seconds=seconds, cores=cores) for cores in (30, 70)]
        moments = []

        def restart(epoch):
            moments.append(self.suite.sleep_until(epoch, seconds / 3))
            self.suite.kill_arbiter()
            self.suite.sleep_until(epoch, seconds / 3 + gone)
            self.suite.start_arbiter()
            moments.append(self.suite.sleep_until(epoch, 0))

        self.stage.play(actors, seconds, restart)
        away, back = moments
        without = [a.said.rate(away + 0.1, back) / (self.native * BATCH) for a in actors]
        after = [a.said.rate(min(back + 0.3, seconds - 0.5), seconds) / (self.native * BATCH) for a in actors]
        pause = max(a.said.longest_pause(away, seconds) for a in actors)
        self.table.add("longest pause of a tenant while the arbiter was gone", pause, "s", 1)
        return f"30/70 had {points(without)} without it, {points(after)} after it was back"

    def ranks(self):
        """Ranks of one share that wait for each other, beside another tenant."""
        arguments = [self.suite.client("collective"), "2", "1", "100" if self.simulated else "300"]
        alone = Actor(arguments)
        self.stage.play([alone], self.seconds)
        ranks, other = Actor(arguments, self.stage.serve(self.stage.share(**HALF))), self.tenant(**HALF)
        self.stage.play([ranks, other], self.seconds)
        return self.compare("2 ranks on one card", alone, ranks, other)

    def cards(self):
        """Ranks of one claim on two cards, beside a tenant on each."""
        try:
            second = self.suite.second_card()
        except nvml.Error as why:
            raise Skip(str(why)) from why
        both = {"CUDA_VISIBLE_DEVICES": f"{self.suite.card.uuid},{second.uuid}"}
        arguments = [self.suite.client("collective"), "2", "2", "100" if self.simulated else "300"]
        alone = Actor(arguments, None, both)
        self.stage.play([alone], self.seconds)
        first = self.stage.share(**HALF)
        ranks = Actor(arguments, self.stage.serve(first, self.stage.share(card=second, claim=first.claim, **HALF)), both)
        others = [self.tenant(**HALF), self.tenant(card=second, **HALF)]
        others[1].environment = {"CUDA_VISIBLE_DEVICES": second.uuid}
        self.stage.play([ranks, *others], self.seconds)
        return self.compare("2 ranks on two cards", alone, ranks, others[0])

    def compare(self, name, alone, ranks, other):
        took = [float(a.said.text.split("ns=")[1]) / 1e9 for a in (alone, ranks)]
        part = other.said.rate(0, min(took[1], self.seconds)) / self.native
        self.table.add(f"{name}, of a share of 50: takes", took[1] / took[0], "times as long")
        self.table.add(f"{name}: another 50 has meanwhile", 100 * part, "%")
        return f"{took[1]:.2f} s beside another tenant of 50, which had {points([part])} %, {took[0]:.2f} s alone"

    def torch(self, how):
        if subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init()"], capture_output=True, timeout=120, check=False).returncode:
            raise Skip("PyTorch with CUDA cannot be imported")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_work.py")
        arguments = [sys.executable, script, str(self.seconds), how]
        alone = Actor(arguments)
        self.stage.play([alone], self.seconds, patience=IMPORTING)
        actors = [Actor(arguments, self.stage.serve(self.stage.share(cores=cores))) for cores in (30, 70)]
        self.stage.play(actors, self.seconds, patience=IMPORTING)
        rates = self.rates(actors)
        parts, together = shares_of(rates), sum(rates) / self.rates([alone])[0]
        self.table.add(f"PyTorch 30/70, {how}: farthest from it", max(abs(100 * p - w) for p, w in zip(parts, (30, 70))), "points", error_allowed(self.seconds - self.settled))
        return f"{points(parts)}, together {points([together])} % of one alone"
