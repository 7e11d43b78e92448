"""Before against after: what the compiler counts, and what a clock on a device says."""
