# SPDX-License-Identifier: Apache-2.0
"""Tests the sharing runtime on a machine with an NVIDIA GPU.

Needs what make test-hw builds and python3, nothing else: no Kubernetes, no network. The
judge is the driver's own NVML, asked from outside. Without a GPU it says so and
ends with status 0. --simulated tests this suite itself.
"""

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import box
import nvml
from compute import Compute, Skip
from figures import Table
from stage import Fault, Stage

MIB = 1 << 20
WAYS = ["alloc", "pitch", "managed", "async", "pool", "vmm", "array", "array3d", "mipmap", "graph", "capture", "ipc", "import", "all"]
COUNTED = ["meminfo", "retained", "mapped-twice", "reserved", "imported", "host", "unknown", "small", "absurd", "trimmed", "pools", "context-gone", "modules"]
LAUNCHES = ["plain", "graphs", "capture-undisturbed", "capture-beside", "between"]
FORKS = ["fork", "exec", "vfork", "spawn", "clone", "daemon", "threads"]
LOADERS = ["dlopen", "global", "deepbind", "default", "dlvsym", "entry"]


def library(name):
    """The file that the loader opens for a library, with links followed."""
    ctypes.CDLL(f"{name}.so.1")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[-1]
            if os.path.basename(path).startswith(f"{name}.so"):
                return os.path.realpath(path)
    raise nvml.Error(f"{name}.so.1 is loaded from no file")


