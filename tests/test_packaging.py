"""The wheel: ports travel inside the package, and nothing else lands in site-packages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ascendport.ports.catalogue import catalogue

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    return built


def test_only_the_package_lands_in_site_packages(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ascendport"}


def test_an_installed_wheel_finds_every_port(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        "import ascendport.ports.catalogue as c\n"
        "print(c.__file__)\n"
        "print([port.name for port in c.catalogue() if port.read('README.md')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    file, ports = done.stdout.splitlines()
    assert file.startswith(str(tmp_path))
    assert ports == str([port.name for port in catalogue()])


def test_data_files_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "ascendport").rglob("*.toml"):
        assert file.relative_to(ROOT).as_posix() in names
    assert "ascendport/py.typed" in names
