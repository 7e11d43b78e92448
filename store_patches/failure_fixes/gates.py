"""A gate that was replaced before it opened ends its waits: nobody will open it any more."""

from __future__ import annotations


class AttentionComputeStartGate:
    def abandon(self) -> None:
        """End every wait for this gate; one that is open stays open."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()

    def wait(self, timeout: float = 10.0) -> bool:
        with self._condition:
            while self._event is None:
                if getattr(self, "_abandoned", False):
                    raise RuntimeError(
                        "The step went on before attention opened the gate of a load"
                    )
                if not self._condition.wait(timeout=timeout):
                    return False
            event = self._event

        event.synchronize()
        return True


def reset_attention_compute_start_gate() -> AttentionComputeStartGate:
    """Create a new gate for the next layer's work, and end the waits for the old one.

    A prefetch task keeps the gate that was current when it was submitted. Attention opens only the
    gate that is current then.
    """
    global _attention_compute_start_gate
    gate = AttentionComputeStartGate()
    with _lock:
        abandoned, _attention_compute_start_gate = _attention_compute_start_gate, gate
    if abandoned is not None:
        abandoned.abandon()
    return gate