class Suite:
    """One run."""

    def __init__(self, options):
        self.options = options
        self.native = os.path.abspath(options.native)
        self.end = time.monotonic() + options.minutes * 60
        self.rows = []
        self.table = Table()
        self.dir = tempfile.mkdtemp(prefix="hw-")
        os.chmod(self.dir, 0o755)
        self.shares_dir = os.path.join(self.dir, "state", "shares")
        self.cards, self.real = {}, {}
        self.arbiter = self.stage = self.box = None

    def client(self, name):
        return os.path.join(self.native, "clients", name)

    # ---- the machine ----

    def find_card(self):
        """Finds the driver and its first card; nvml.Error where there is none."""
        if self.options.simulated:
            self._make_simulated()
        else:
            try:
                self.real = {n: library(n) for n in ("libnvidia-ml", "libcuda")}
            except OSError as error:
                raise nvml.Error(f"no driver: {error}") from error
        self.card = nvml.Card(self.real["libnvidia-ml"])
        # For programs it is the only one, wherever they would have it among others.
        os.environ["CUDA_VISIBLE_DEVICES"] = self.card.uuid
        self.limit = min(2048 * MIB, self.card.total() // 4 // (2 * MIB) * 2 * MIB)

    def second_card(self):
        return nvml.Card(self.real["libnvidia-ml"], 1)

    def _make_simulated(self):
        """Two cards, and a directory with the simulated driver, as an installed one is."""
        directory = os.path.join(self.dir, "run", "cards")
        os.makedirs(directory)
        for index in range(2):
            name = f"GPU-{uuid.uuid4()}"
            make = [os.path.join(self.native, "bin", "tranche-simcard"), "create", name, "--memory", "16GiB", "--context", "64MiB"]
            subprocess.run([*make, "--index", str(index), "--dir", directory], check=True)
            self.cards[name] = os.path.join(directory, name)
        os.environ["TRANCHE_SIM_CARDS"] = directory
        installed = os.path.join(self.dir, "driver")
        os.makedirs(installed)
        for n in ("libcuda", "libnvidia-ml"):
            self.real[n] = os.path.join(installed, f"{n}.so.1")
            shutil.copyfile(os.path.join(self.native, "sim", f"{n}-real.so.1"), self.real[n])
        os.environ["LD_LIBRARY_PATH"] = installed

    def start_arbiter(self):
        log = open(os.path.join(self.dir, "arbiter.log"), "a", encoding="utf-8")
        command = [self.options.arbiter, "--kubernetes=false", "--state-dir", os.path.join(self.dir, "state"), "--run-dir", os.path.join(self.dir, "run"), "--metrics-address="]
        if not self.options.simulated:
            command += ["--nvml-library", self.real["libnvidia-ml"]]
        self.arbiter = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        for share in self.stage.shares:
            self.wait(lambda share=share: os.path.exists(share.socket), "the arbiter to serve")

    def kill_arbiter(self):
        self.arbiter.kill()
        self.arbiter.wait()
        for share in self.stage.shares:
            os.unlink(share.socket)

    def wait(self, condition, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.arbiter.poll() is not None:
                raise Fault(f"the arbiter ended with status {self.arbiter.returncode}")
            if time.monotonic() > deadline:
                raise Fault(f"waited {seconds} s for {what}")
            time.sleep(0.01)

    def sleep_until(self, epoch, seconds):
        """Sleeps until so many seconds after an epoch, and returns how many have passed then."""
        time.sleep(max(seconds - (time.monotonic_ns() - epoch) / 1e9, 0))
        return (time.monotonic_ns() - epoch) / 1e9

    # ---- steps ----

    def step(self, name, do):
        """Takes a step and writes a row."""
        start = time.monotonic()
        if start > self.end:
            self.rows.append((name, "skipped", "no time is left", 0))
            return
        try:
            result, detail = "ok", do() or ""
        except Skip as why:
            result, detail = "skipped", str(why)
        except (Fault, box.Error, nvml.Error, OSError) as fault:
            result, detail = "FAILED", str(fault).strip()
        self.rows.append((name, result, detail, time.monotonic() - start))
        print(f"{name}: {result} {detail}", flush=True)

    def run(self, *arguments, environment=None, seconds=60):
        """Runs a program in the box, watched, and returns what it said."""
        with nvml.Watch(self.card) as watch:
            status, said = self.box.run(list(arguments), min(seconds, self.end - time.monotonic() + 5), environment)
        if status:
            raise Fault(f"status {status}: {said.strip()[-600:]}")
        self.judge(watch)
        return said

    def fill(self, way):
        """Fills the share, and looks at the card while the program stands still."""
        total = taken = 0
        with nvml.Watch(self.card) as watch:
            program = self.box.start(
                [self.client("fill"), way, "64"], {"TRANCHE_TEST_BARRIERS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            timer = threading.Timer(60, program.kill)
            timer.start()
            for line in program.stdout:
                if found := re.match(r"full total=(\d+) .* bytes=(\d+)", line):
                    total, taken = (int(x) for x in found.groups())
                if line.startswith("quiet"):
                    watch.look()
                    program.stdin.write("go on\n")
                    program.stdin.flush()
            _, complaints = program.communicate()
            timer.cancel()
        self.judge(watch)
        if program.returncode:
            raise Fault(f"status {program.returncode}: {complaints.strip()}")
        if total != self.limit:
            raise Fault(f"the program sees {total} bytes, not {self.limit}")
        return f"{taken // MIB} of {self.limit // MIB} MiB could be had, the card held {watch.most // MIB}"

    def judge(self, watch):
        if watch.most > self.limit:
            raise Fault(f"the card held {watch.most // MIB} MiB, the limit is {self.limit // MIB}")

    def cases(self, program, names):
        for name in names:
            said = self.run(self.client(program), name)
            if not said.rstrip().endswith("ok"):
                raise Fault(f"{name}: {said.strip()}")
        return f"{len(names)} cases"

    def loaders(self):
        for method in LOADERS:
            self.full(self.run(self.client("loader"), method), method)
        if self.box.mounted:
            self.full(self.run(self.client("loader"), "dlopen", self.real["libcuda"]), "the driver's own path")
        self.full(self.run(sys.executable, self.client("ctypes_fill.py"), "plain"), "ctypes")
        return f"{len(LOADERS) + 1 + self.box.mounted} ways"

    def full(self, said, method):
        total = int(re.search(r"full bytes=\d+ total=(\d+)", said).group(1))
        if total != self.limit:
            raise Fault(f"{method}: the program sees {total} bytes")

    def storm(self):
        return self.run(self.client("storm"), "3", "3", "6", str(64 * MIB), seconds=90).splitlines()[-1]

    def killed(self):
        room = (self.limit - 1024 * MIB) // MIB if self.limit > 1536 * MIB else self.limit // MIB // 2
        return self.run(self.client("killed"), str(int(time.time())), "30" if not self.options.simulated else "90", str(room), seconds=120).strip()

    def restarted(self):
        """A program goes on while the arbiter dies and comes back."""
        program = self.box.start([self.client("tenant")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            for line in ("init", "context 0", f"take alloc {64 * MIB}"):
                self.ask(program, line, 0)
            for _ in range(3):
                self.kill_arbiter()
                self.ask(program, f"take alloc {2 * self.limit}", 2)
                self.start_arbiter()
                self.ask(program, f"take vmm {64 * MIB}", 0)
                self.ask(program, "drop", 0)
        finally:
            program.kill()
            program.communicate()
        return "3 times"

    def ask(self, program, line, want):
        program.stdin.write(line + "\n")
        program.stdin.flush()
        answer = program.stdout.readline()
        if f"result={want} " not in answer.strip() + " ":
            raise Fault(f"{line}: {answer.strip() or program.stderr.read().strip()}")

    def torch(self, environment):
        if subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init()"], capture_output=True, timeout=120, check=False).returncode:
            raise Skip("PyTorch with CUDA cannot be imported")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_check.py")
        return self.run(sys.executable, script, str(self.limit), environment=environment, seconds=120).splitlines()[-1]

    def costs(self):
        """Figures, no judgement: calls with the runtime, and without."""
        def times(said):
            return {m[0]: float(m[1]) / 1000 for m in re.findall(r"time (\S+) p50_ps=(\d+)", said)}
        ours = times(self.run(self.client("measure"), seconds=60))
        bare = times(subprocess.run([self.client("measure")], env=self.stage.bare, capture_output=True, text=True, timeout=60, check=False).stdout)
        if not bare:
            raise Skip("the bare driver cannot be measured")
        return "ns added: " + ", ".join(f"{name} {ours[name] - bare[name]:.0f} on {bare[name]:.0f}" for name in ours if name in bare)

    def everything(self):
        for way in WAYS:
            self.step(f"fill by {way}", lambda way=way: self.fill(way))
        self.step("racing processes and threads", self.storm)
        self.step("counted once, and given back", lambda: self.cases("counted", COUNTED))
        self.step("launches and captures", lambda: self.cases("launches", LAUNCHES))
        self.step("processes made in all ways", lambda: self.cases("forks", FORKS))
        self.step("however the driver is found", self.loaders)
        self.step("killed in the middle of calls", self.killed)
        self.step("the arbiter dies and comes back", self.restarted)
        self.step("PyTorch, caching allocator", lambda: self.torch({}))
        self.step("PyTorch, expandable segments", lambda: self.torch({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
        self.step("what it costs", self.costs)
        self.stage.clear()
        compute = Compute(self.stage, self.table)
        for name, do in compute.steps():
            self.step(name, lambda do=do: compute.take(do))

    def main(self):
        try:
            self.find_card()
        except nvml.Error as why:
            print(f"make test-hw: skipped: there is no NVIDIA GPU to test on ({why}); HWFLAGS=--simulated tests the suite itself")
            return 0
        self.stage = Stage(self)
        share = self.stage.share(cores=50, policy="best-effort", memory=self.limit)
        self.start_arbiter()
        self.box = self.stage.serve(share)
        print(f"{self.card.name}, driver {self.card.driver}, limit {self.limit // MIB} MiB, the runtime is {self.box.how}", flush=True)
        self.everything()
        return self.report()

    def report(self):
        width = max(len(row[0]) for row in self.rows)
        print(f"\n{'STEP':{width}}  {'RESULT':7}  {'SECONDS':>7}  DETAIL")
        for name, result, detail, seconds in self.rows:
            first = detail.splitlines()[0] if detail else ""
            print(f"{name:{width}}  {result:7}  {seconds:7.1f}  {first}")
        self.table.print(self.options.simulated)
        failed = sum(row[1] == "FAILED" for row in self.rows)
        if failed:
            with open(os.path.join(self.dir, "arbiter.log"), encoding="utf-8", errors="replace") as log:
                print("\nThe arbiter's last words:\n" + "".join(log.readlines()[-20:]), end="")
        print(f"\n{sum(row[1] == 'ok' for row in self.rows)} ok, {failed} failed, {sum(row[1] == 'skipped' for row in self.rows)} skipped")
        return 1 if failed else 0

    def close(self):
        if self.stage:
            self.stage.clear()
        if self.arbiter and self.arbiter.poll() is None:
            self.arbiter.kill()
            self.arbiter.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--native", default="build/native/release", help="directory with what make native built")
    parser.add_argument("--arbiter", default="build/bin/tranche-arbiter", help="program of the arbiter")
    parser.add_argument("--minutes", type=float, default=8, help="steps that would begin later are left out")
    parser.add_argument("--simulated", action="store_true", help="test this suite, on the simulated driver")
    options = parser.parse_args()
    if not os.access(options.arbiter, os.X_OK):
        sys.exit(f"make test-hw: {options.arbiter} is no program: build it where Go is (make build), and say ARBITER=file here")
    suite = Suite(options)
    try:
        sys.exit(suite.main())
    except (Fault, box.Error) as fault:
        sys.exit(f"make test-hw: {fault}")
    finally:
        suite.close()


if __name__ == "__main__":
    main()
