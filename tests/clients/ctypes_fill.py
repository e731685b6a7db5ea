# SPDX-License-Identifier: Apache-2.0
"""Takes blocks of 16 MiB through ctypes until the driver refuses.

usage: ctypes_fill.py plain | fork | spawn

fork and spawn do it in a child of multiprocessing, and with fork the parent has
not used CUDA; the parent does it afterwards, when the child's memory is back.
"""

import ctypes
import multiprocessing
import sys
import time

OUT_OF_MEMORY = 2
CHUNK = 16 << 20


def check(result, what):
    if result:
        sys.exit(f"{what} gave {result}")


def fill(want=None):
    cuda = ctypes.CDLL("libcuda.so.1")
    check(cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    total, left = ctypes.c_size_t(), ctypes.c_size_t()
    deadline = time.monotonic() + 10
    while True:
        check(cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)), "cuMemGetInfo")
        if want is None or left.value == want.value:
            break
        if time.monotonic() > deadline:
            sys.exit(f"{left.value} bytes are free, the child had {want.value}")
        time.sleep(0.001)
    start = left.value
    taken, address = 0, ctypes.c_uint64()
    while True:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(CHUNK))
        if result == OUT_OF_MEMORY:
            break
        check(result, "cuMemAlloc")
        taken += CHUNK
    print(f"full bytes={taken} total={total.value}", flush=True)
    return start


def child(had):
    had.value = fill()


def main():
    had = None
    if sys.argv[1] != "plain":
        context = multiprocessing.get_context(sys.argv[1])
        had = context.Value(ctypes.c_uint64)
        process = context.Process(target=child, args=(had,))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"the child ended with {process.exitcode}")
    fill(had)


if __name__ == "__main__":
    main()
