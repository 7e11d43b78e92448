"""Independent proofs of a port: one module a check, each with NAME, SUMMARY and run(subject)."""
