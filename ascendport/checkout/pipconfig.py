"""The user's pip configuration, read as pip documents it, without pip.

Order, later wins (https://pip.pypa.io/en/stable/topics/configuration/): global files, user
files, the environment's file, the file that ``PIP_CONFIG_FILE`` names, ``PIP_*`` variables. Where
``PIP_CONFIG_FILE`` names an existing file the user files are left out; where it is the null
device no file is read.
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ascendport.errors import UserError

PYPI = "https://pypi.org/simple/"

_SECTIONS = ("global", "download", "install")
"""Sections that matter for getting packages, later wins. ``install`` counts because that is where
people put their index."""


@dataclass(frozen=True)
class Settings:
    """Where packages come from and how to get at them."""

    index_urls: tuple[str, ...] = (PYPI,)
    """Every index, the main one first; empty with ``no-index``. May hold credentials."""
    find_links: tuple[str, ...] = ()
    """Directories, files or URLs."""
    proxy: str | None = None
    cert: str | None = None
    """Path of a CA bundle."""
    client_cert: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    """``host`` or ``host:port`` whose certificate is not checked."""
    timeout_s: float = 15.0
    retries: int = 3
    """Times that a failed request is made again. pip's own default is 5."""
    origin: tuple[str, ...] = field(default=(), compare=False)
    """The files that were read."""


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The configuration in force.

    Raises:
        UserError: a configuration file or value cannot be understood.
    """
    env = os.environ if environment is None else environment
    values: dict[str, str] = {}
    read = []
    for path in config_files(env):
        if (found := _parse(path)) is not None:
            read.append(str(path))
            values.update(found)
    values.update(_variables(env))
    return _settings(values, tuple(read))


def config_files(env: Mapping[str, str]) -> Iterator[Path]:
    """The files that pip would read, in the order in which they count. They need not exist."""
    special = env.get("PIP_CONFIG_FILE")
    if special == os.devnull:
        return
    home = Path(env.get("HOME") or Path.home())
    yield from _global_files(env)
    if not (special and Path(special).exists()):
        yield from _user_files(env, home)
    yield Path(sys.prefix) / _name()
    if special:
        yield Path(special)


def _name() -> str:
    return "pip.ini" if sys.platform == "win32" else "pip.conf"


def _global_files(env: Mapping[str, str]) -> Iterator[Path]:
    if sys.platform == "win32":
        yield Path(env.get("PROGRAMDATA", "C:\\ProgramData")) / "pip" / _name()
    elif sys.platform == "darwin":
        yield Path("/Library/Application Support/pip") / _name()
    else:
        for folder in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
            yield Path(folder) / "pip" / _name()
        yield Path("/etc") / _name()


def _user_files(env: Mapping[str, str], home: Path) -> Iterator[Path]:
    if sys.platform == "win32":
        yield home / "pip" / _name()
        yield Path(env.get("APPDATA", str(home / "AppData" / "Roaming"))) / "pip" / _name()
        return
    yield home / ".pip" / _name()
    mac = home / "Library" / "Application Support" / "pip"
    if sys.platform == "darwin" and mac.is_dir():
        yield mac / _name()
    else:
        yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / _name()


def _parse(path: Path) -> dict[str, str] | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text("utf-8"), source=str(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    except (configparser.Error, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"cannot read pip's configuration ({reason})",
            where=path,
            next="mend that file, or set PIP_CONFIG_FILE=/dev/null to leave it out",
        ) from error
    values: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            values.update({_key(key): value or "" for key, value in parser.items(section)})
    return values


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    return {
        _key(name.removeprefix("PIP_")): value
        for name, value in env.items()
        if name.startswith("PIP_") and value
    }


def _key(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _settings(values: Mapping[str, str], origin: tuple[str, ...]) -> Settings:
    def words(key: str) -> tuple[str, ...]:
        return tuple(values.get(key, "").split())

    def text(*keys: str) -> str | None:
        return next((values[key].strip() for key in keys if values.get(key, "").strip()), None)

    def path(key: str) -> str | None:
        value = text(key)
        return str(Path(value).expanduser()) if value else None

    main = text("index-url", "pypi-url", "i") or PYPI
    indexes = (main, *words("extra-index-url"))
    if _flag(values, "no-index"):
        indexes = ()
    return Settings(
        index_urls=tuple(dict.fromkeys(indexes)),
        find_links=words("find-links"),
        proxy=text("proxy"),
        cert=path("cert"),
        client_cert=path("client-cert"),
        trusted_hosts=words("trusted-host"),
        timeout_s=_number(text("timeout", "default-timeout"), "timeout", Settings.timeout_s),
        retries=int(_number(text("retries"), "retries", Settings.retries)),
        origin=origin,
    )


def _flag(values: Mapping[str, str], key: str) -> bool:
    value = values.get(key, "").strip().lower()
    if value in ("", "0", "false", "no", "off", "n", "f"):
        return False
    if value in ("1", "true", "yes", "on", "y", "t"):
        return True
    raise UserError(f"pip's option {key} is neither true nor false", where=value)


def _number(value: str | None, key: str, default: float) -> float:
    if value is None:
        return default
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if number < 0:
        raise UserError(f"pip's option {key} is not a number of zero or more", where=value)
    return number
