#!/usr/bin/env python3
"""The command ``yolact-mx launch`` of this checkout."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from yolact_mx.commands.launch import main  # noqa: E402
from yolact_mx.errors import run_tool  # noqa: E402

if __name__ == "__main__":
    run_tool(main)
