"""Reads a patch file as a program, without running it: an abstract interpreter.

Follows imports, aliases, branches, loops and calls of the file's own functions far enough to say
which object each assignment changes. A name may have several possible values, an unknown
condition runs both branches, a loop over known values runs for each of them.

The layers, each a class that builds on the one before:
`expressions` → `conditions` → `targets` → `imports` → `calls` → `statements`.
"""
