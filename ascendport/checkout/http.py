"""One HTTP session for everything that comes from the package index.

It follows `pipconfig.Settings` (proxy, certificates, trusted hosts, timeout, retries,
credentials in index URLs) and the standard ``*_PROXY`` variables and netrc, and serves both
`unearth` (as a `Fetcher`) and `remotezip` (as a requests session).
"""

from __future__ import annotations

import io
import json
import mimetypes
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth
from unearth.fetchers import DEFAULT_SECURE_ORIGINS
from unearth.link import Link

from ascendport.checkout.pipconfig import Settings

BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError)
"""What requests and, under a raw read, urllib3 raise when a transfer fails."""

_RETRY_STATUS = (500, 502, 503, 520, 524, 527)  # as pip
_BLOCK = 1 << 16


def without_credentials(url: str) -> str:
    """The URL without user name and password, fit for messages and for keeping."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def reason_of(error: BaseException) -> str:
    """One clause on why a request failed, without URLs and object addresses."""
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy cannot be used"
    if isinstance(error, requests.exceptions.SSLError):
        return "the certificate is not accepted"
    if isinstance(error, requests.exceptions.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "no connection"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"status {error.response.status_code}"
    if isinstance(error, urllib3.exceptions.HTTPError):
        return "the connection broke off"
    return type(error).__name__


class Session(requests.Session):
    """A requests session with the settings on every request."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        retry = urllib3.Retry(
            total=settings.retries,
            status_forcelist=_RETRY_STATUS,
            backoff_factor=0.25,
            raise_on_status=False,
        )
        adapter = HTTPAdapter(max_retries=retry)
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        insecure = _Insecure(max_retries=retry)
        for host in settings.trusted_hosts:
            self.mount(f"https://{host}/", insecure)
            self.mount(f"https://{host}:", insecure)
        self.cert = settings.client_cert
        self.headers["Accept-Encoding"] = "identity"
        self.auth = _Credentials(settings.index_urls + settings.find_links)

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        # Values of a single request win over *_PROXY and REQUESTS_CA_BUNDLE; those of the
        # session would not.
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = self.settings.timeout_s
        if self.settings.proxy and not kwargs.get("proxies"):
            kwargs["proxies"] = {"http": self.settings.proxy, "https": self.settings.proxy}
        if self.settings.cert and kwargs.get("verify") is None:
            kwargs["verify"] = self.settings.cert
        return super().request(*args, **kwargs)


class _Insecure(HTTPAdapter):
    """For trusted hosts: the certificate is not checked."""

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs["verify"] = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
            return super().send(*args, **kwargs)


class _Credentials(AuthBase):
    """Credentials of index URLs, for every file on the same host; netrc for other hosts."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._by_host: dict[str, tuple[str, str]] = {}
        for url in urls:
            userinfo, _, host = urlsplit(url).netloc.rpartition("@")
            if userinfo:
                user, _, password = userinfo.partition(":")
                self._by_host[host] = (unquote(user), unquote(password))

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = request.url or ""
        found = self._by_host.get(urlsplit(url).netloc.rpartition("@")[2]) or get_netrc_auth(url)
        return HTTPBasicAuth(*found)(request) if found else request


class Answer:
    """A response as `unearth` wants it."""

    def __init__(
        self,
        status_code: int,
        reason_phrase: str,
        headers: Mapping[str, str],
        url: str,
        content: bytes,
        encoding: str | None = "utf-8",
    ) -> None:
        self.status_code = status_code
        self.reason_phrase = reason_phrase
        self.headers = headers
        self.url: str | None = url
        self.content = content
        self.encoding = encoding

    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.content))

    def iter_bytes(self, chunk_size: int | None = None) -> Iterator[bytes]:
        stream = io.BytesIO(self.content)
        while block := stream.read(chunk_size or _BLOCK):
            yield block

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise requests.HTTPError(f"status {self.status_code}")


class PageFetcher:
    """Gets index pages for `unearth`. A page that cannot be had is not an error here: it is noted
    in ``failures`` (URL without credentials → reason), as one of several indexes may be down.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.failures: dict[str, str] = {}

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", url, headers)

    def head(self, url: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("HEAD", url, headers)

    @contextmanager
    def get_stream(self, url: str, *, headers: Mapping[str, str] | None = None) -> Iterator[Answer]:
        yield self.get(url, headers=headers)

    def iter_secure_origins(self) -> Iterable[tuple[str, str, str]]:
        yield from DEFAULT_SECURE_ORIGINS
        for host in self.session.settings.trusted_hosts:
            name, _, port = host.partition(":")
            yield ("*", name, port or "*")

    def _ask(self, method: str, url: str, headers: Mapping[str, str] | None) -> Answer:
        if url.startswith("file:"):
            return self._local(url)
        shown = without_credentials(url)
        try:
            response = self.session.request(method, url, headers=dict(headers or {}))
        except requests.RequestException as error:
            self.failures[shown] = reason_of(error)
            return Answer(503, reason_of(error), {}, shown, b"")
        if response.status_code >= 400 and response.status_code != 404:
            self.failures[shown] = f"status {response.status_code}"
        return Answer(
            response.status_code,
            response.reason or "",
            response.headers,
            without_credentials(response.url),
            response.content,
            response.encoding,
        )

    def _local(self, url: str) -> Answer:
        path = Link(url).file_path
        try:
            content = path.read_bytes()
        except OSError as error:
            return Answer(404, error.strerror or "", {}, url, b"")
        kind = mimetypes.guess_type(path.name)[0] or "text/html"
        return Answer(200, "OK", {"Content-Type": kind}, url, content)
