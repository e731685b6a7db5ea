# SPDX-License-Identifier: Apache-2.0
"""Shares, and tenants that work in them side by side."""

import json
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
import uuid

import box
import nvml
from figures import Said

MIB = 1 << 20
# How long programs may take beyond the time that they are to work.
PATIENCE = 30


class Fault(Exception):
    """Something is not as it should be."""


class Share:
    """A share's directory, as the node driver makes it."""

    def __init__(self, root, card, simulated, claim=None, memory=0, **differences):
        self.claim = claim or str(uuid.uuid4())
        self.key = f"{self.claim}-{secrets.token_hex(5)}"
        self.card = card
        self.directory = os.path.join(root, self.key)
        os.makedirs(self.directory)
        content = {
            "version": 1, "key": self.key, "claim": {"uid": self.claim, "namespace": "hw", "name": "hw"}, "request": "gpu", "pool": "hw",
            "device": card.uuid.lower(),
            "card": {
                "uuid": card.uuid, "vendor": "nvidia", "productName": card.name, "pciBusID": "",
                "memoryMiB": card.total() // MIB, "simulated": simulated,
            },
            "limits": {"cores": differences.pop("cores", 0), "offlineCores": differences.pop("offline_cores", 0), "memoryMiB": memory // MIB},
            "policy": "best-effort", "class": "none", "burstCeiling": 100, "whole": False, **differences,
        }
        with open(os.path.join(self.directory, ".share.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.rename(file.name, os.path.join(self.directory, "share.json"))

    @property
    def socket(self):
        return os.path.join(self.directory, "arbiter.sock")

    def end(self):
        """Takes the share away: share.json first, as unpreparing does."""
        os.unlink(os.path.join(self.directory, "share.json"))
        shutil.rmtree(self.directory, ignore_errors=True)


class Actor:
    """A program that does work at the same time as others: in a box, or (None) beside all of them, with the bare driver."""

    def __init__(self, arguments, within=None, environment=None):
        self.arguments, self.box, self.environment = arguments, within, environment or {}
        self.program = self.said = None
        self.killed = False

    def start(self, bare):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if self.box:
            self.program = self.box.start(self.arguments, self.environment, **pipes)
        else:
            self.program = subprocess.Popen(self.arguments, env={**bare, **self.environment}, text=True, **pipes)

    def ready(self):
        if self.program.stdout.readline() != "ready\n":
            raise Fault(f"{os.path.basename(self.arguments[0])}: {self.program.stderr.read().strip()[-600:] or 'it ended'}")

    def begin(self, epoch):
        self.program.stdin.write(f"go {epoch}\n")
        self.program.stdin.flush()

    def kill(self):
        """Kills it, and with it the processes that it has made."""
        self.killed = True
        self.program.kill()

    def pids(self):
        """The processes that use the card."""
        try:
            with open(f"/proc/{self.program.pid}/task/{self.program.pid}/children", encoding="ascii") as children:
                return set(map(int, children.read().split())) or {self.program.pid}
        except OSError:
            return {self.program.pid}

    def end(self, epoch):
        text, complaints = self.program.communicate()
        if self.program.returncode and not self.killed:
            raise Fault(f"{os.path.basename(self.arguments[0])}: status {self.program.returncode}: {complaints.strip()[-600:]}")
        self.said = Said(text, epoch)
        for ran, launched in self.said.ran:
            # The simulated driver computes nothing.
            if ran not in (0, launched):
                raise Fault(f"{launched} kernels were launched and {ran} have run")


class Stage:
    """Where shares are made, and tenants work."""

    def __init__(self, suite):
        self.suite = suite
        self.shares, self.boxes = [], []
        before = os.environ.get("LD_LIBRARY_PATH")
        self.bare = dict(os.environ, LD_LIBRARY_PATH=self._bare_libraries() + (f":{before}" if before else ""))

    def _bare_libraries(self):
        directory = os.path.join(self.suite.dir, "bare")
        os.makedirs(directory)
        for name, file in self.suite.real.items():
            os.symlink(file, os.path.join(directory, f"{name}.so.1"))
        return directory

    # ---- shares ----

    def share(self, cores=0, policy="guaranteed-burst-share", card=None, memory=None, **differences):
        card = card or self.suite.card
        memory = memory or min(2048 * MIB, card.total() // 6 // (2 * MIB) * 2 * MIB)
        made = Share(self.suite.shares_dir, card, self.suite.options.simulated, memory=memory, cores=cores, policy=policy, **differences)
        self.shares.append(made)
        return made

    def serve(self, *shares):
        """A box with shares, once the arbiter serves them."""
        for share in shares:
            self.suite.wait(lambda share=share: os.path.exists(share.socket), "the arbiter to serve")
        cards = {s.card.uuid: self.suite.cards[s.card.uuid] for s in shares} if self.suite.cards else {}
        made = box.Box(os.path.join(self.suite.native, "runtime"), self.suite.real, {s.key: s.directory for s in shares}, cards)
        self.boxes.append(made)
        return made

    def clear(self):
        """Ends all boxes and shares."""
        for made in self.boxes:
            made.close()
        for share in self.shares:
            share.end()
        self.shares, self.boxes = [], []

    # ---- work ----

    def play(self, actors, seconds, meanwhile=None, patience=PATIENCE):
        """Has programs work side by side, and returns what each said. meanwhile is called with the epoch once they are at it."""
        self.start(actors)
        late = []
        timer = threading.Timer(seconds + patience, lambda: late.append(True) or [a.program.kill() for a in actors])
        timer.start()
        try:
            for actor in actors:
                actor.ready()
            epoch = time.monotonic_ns() + 50_000_000
            for actor in actors:
                actor.begin(epoch)
            if meanwhile:
                meanwhile(epoch)
            for actor in actors:
                actor.end(epoch)
        except Fault as fault:
            raise Fault(f"it did not end within {seconds + patience} s") if late else fault
        finally:
            timer.cancel()
            self.stop(actors)
        return [actor.said for actor in actors]

    def start(self, actors):
        for actor in actors:
            actor.start(self.bare)

    def stop(self, actors):
        for actor in actors:
            if actor.program and actor.program.poll() is None:
                actor.program.kill()
                actor.program.communicate()

    def run(self, client, *arguments):
        """Runs a client with the bare driver, and returns what it said."""
        try:
            done = subprocess.run([self.suite.client(client), *arguments], env=self.bare, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired as late:
            raise Fault(f"{client} did not end within {PATIENCE} s") from late
        if done.returncode:
            raise Fault(f"{client}: status {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def figure(self, client, word, within=None):
        """Runs a client that measures until it says a word, and returns the values behind that."""
        actor = Actor([self.suite.client(client)], within)
        actor.start(self.bare)
        timer = threading.Timer(PATIENCE, actor.program.kill)
        timer.start()
        try:
            for line in actor.program.stdout:
                if line.startswith(word):
                    return {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", line)}
            raise Fault(f"{client}: {actor.program.stderr.read().strip()[-600:] or 'it did not say'}")
        finally:
            timer.cancel()
            self.stop([actor])


class Utilisation:
    """What NVML says of how much of the card programs have: late, coarse, and a judge of its own."""

    def __init__(self, card):
        self.card = card
        self.samples = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self):
        self._thread.start()

    def end(self):
        self._end.set()
        if self._thread.ident:
            self._thread.join()

    def _run(self):
        seen = 0
        while not self._end.wait(0.2):
            try:
                seen, samples = self.card.utilisation(seen)
            except nvml.Error:
                return
            for pid, percent in samples:
                self.samples.setdefault(pid, []).append(percent)

    def each(self, pids):
        """Percent for each set of processes, or nothing where NVML does not name them."""
        means = [sum(sum(self.samples[p]) / len(self.samples[p]) for p in some if p in self.samples) for some in pids]
        return means if any(means) else []
