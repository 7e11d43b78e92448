"""Where ports are found, and how they are chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ascendport
from ascendport.errors import UserError
from ascendport.ports.catalogue import VARIABLE, catalogue, select
from ascendport.ports.manifest import Port
from tests.patching.conftest import Spec, make_port


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def port(folder: Path, name: str) -> Port:
    return make_port(folder, name, {"only": [Spec("a.py", b"a = 1\n", [], ["a"])]})


def names(*extra: Path) -> set[str]:
    own = {one.name for one in catalogue()}
    return {one.name for one in catalogue(extra)} - own


def test_a_folder_of_ports_and_a_port(tmp_path: Path) -> None:
    port(tmp_path / "shelf" / "x", "zz_one")
    port(tmp_path / "shelf" / "y", "zz_two")
    (tmp_path / "shelf" / "empty").mkdir()
    (tmp_path / "shelf" / "file").write_text("")
    assert names(tmp_path / "shelf") == {"zz_one", "zz_two"}
    assert names(tmp_path / "shelf" / "y") == {"zz_two"}


def test_the_same_folder_twice_is_one_port(tmp_path: Path) -> None:
    port(tmp_path / "shelf" / "x", "zz_one")
    assert names(tmp_path / "shelf", tmp_path / "shelf" / "x") == {"zz_one"}


def test_the_environment_names_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {one.name for one in catalogue()}
    port(tmp_path / "x", "zz_one")
    port(tmp_path / "y", "zz_two")
    monkeypatch.setenv(VARIABLE, os.pathsep.join([str(tmp_path / "x"), "", str(tmp_path / "y")]))
    assert {one.name for one in catalogue()} - own == {"zz_one", "zz_two"}


def test_sorted_by_kind_and_name(tmp_path: Path) -> None:
    for name in ("zz_b", "zz_a", "zz_c"):
        port(tmp_path / name, name)
    store = tmp_path / "zz_a" / "port.toml"
    store.write_text(store.read_text().replace('"kernel"', '"store"'))
    found = [one.name for one in catalogue([tmp_path]) if one.name.startswith("zz_")]
    assert found == ["zz_b", "zz_c", "zz_a"]


def test_two_ports_of_one_name_are_refused(tmp_path: Path) -> None:
    port(tmp_path / "x", "zz_one")
    port(tmp_path / "y", "zz_one")
    with pytest.raises(UserError, match="two ports are named zz_one"):
        catalogue([tmp_path])


def test_a_folder_without_ports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no port there"):
        catalogue([tmp_path])
    with pytest.raises(UserError, match="no port there"):
        catalogue([tmp_path / "absent"])


def test_select(tmp_path: Path) -> None:
    ports = [port(tmp_path / name, name) for name in ("bincount", "logprobs", "penalties")]
    assert select(ports, []) == ports
    assert [one.name for one in select(ports, ["penalties", "bincount", "bincount"])] == [
        "bincount",
        "penalties",
    ]
    with pytest.raises(UserError, match=r"no such port: penalty; did you mean penalties\?"):
        select(ports, ["bincount", "penalty"])
    with pytest.raises(UserError, match="'ascendport list' shows all"):
        select(ports, ["xyzzy"])


@pytest.mark.parametrize("layout", ["wheel", "source", "site-packages"])
def test_where_the_tools_own_ports_are(layout: str, tmp_path: Path) -> None:
    home = tmp_path / layout
    package = Path(ascendport.__file__).parent
    shutil.copytree(package, home / "ascendport", ignore=shutil.ignore_patterns("_ports"))
    base = home / "ascendport" / "_ports" if layout == "wheel" else home
    port(base / "kernels" / "zz_kernel", "zz_kernel")
    port(base / "store_patches" / "zz_store", "zz_store")
    if layout == "source":
        (home / "pyproject.toml").write_text("")
    program = (
        "from ascendport.ports.catalogue import catalogue\n"
        "print(*[port.name for port in catalogue()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    # Folders that happen to lie next to an installed package are not the tool's.
    expected = [] if layout == "site-packages" else ["zz_kernel", "zz_store"]
    assert done.stdout.split() == expected
