"""pip's configuration, compared with what pip itself says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ascendport.checkout.pipconfig import PYPI, Settings, config_files, settings
from ascendport.errors import UserError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a home and system directories of its own."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "system")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def alone(tmp_path: Path, text: str = "") -> dict[str, str]:
    """An environment in which a single file counts; it also keeps this machine's files out."""
    path = write(tmp_path / "pip.conf", text)
    return {"HOME": str(tmp_path / "h"), "PIP_CONFIG_FILE": str(path), "XDG_CONFIG_DIRS": "/none"}


def test_nothing_configured() -> None:
    found = settings({"PIP_CONFIG_FILE": os.devnull, "HOME": "/none"})
    assert found == Settings()
    assert found.index_urls == (PYPI,)


def test_null_device_keeps_every_file_out(env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user/\n")
    assert settings(env).index_urls[0] == "https://user/"
    assert settings({**env, "PIP_CONFIG_FILE": os.devnull}).index_urls == (PYPI,)


def test_user_file_wins_over_system_and_legacy_file(env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "system/pip/pip.conf", "[global]\nindex-url = https://system/\nproxy = p:1\n")
    assert settings(env).index_urls[0] == "https://system/"
    write(tmp_path / "home/.pip/pip.conf", "[global]\nindex-url = https://legacy/\n")
    assert settings(env).index_urls[0] == "https://legacy/"
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nindex-url = https://user/\n")
    found = settings(env)
    assert found.index_urls[0] == "https://user/"
    assert found.proxy == "p:1"


def test_named_file_shuts_the_user_file_out(env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nproxy = user:1\n")
    named = write(tmp_path / "named ü.conf", "[global]\nindex-url = https://named/\n")
    found = settings({**env, "PIP_CONFIG_FILE": str(named)})
    assert found.index_urls[0] == "https://named/"
    assert found.proxy is None
    # One that does not exist shuts nothing out.
    assert settings({**env, "PIP_CONFIG_FILE": str(tmp_path / "no")}).proxy == "user:1"


def test_variables_win(tmp_path: Path) -> None:
    base = alone(tmp_path, "[global]\nindex-url = https://file/\nretries = 7\n")
    assert settings(base).retries == 7
    found = settings({**base, "PIP_INDEX_URL": "https://env/", "PIP_RETRIES": "", "PIP_PROXY": "x"})
    assert (found.index_urls, found.retries, found.proxy) == (("https://env/",), 7, "x")


def test_lists(tmp_path: Path) -> None:
    text = (
        "[global]\nextra-index-url =\n    https://one/\n    file:///two/simple\n"
        "[install]\nfind-links = /a /b\ntrusted_host = h:8080\n"
    )
    found = settings(alone(tmp_path, text))
    assert found.index_urls == (PYPI, "https://one/", "file:///two/simple")
    assert found.find_links == ("/a", "/b")
    assert found.trusted_hosts == ("h:8080",)


@pytest.mark.parametrize("value, off", [("1", True), ("true", True), ("no", False), ("0", False)])
def test_no_index(tmp_path: Path, value: str, off: bool) -> None:
    found = settings({**alone(tmp_path), "PIP_NO_INDEX": value})
    assert found.index_urls == (() if off else (PYPI,))


def test_both_names_of_timeout(tmp_path: Path) -> None:
    assert settings({**alone(tmp_path), "PIP_DEFAULT_TIMEOUT": "180"}).timeout_s == 180
    assert settings(alone(tmp_path, "[global]\ntimeout = 7\n")).timeout_s == 7


def test_other_sections_do_not_count(tmp_path: Path) -> None:
    assert settings(alone(tmp_path, "[freeze]\nindex-url = https://x/\n")).index_urls == (PYPI,)


@pytest.mark.parametrize(
    "text, told",
    [
        ("index-url = https://x/\n", "cannot read pip's configuration"),
        ("[global]\nretries = many\n", "retries"),
        ("[global]\ntimeout = -1\n", "timeout"),
        ("[global]\nno-index = perhaps\n", "no-index"),
    ],
    ids=["no section", "word for a number", "negative", "neither true nor false"],
)
def test_what_cannot_be_understood(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        settings(alone(tmp_path, text))


def pip_says(env: dict[str, str]) -> dict[str, str]:
    """Option → value, as ``pip config list`` merges files and variables for `download`."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env={**env, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip("no pip in this environment")
    values: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        sections.setdefault(section, {})[key] = ast.literal_eval(value)
    for section in ("global", "download", "install", ":env:"):
        values.update(sections.get(section, {}))
    return values


def compare(env: dict[str, str]) -> None:
    told, found = pip_says(env), settings(env)
    extra = told.get("extra-index-url", "").split()
    assert found.index_urls == (told.get("index-url", PYPI), *extra)
    assert found.find_links == tuple(told.get("find-links", "").split())
    assert found.proxy == told.get("proxy")
    assert found.cert == told.get("cert")


def test_same_as_pip_on_this_machine() -> None:
    compare(dict(os.environ))


@pytest.mark.parametrize("named", [False, True], ids=["user file", "named file"])
def test_same_as_pip_on_files_of_every_kind(
    env: dict[str, str], tmp_path: Path, named: bool
) -> None:
    write(
        tmp_path / "system/pip/pip.conf",
        "[global]\nindex-url = https://s/\nextra-index-url = https://s1/ https://s2/\n",
    )
    write(tmp_path / "home/.config/pip/pip.conf", "[global]\nproxy = u:1\nfind-links = /u\n")
    env["PIP_FIND_LINKS"] = "/e1 /e2"
    if named:
        file = write(tmp_path / "n.conf", "[global]\ncert = /n.pem\n")
        env["PIP_CONFIG_FILE"] = str(file)
    compare(env)
    assert (settings(env).proxy is None) is named


def test_files_are_looked_for_in_the_environment_too() -> None:
    assert Path(sys.prefix) / "pip.conf" in set(config_files({"HOME": "/none"}))
