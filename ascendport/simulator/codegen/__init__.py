"""From operations to LLVM text, by kind of operation."""
