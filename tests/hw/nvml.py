# SPDX-License-Identifier: Apache-2.0
"""Reads a card through the driver's own NVML, from outside of all containers."""

import ctypes
import threading
import time

SUCCESS = 0
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = (1 << 64) - 1


class Error(Exception):
    """NVML answers with an error, or is not there."""


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Sample(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("stamp", ctypes.c_ulonglong),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    ]


class _Info(ctypes.Structure):
    _fields_ = [
        ("stamp", ctypes.c_ulonglong),
        ("pid", ctypes.c_uint),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
        ("jpeg", ctypes.c_uint),
        ("optical", ctypes.c_uint),
    ]


class _Infos(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("seen", ctypes.c_ulonglong),
        ("array", ctypes.POINTER(_Info)),
    ]


class Card:
    """A card that the driver lists, the first one unless it is said which."""

    def __init__(self, library, index=0):
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError as error:
            raise Error(f"no NVML: {error}") from error
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if count.value <= index:
            raise Error(f"the driver lists {count.value or 'no'} card{'s' if count.value > 1 else ''}")
        self._device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._device))
        self.uuid = self._text("nvmlDeviceGetUUID")
        self.name = self._text("nvmlDeviceGetName")
        version = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", version, len(version))
        self.driver = version.value.decode()

    def _call(self, name, *arguments):
        try:
            function = getattr(self._nvml, name)
        except AttributeError as error:
            raise Error(f"NVML has no {name}") from error
        result = function(*arguments)
        if result != SUCCESS:
            raise Error(f"{name} gives {result}")

    def _text(self, name):
        buffer = ctypes.create_string_buffer(96)
        self._call(name, self._device, buffer, len(buffer))
        return buffer.value.decode()

    def total(self):
        """Memory of the card, in bytes."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return memory.total

    def used(self):
        """What is used of the card by anybody, in bytes."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, ctypes.byref(memory))
        return memory.used

    def processes(self):
        """What each process holds, by its number on the host."""
        count = ctypes.c_uint(64)
        while True:
            array = (_Process * count.value)()
            function = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3
            result = function(self._device, ctypes.byref(count), array)
            if result == SUCCESS:
                return {p.pid: p.used for p in array[: count.value] if p.used != NOT_AVAILABLE}
            if result != INSUFFICIENT_SIZE:
                raise Error(f"nvmlDeviceGetComputeRunningProcesses_v3 gives {result}")
            count = ctypes.c_uint(count.value * 2 + 64)

    def utilisation(self, seen):
        """(process, percent) of what NVML sampled since a time that it gave before, and the newest time now."""
        for ask in (self._newer_samples, self._older_samples):
            result, samples = ask(seen)
            if result in (SUCCESS, NOT_FOUND):
                # Places that no process has may hold anything.
                good = [s for s in samples if s.stamp > seen and s.sm <= 100]
                return max((s.stamp for s in good), default=seen), [(s.pid, s.sm) for s in good]
        raise Error(f"the utilisation of processes gives {result}")

    def _newer_samples(self, seen):
        """By the function that cards since Blackwell need, and drivers before it have not."""
        if not hasattr(self._nvml, "nvmlDeviceGetProcessesUtilizationInfo"):
            return NOT_SUPPORTED, []
        array = (_Info * 256)()
        infos = _Infos(ctypes.sizeof(_Infos) | 1 << 24, len(array), seen, array)
        result = self._nvml.nvmlDeviceGetProcessesUtilizationInfo(self._device, ctypes.byref(infos))
        return result, array[: infos.count] if result == SUCCESS else []

    def _older_samples(self, seen):
        array = (_Sample * 256)()
        count = ctypes.c_uint(len(array))
        result = self._nvml.nvmlDeviceGetProcessUtilization(self._device, array, ctypes.byref(count), ctypes.c_ulonglong(seen))
        return result, array[: count.value] if result == SUCCESS else []


class Watch:
    """Samples what a card holds while it is entered, and keeps the most.

    Where NVML names the processes, what those that were there before hold does not count. In
    a container with numbers of its own it may name none; then all that is used
    beyond what was used before counts.
    """

    def __init__(self, card):
        self.card = card
        self.most = 0
        self._named = False

    def __enter__(self):
        self._before = set(self.card.processes())
        self._used = self.card.used()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def look(self):
        """Looks once."""
        ours = {pid: used for pid, used in self.card.processes().items() if pid not in self._before}
        if ours:
            self._named = True
            self.most = max(self.most, sum(ours.values()))
        elif not self._named:
            self.most = max(self.most, self.card.used() - self._used)

    def _run(self):
        while not self._end.is_set():
            self.look()
            time.sleep(0.002)
