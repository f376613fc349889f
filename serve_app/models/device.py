"""Where a model computes, and in which number format."""

from __future__ import annotations

import torch

__all__ = ["number_format", "usable_device"]


def usable_device(wanted: str) -> str:
    """`wanted`, or for "auto" the GPU where there is one."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def number_format(device: torch.device, wanted: str = "auto") -> torch.dtype:
    """`wanted`, or half precision where the device computes in it; elsewhere it would be slower than float32."""
    if wanted != "auto":
        return FORMATS[wanted]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    capabilities = torch.cpu.get_capabilities()
    return torch.bfloat16 if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else torch.float32
