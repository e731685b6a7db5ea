# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does with a share: usage torch_check.py LIMIT_IN_BYTES."""

import sys

import torch

LIMIT = int(sys.argv[1])
MIB = 1 << 20


def fill():
    """Takes all that there is, as programs do that find their batch size."""
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
    return blocks


def main():
    free, total = torch.cuda.mem_get_info()
    assert total == LIMIT, f"total is {total}, not {LIMIT}"
    assert 0 < free < total, f"{free} of {total} are free"

    blocks = fill()
    taken = len(blocks) * 32 * MIB
    assert LIMIT // 4 < taken < LIMIT, f"{taken} bytes could be had of {LIMIT}"
    # It goes on: what was given back can be had again, and arithmetic is right.
    del blocks
    torch.cuda.empty_cache()
    a = torch.randn(512, 512, device="cuda")
    assert torch.allclose((a @ a).cpu(), a.cpu() @ a.cpu(), atol=1e-2), "the product is wrong"
    assert len(fill()) * 32 * MIB >= taken - 128 * MIB, "what was freed cannot be had again"
    torch.cuda.empty_cache()

    # A graph that is captured, with the allocator's memory in it, and replayed.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            b = a * 2 + 1
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        b = a * 2 + 1
    a.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((b == 7).all()), "the graph computed something else"
    print(f"ok taken={taken} torch={torch.__version__}")


if __name__ == "__main__":
    main()
