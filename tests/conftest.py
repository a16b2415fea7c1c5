"""Shared by every test: one torch thread, as results and timings must not depend on the machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
