"""Runs a port's cases: loads kernels before and after, feeds them, and looks at what they did."""
