"""Single files of releases whose sdist is in the cache: offline, for showing differences."""

from __future__ import annotations

import tarfile


def release_file(release: str, file: str) -> bytes | None:
    """The text of ``file`` in a release of vllm-ascend, if its sdist was fetched before.

    Never asks the network. About half a second: the archive is decompressed up to the file.
    """
    # Imported here: only a tree that drifted needs this, and status must be quick.
    from ascendport.checkout.cache import Cache
    from ascendport.checkout.fetch import PROJECT
    from ascendport.checkout.index import Artifact, Index

    cache, index = Cache.of_user(), Index.of_user()
    fact = cache.fact(index.key(PROJECT, release, "sdist"))
    if not fact:
        return None
    artifact = Artifact(**fact)
    archive = cache.get(artifact.sha256, artifact.filename) if artifact.sha256 else None
    if archive is None:
        return None
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.partition("/")[2] == file and member.isfile():
                    opened = tar.extractfile(member)
                    return opened.read() if opened else None
    except (tarfile.TarError, OSError, EOFError):
        return None
    return None
