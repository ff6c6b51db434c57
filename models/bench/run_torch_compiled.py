"""The workloads in PyTorch with torch.compile; run as a process by the driver."""

import sys

import torch  # pyright: ignore[reportMissingImports]

# What the first compilation would import: imports count in no system's time.
import torch._inductor.compile_fx  # pyright: ignore[reportMissingImports]

from .run_torch import main

if __name__ == "__main__":
    main(sys.argv[1], torch.compile)
