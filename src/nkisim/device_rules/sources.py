"""Who reported what devices do: the keys that rules cite, and the software each of them ran."""

from __future__ import annotations

from typing import Final

KILN: Final = "SDK 2.32, nki 0.6.0, neuronx-cc 2.27.5334; October 2026"

SOURCES: Final = {
    "AGD": "aws-neuron/neuron-agentic-development, references of its skill for writing NKI"
    " (AWS, of the time of nki 0.6)",
    "JIN": "jinhuang12/vllm-neuron (third party; trn2 LNC2, autumn 2026)",
    "KILN": f"foxl-ai/kiln @f5a7faf, notes, kernels and probes (third party; {KILN}; trn1.2xlarge,"
    " trn1.32xlarge, trn2.48xlarge LNC2)",
    "LDC": "longdct/vllm-neuron, model/deepseek_v4 (third party; trn2 LNC2, nki 0.6)",
    "NKL": "aws-neuron/nki-library @d2ad3a5 (AWS, April 2026)",
    "Q36": "README of a port of Qwen3.6-27B from trn2 to trn1 (third party; trn1, 2026)",
    "SDK#n": "issue n of aws-neuron/aws-neuron-sdk",
    "TB": "Deep-Learning-Profiling-Tools/Tilebench, operators/*/impl_nki.py (third party; trn2,"
    " LNC2, SDK not stated, API of nki 0.5 or 0.6)",
}
