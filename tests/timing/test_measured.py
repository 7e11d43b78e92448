"""The model against published latencies, on programs lowered from the releases' own source."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendport.timing.constants import constants
from ascendport.timing.measurements import measurements

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(r"\| (\w+) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([+-]\d+)% \| ([+-]\d+)% \|")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.ascend
def test_fitted_kernels_are_near_and_the_docs_say_what_the_script_says(
    release_tree: Callable[[str], Path], tmp_path: Path
) -> None:
    for release in {kernel.release for kernel in measurements()}:
        (tmp_path / f"vllm_ascend-{release}").symlink_to(release_tree(release))
    command = [sys.executable, str(ROOT / "scripts" / "fit_table.py"), "--trees", str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = ROW.findall(printed)
    assert len(rows) == sum(len(kernel.rows) for kernel in measurements())
    for kernel, case, _, _, error, _ in rows:
        if kernel in ("log_softmax", "gdn_gating"):
            assert abs(int(error)) <= 15, (kernel, case)
    # What ships is what the fit finds, and the docs hold this table.
    assert re.search(r"The fit of this run: (.*); the", printed)
    for name in ("launch_us", "fetch_cycles_per_line"):
        fitted = re.search(rf"The fit of this run:.*?{name} ([\d.]+).*?; the", printed)
        assert fitted
        assert float(fitted[1]) == constants()[name]
    text = (ROOT / "docs" / "time-model.md").read_text("utf-8")
    assert ROW.findall(text) == rows
