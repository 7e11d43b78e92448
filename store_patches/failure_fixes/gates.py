"""A gate that was replaced before it opened ends its waits: nobody will open it any more."""

from __future__ import annotations


class AttentionComputeStartGate:
    def abandon(self) -> None:
        """End every wait for this gate; one that is open stays open."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()

    def wait(self, timeout: float = 10.0) -> bool:
        """Return whether the gate opens in time; a gate that is abandoned raises."""
        in_time = True
        with self._condition:
            while in_time and self._event is None and not getattr(self, "_abandoned", False):
                in_time = self._condition.wait(timeout)
            opened = self._event
        if opened is not None:
            opened.synchronize()
        elif in_time:
            raise RuntimeError("The step went on before attention opened the gate of a load")
        return opened is not None


def reset_attention_compute_start_gate() -> AttentionComputeStartGate:
    """Put a new gate in the place of the current one, whose waits end here.

    Attention opens the current gate alone, so nobody would ever open the old one.
    """
    global _attention_compute_start_gate
    gate = AttentionComputeStartGate()
    with _lock:
        abandoned, _attention_compute_start_gate = _attention_compute_start_gate, gate
    if abandoned is not None:
        abandoned.abandon()
    return gate
