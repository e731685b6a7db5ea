# SPDX-License-Identifier: Apache-2.0
"""Runs programs with the sharing runtime in front of the driver's libraries.

With the right to mount it is as in a container: the runtime is mounted over the
driver's own files, in a mount namespace that ends with this program. Without it, each
box has a directory of its own in place of /run/tranche, and LD_LIBRARY_PATH leads to copies of
the runtime that look there.
"""

import ctypes
import os
import secrets
import shutil
import signal
import stat
import subprocess

TRANCHE = "/run/tranche"
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


class Error(Exception):
    """The box cannot be made."""


def _check(result, what):
    if result:
        raise Error(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(source, target, kind, flags):
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None), f"mount {target}")


def _bind(source, target):
    """Binds what a descriptor is of: its path may be hidden by now."""
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        with open(target, "w", encoding="ascii"):
            pass
    _mount(f"/proc/self/fd/{source}", target, "", MS_BIND | MS_REC)


def _place():
    """Makes a directory whose path is as long as TRANCHE, so that it can stand for it in a library."""
    while True:
        place = f"/tmp/hw{secrets.token_hex(8)}"[: len(TRANCHE)]
        try:
            os.mkdir(place, 0o755)
            return place
        except FileExistsError:
            continue


class Box:
    """A place to run programs in.

    runtime has the libraries that stand in front, real maps names (libcuda, libnvidia-ml)
    to the driver's files, shares maps keys to directories, cards does so for simulated ones.
    """

    def __init__(self, runtime, real, shares, cards=None):
        self._runtime, self._real, self._shares, self._cards = runtime, real, shares, cards or {}
        self._holder, self._namespaces, self._made = 0, [], ""
        self._environment = {}
        try:
            self._by_mounts()
            self.mounted = True
            self.how = "mounted over the driver's files"
        except Error as error:
            self._by_paths()
            self.mounted = False
            self.how = f"by LD_LIBRARY_PATH ({error})"

    def _by_mounts(self):
        report, tell = os.pipe()
        hold, self._release = os.pipe()
        self._holder = os.fork()
        if not self._holder:
            os.close(self._release)
            self._hold(tell, hold)
        os.close(tell)
        os.close(hold)
        with os.fdopen(report) as said:
            answer = said.read()
        if answer != "ready":
            os.waitpid(self._holder, 0)
            self._holder = 0
            raise Error(answer or "the namespace's process ended")
        names = ["mnt"] if os.geteuid() == 0 else ["user", "mnt"]
        self._namespaces = [os.open(f"/proc/{self._holder}/ns/{n}", os.O_RDONLY) for n in names]

    def _hold(self, tell, hold):
        """In the child: makes the namespace and keeps it until the parent is gone."""
        answer = "ready"
        try:
            self._furnish()
        except (Error, OSError) as error:
            answer = str(error)
        os.write(tell, answer.encode())
        os.close(tell)
        if answer == "ready":
            os.read(hold, 1)
        os._exit(0)

    def _furnish(self):
        uid, gid = os.geteuid(), os.getegid()
        _check(_libc.unshare(CLONE_NEWNS if uid == 0 else CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        if uid:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        _mount("", "/", "", MS_REC | MS_PRIVATE)
        sources = {path: os.open(path, os.O_PATH) for path in [*self._real.values(), *self._shares.values(), *self._cards.values()]}
        runtime = {name: os.open(f"{self._runtime}/{name}.so.1", os.O_PATH) for name in self._real}
        _mount("tmpfs", TRANCHE if os.path.isdir(TRANCHE) else os.path.dirname(TRANCHE), "tmpfs", 0)
        self._fill(TRANCHE, lambda path, target: _bind(sources[path], target))
        for name, file in self._real.items():
            _bind(runtime[name], file)

    def _fill(self, place, put):
        os.makedirs(f"{place}/driver")
        for name, file in self._real.items():
            put(file, f"{place}/driver/{name}-real.so.1")
        for key, directory in self._shares.items():
            put(directory, f"{place}/{key}")
        if self._cards:
            os.makedirs(f"{place}/cards")
        for uuid, directory in self._cards.items():
            put(directory, f"{place}/cards/{uuid}")

    def _by_paths(self):
        self._made = _place()
        self._fill(self._made, os.symlink)
        library = f"{self._made}/library"
        os.mkdir(library)
        for name in self._real:
            with open(f"{self._runtime}/{name}.so.1", "rb") as file:
                content = file.read()
            with open(f"{library}/{name}.so.1", "wb") as file:
                file.write(content.replace(TRANCHE.encode(), self._made.encode()))
        before = os.environ.get("LD_LIBRARY_PATH")
        self._environment["LD_LIBRARY_PATH"] = f"{library}:{before}" if before else library
        if self._cards:
            self._environment["TRANCHE_SIM_CARDS"] = f"{self._made}/cards"

    def _enter(self):
        for fd in self._namespaces:
            _check(_libc.setns(fd, 0), "setns")

    def start(self, arguments, environment=None, **more):
        """Starts a program in the box."""
        env = {**os.environ, **(environment or {})}
        env.pop("TRANCHE_SIM_CARDS", None)
        env.update(self._environment)
        return subprocess.Popen(arguments, env=env, preexec_fn=self._enter, text=True, **more)

    def run(self, arguments, timeout, environment=None):
        """Runs a program to its end: its status, and all that it said. 124 is one that took too long."""
        program = self.start(arguments, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said, _ = program.communicate(timeout=max(timeout, 1))
            return program.returncode, said
        except subprocess.TimeoutExpired:
            program.kill()
            said, _ = program.communicate()
            return 124, said + f"\nkilled after {timeout:.0f} s"

    def close(self):
        """Takes away what was made."""
        if self._holder:
            for fd in self._namespaces:
                os.close(fd)
            os.close(self._release)
            os.kill(self._holder, signal.SIGKILL)
            os.waitpid(self._holder, 0)
        elif self._made:
            shutil.rmtree(self._made)
