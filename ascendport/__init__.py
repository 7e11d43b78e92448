"""ascendport: ports for vllm-ascend, applied, proved, measured and reverted."""

__version__ = "0.1.0"
