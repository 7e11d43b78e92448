"""Drives a checkout's KV-pool store (ascend_store): loads it, feeds it, records what it does."""
