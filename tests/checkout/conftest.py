"""A package mirror on a loopback port, and small packages for it, made by the tests themselves.

The fake «vllm-ascend» has the marker files of a real one with texts of our own; the fake «vllm»
has a handful of one-line modules. Tests on real releases say so.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ascendport.checkout.cache import Cache
from ascendport.checkout.index import Index
from ascendport.checkout.pipconfig import Settings
from ascendport.checkout.tree import MARKERS, PACKAGE


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


# --- packages ---


def ascend_files(release: str = "9.9.0rc1") -> dict[str, bytes]:
    """Path → contents of a tree that is recognised as vllm-ascend."""
    files = {f"{PACKAGE}/{name}": text + b"\n" for name, text in MARKERS}
    files[f"{PACKAGE}/_version.py"] = (
        f"__version__ = version = '{release}'\n__commit_id__ = commit_id = 'gabcdef123'\n"
    ).encode()
    files["PKG-INFO"] = f"Metadata-Version: 2.4\nName: vllm_ascend\nVersion: {release}\n".encode()
    files["Dockerfile"] = b"FROM scratch\nARG VLLM_TAG=v9.9.0\n"
    files["setup.py"] = b"raise SystemExit('never run')\n"
    return files


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def tar_of(files: Mapping[str, bytes], top: str) -> bytes:
    """A .tar.gz with ``files`` below the directory ``top``."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def wheel_of(files: Mapping[str, bytes], dist_info: str, lie: str = "") -> bytes:
    """A wheel; ``lie``: a path whose entry in RECORD has the hash of other contents."""
    rows = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            digest = hashlib.sha256(data + (b"!" if name == lie else b"")).digest()
            text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            quoted = f'"{name}"' if "," in name else name
            rows.append(f"{quoted},sha256={text},{len(data)}\n")
        record = f"{dist_info}/RECORD"
        archive.writestr(record, "".join(rows) + f"{record},,\n")
    return buffer.getvalue()


# --- mirror ---


@dataclass
class Mirror:
    """Serves ``files`` (URL path → contents) and a simple index of ``projects``.

    ``projects``: project → file name → the SHA-256 that the index gives, or None.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    projects: dict[str, dict[str, str | None]] = field(default_factory=dict)
    ranges: bool = False
    suffix_ranges: bool = True
    cut: int | None = None
    """Bytes after which the connection is closed, for package files."""
    cuts_left: int = 1_000_000
    user: str | None = None
    """``name:password`` that every request must bring."""
    json: bool = False
    folder: str = "/files/"
    """Where the index says that files are."""
    port: int = 0
    scheme: str = "http"
    requests: list[str] = field(default_factory=list)
    """«METHOD path» of every request."""
    authorizations: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/simple/"

    def add(self, project: str, filename: str, data: bytes, sha256: str | None = "right") -> str:
        """Puts a file on the index; ``sha256``: what the index says, or "right". Returns the
        true SHA-256."""
        true = hashlib.sha256(data).hexdigest()
        self.files[f"{self.folder}{filename}"] = data
        said = true if sha256 == "right" else sha256
        self.projects.setdefault(project, {})[filename] = said
        return true

    def page(self, project: str) -> tuple[str, bytes]:
        import json

        listed = self.projects[project]
        if self.json:
            entries = [
                {
                    "filename": name,
                    "url": f"{self.base}{self.folder}{name}",
                    "hashes": {"sha256": digest} if digest else {},
                }
                for name, digest in listed.items()
            ]
            page = json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": entries})
            return "application/vnd.pypi.simple.v1+json", page.encode()
        links = (
            f'<a href="../..{self.folder}{name}{f"#sha256={digest}" if digest else ""}">{name}</a>'
            for name, digest in listed.items()
        )
        return "text/html; charset=utf-8", "<br>".join(links).encode()

    def downloads(self) -> list[str]:
        return [line for line in self.requests if line.startswith(f"GET {self.folder}")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def do_GET(self) -> None:
        self._serve(body=True)

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self, body: bool) -> None:
        mirror = self.mirror
        mirror.requests.append(f"{self.command} {self.path}")
        authorization = self.headers.get("Authorization", "")
        mirror.authorizations.append(authorization)
        if mirror.user is not None:
            wanted = "Basic " + base64.b64encode(mirror.user.encode()).decode()
            if authorization != wanted:
                return self._answer(401, {}, b"", body)
        # As a proxy it is asked for whole URLs.
        path = re.sub(r"^https?://[^/]*", "", self.path)
        if match := re.fullmatch(r"/simple/([^/]+)/", path):
            if match[1] not in mirror.projects:
                return self._answer(404, {}, b"", body)
            kind, page = mirror.page(match[1])
            return self._answer(200, {"Content-Type": kind}, page, body)
        data = mirror.files.get(path)
        if data is None:
            return self._answer(404, {}, b"", body)
        wanted_range = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if mirror.ranges and wanted_range:
            first, last = wanted_range.groups()
            if not first and not mirror.suffix_ranges:
                return self._answer(416, {}, b"", body)
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(int(last) + 1 if first and last else len(data), len(data))
            headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
            return self._answer(206, headers, data[start:stop], body, mirror.cut)
        return self._answer(200, {}, data, body, mirror.cut)

    def _answer(
        self,
        status: int,
        headers: Mapping[str, str],
        data: bytes,
        body: bool,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        if cut is not None and cut < len(data) and self.mirror.cuts_left > 0:
            self.mirror.cuts_left -= 1
            self.wfile.write(data[:cut])
            self.close_connection = True
            return
        self.wfile.write(data)


StartMirror = Callable[..., Mirror]


@pytest.fixture
def start_mirror() -> Iterator[StartMirror]:
    """``start_mirror(tls=None) -> Mirror`` on a free loopback port; ``tls``: a server context."""
    servers = []

    def start(tls: ssl.SSLContext | None = None) -> Mirror:
        mirror = Mirror()
        handler = type("Handler", (_Handler,), {"mirror": mirror})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            mirror.scheme = "https"
        mirror.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        servers.append(server)
        return mirror

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def mirror(start_mirror: StartMirror) -> Mirror:
    return start_mirror()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache ü")


@pytest.fixture
def clean_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without pip configuration and proxies, with its own cache and home."""
    import os

    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("ASCENDPORT_CACHE", str(tmp_path / "user cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def index_of(*mirrors: Mirror, **changes: object) -> Index:
    """The index on these mirrors, without retries."""
    values: dict[str, object] = {
        "index_urls": tuple(mirror.url for mirror in mirrors),
        "retries": 0,
        "timeout_s": 10.0,
        **changes,
    }
    return Index(Settings(**values))  # type: ignore[arg-type]
