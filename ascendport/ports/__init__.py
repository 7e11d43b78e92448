"""What can be installed: the manifest model, the catalogue, digests of known releases."""
