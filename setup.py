"""Packaging; the pins say why they are there."""
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
INIT = (HERE / "yolact_mx" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search('__version__ = "(.+)"', INIT).group(1)


class BuildWithData(build_py):
    """Packs the configurations and the demo's example, which lie beside the package, into it."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return
        for pattern in ("configs/*.yml", "examples/mxnet_predict.py"):
            for source in HERE.glob(pattern):
                target = Path(self.build_lib, "yolact_mx", source.parent.name, source.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(source), str(target))


setup(
    name="yolact_mx",
    version=VERSION,
    description="YOLACT and YOLACT++ instance segmentation for Apache MXNet Gluon and GluonCV",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["yolact_mx", "yolact_mx.*"]),
    package_data={"yolact_mx": ["csrc/*"]},
    cmdclass={"build_py": BuildWithData},
    entry_points={"console_scripts": ["yolact-mx = yolact_mx.command:console"]},
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
        "dev": ["pytest", "pytest-xdist", "hypothesis", "ruff", "tensorboardX"],
        # train.tensorboard
        "tensorboard": ["tensorboardX"],
        # tools/export.py --format onnx, checked in ONNX Runtime
        "onnx": ["onnx>=1.13", "onnxruntime>=1.15"],
        # Reads the PyTorch reference's weights; nothing else needs it
        "convert": ["torch>=1.13"],
        # The same COCO numbers as pycocotools, many times faster
        "fast": ["hotcoco; python_version >= '3.10'"],
    },
)
