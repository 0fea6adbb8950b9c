"""Packaging; the pins say why they are there."""
import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
INIT = (HERE / "yolact_mx" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search('__version__ = "(.+)"', INIT).group(1)

setup(
    name="yolact_mx",
    version=VERSION,
    description="YOLACT and YOLACT++ instance segmentation for Apache MXNet Gluon and GluonCV",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["yolact_mx", "yolact_mx.*"]),
    python_requires=">=3.8,<3.13",
    install_requires=[
        # The last MXNet there is.  It uses NumPy aliases that 1.24 removed and cannot import
        # NumPy 2; on Python 3.12, which has no older NumPy, yolact_mx.runtime restores them.
        "mxnet==1.9.1",
        "numpy>=1.21,<1.24; python_version < '3.12'",
        "numpy==1.26.4; python_version >= '3.12'",
        # GluonCV imports distutils, which Python 3.12 has in setuptools only
        "setuptools; python_version >= '3.12'",
        "gluoncv==0.10.5",
        # Later builds need NumPy 2
        "opencv-python>=4.5,<4.12",
        "pycocotools>=2.0.6",
        "omegaconf>=2.3,<2.4",
        "tqdm",
        "pillow",
        "matplotlib",
    ],
    extras_require={
        "dev": ["pytest", "pytest-xdist", "hypothesis", "ruff"],
        # Reads the PyTorch reference's weights; nothing else needs it
        "convert": ["torch>=1.13"],
        # The same COCO numbers as pycocotools, many times faster
        "fast": ["hotcoco; python_version >= '3.10'"],
    },
)
