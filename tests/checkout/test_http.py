"""What a request carries: credentials, proxies, certificates."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
import requests

from ascendport.checkout.http import PageFetcher, Session, reason_of, without_credentials
from ascendport.checkout.pipconfig import Settings
from tests.checkout.conftest import Mirror, StartMirror

pytestmark = pytest.mark.usefixtures("clean_pip")

QUICK = {"retries": 0, "timeout_s": 10.0}


def session_of(**values: object) -> Session:
    return Session(Settings(**{**QUICK, **values}))  # type: ignore[arg-type]


def test_credentials_go_to_the_hosts_of_indexes_only(start_mirror: StartMirror) -> None:
    index, other = start_mirror(), start_mirror()
    index.files["/a"] = other.files["/a"] = b"x"
    index.user = "me:p@ss"
    with_user = f"http://me:p%40ss@127.0.0.1:{index.port}/simple/"
    session = session_of(index_urls=(with_user,))
    assert session.get(f"{index.base}/a").content == b"x"
    assert session.get(f"{other.base}/a").content == b"x"
    assert other.authorizations == [""]
    assert session_of().get(f"{index.base}/a").status_code == 401


def test_netrc(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.files["/a"] = b"x"
    mirror.user = "net:rc"
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login net password rc\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    assert session_of().get(f"{mirror.base}/a").content == b"x"


@pytest.mark.parametrize(
    "url, shown",
    [
        ("https://u:p@h:1/a?b#c", "https://h:1/a?b#c"),
        ("https://h/a@b", "https://h/a@b"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_proxy_of_pip_wins_over_the_variables(
    start_mirror: StartMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_pip, of_variable = start_mirror(), start_mirror()
    of_pip.files["/a"] = of_variable.files["/a"] = b"x"
    monkeypatch.setenv("http_proxy", of_variable.base)
    assert session_of().get("http://nowhere.invalid/a").content == b"x"
    assert of_variable.requests == ["GET http://nowhere.invalid/a"]
    assert session_of(proxy=of_pip.base).get("http://nowhere.invalid/a").content == b"x"
    assert of_pip.requests == ["GET http://nowhere.invalid/a"]


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context with a certificate that nobody trusts, and that certificate."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2"]
    command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl program that makes certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_certificates(
    start_mirror: StartMirror,
    tls: tuple[ssl.SSLContext, Path],
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    context, cert = tls
    mirror = start_mirror(tls=context)
    mirror.files["/a"] = b"x"
    url = f"{mirror.base}/a"
    with pytest.raises(requests.exceptions.SSLError) as caught:
        session_of().get(url)
    assert reason_of(caught.value) == "the certificate is not accepted"
    assert session_of(trusted_hosts=(f"127.0.0.1:{mirror.port}",)).get(url).content == b"x"
    assert session_of(trusted_hosts=("127.0.0.1",)).get(url).content == b"x"
    assert not [warning for warning in recwarn if "Unverified" in str(warning.message)]
    # pip's own setting wins over a variable that names another bundle.
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", requests.utils.DEFAULT_CA_BUNDLE_PATH)
    assert session_of(cert=str(cert)).get(url).content == b"x"


def test_pages_that_cannot_be_had_are_noted(mirror: Mirror, tmp_path: Path) -> None:
    pages = PageFetcher(session_of())
    assert pages.get(f"{mirror.base}/none").status_code == 404
    assert pages.failures == {}  # an index without the project is nothing unusual
    mirror.user = "a:b"
    secret = f"http://x:secret@127.0.0.1:{mirror.port}/a"
    assert pages.get(secret).status_code == 401
    assert pages.get("http://127.0.0.1:1/").status_code == 503
    assert pages.failures == {
        f"{mirror.base}/a": "status 401",
        "http://127.0.0.1:1/": "no connection",
    }
    page = tmp_path / "index.html"
    page.write_text("<a>")
    assert pages.get(page.as_uri()).content == b"<a>"
    assert pages.get((tmp_path / "none.html").as_uri()).status_code == 404
