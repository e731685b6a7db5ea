# SPDX-License-Identifier: Apache-2.0
"""Multiplies matrices as tests/clients/work does its kernels: usage torch_work.py SECONDS plain|graph."""

import sys
import time

import torch

SIZE = 2048
BATCH = 8
AHEAD = 2


def main():
    seconds, how = float(sys.argv[1]), sys.argv[2]
    a, b = (torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5 for _ in range(2))
    out = torch.empty_like(a)

    def multiply():
        for _ in range(BATCH):
            torch.mm(a, b, out=out)

    multiply()
    torch.cuda.synchronize()
    right = out.clone()
    batch = multiply
    if how == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            multiply()
        batch = graph.replay
    out.zero_()
    print("ready", flush=True)
    epoch = int(sys.stdin.readline().split()[1])
    time.sleep(max(epoch - time.monotonic_ns(), 0) / 1e9)
    marks, done = [torch.cuda.Event() for _ in range(AHEAD)], []
    launched = 0
    while time.monotonic_ns() < epoch + seconds * 1e9:
        if launched >= AHEAD:
            marks[launched % AHEAD].synchronize()
            done.append(time.monotonic_ns())
        batch()
        marks[launched % AHEAD].record()
        launched += 1
    torch.cuda.synchronize()
    assert torch.allclose(out, right, atol=1e-3), "the product is wrong"
    for moment in done:
        print(f"batch done={moment}")
    print(f"end launches={launched}")


if __name__ == "__main__":
    main()
