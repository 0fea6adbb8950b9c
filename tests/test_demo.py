"""The demo's whole way with a few training steps (slow: it generates its full data set)."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_demo(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "demo.py"), "--out",
                           str(tmp_path / "demo"), "--steps", "3"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
    metrics = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert set(metrics) == {"bbox", "segm", "seconds"} and "AP50" in metrics["segm"]
    for name in ("model-symbol.json", "model-0000.params", "model.json", "sheet.png", "curves.png"):
        assert (tmp_path / "demo" / name).is_file()
    assert len(list((tmp_path / "demo" / "overlays").glob("*.png"))) == 12
