"""``yolact-mx``: its commands, its help, and the wheel it comes in."""
import importlib
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tiny import ROOT

from yolact_mx import __version__, command
from yolact_mx.command import COMMANDS
from yolact_mx.errors import run_tool

TOOLS = {path.stem: path for path in (ROOT / "tools").glob("*.py")}


@pytest.fixture
def call(capsys):
    """``call(arguments...)`` -> (exit code, stdout, stderr)."""
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            run_tool(command.main, [str(argument) for argument in arguments])
        return (stop.value.code, *capsys.readouterr())

    return run


def test_overview(call):
    code, out, err = call("--help")
    assert code == 0 and err == "" and out.startswith("usage: yolact-mx COMMAND ...\n")
    for name, (_, text) in COMMANDS.items():
        assert re.search("^  {} +{}$".format(name, re.escape(text)), out, re.MULTILINE)
    assert call("-h") == (0, out, "") and call() == (2, out, "")
    code, group, _ = call("convert", "--help")
    assert code == 0 and "convert weights" in group and "train" not in group
    assert group.startswith("usage: yolact-mx convert COMMAND ...\n")
    assert call("convert") == (2, group, "")
    assert call("--version") == (0, "yolact-mx {}\n".format(__version__), "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each(call, name):
    code, out, err = call(*name.split(), "--help")
    assert code == 0 and err == "" and out.startswith("usage: yolact-mx {} [-h]".format(name))
    assert "examples:\n  yolact-mx {} ".format(name) in out and "%(prog)s" not in out


@pytest.mark.parametrize("given, text", [
    ("trian", "unknown command 'trian', did you mean 'train'?; yolact-mx --help lists them"),
    ("convert wights", "'convert wights', did you mean 'convert weights'?"),
    ("convert_weights", "did you mean 'convert weights'?"), ("xyz", "unknown command 'xyz'; "),
    ("--trian", "unknown command '--trian', did you mean 'train'?")])
def test_unknown_commands(call, given, text):
    code, out, err = call(*given.split(), "--out", "x")
    assert code == 2 and out == "" and err.startswith("error: ") and text in err
    assert len(err.splitlines()) == 1


def test_arguments_and_exit_code_are_handed_on(call, tmp_path):
    code, out, _ = call("shapes", tmp_path / "data", "--train", 2, "--val", 1, "--size", 64)
    assert code == 0 and "2 training and 1 validation images of 64x64 pixels" in out
    truth = tmp_path / "data" / "instances_train.json"
    assert call("check", truth, "--images", tmp_path / "data" / "images")[0] == 0
    (tmp_path / "data" / "images" / "train_00000.jpg").write_text("no picture")
    assert call("check", truth, "--images", tmp_path / "data" / "images")[0] == 1
    code, out, err = call("check", tmp_path / "no.json", "--images", tmp_path)
    assert code == 2 and err.startswith("error: ") and "no.json" in err


def test_every_tool_is_a_command():
    """The files in tools/ run the same functions and are all in the table."""
    assert set(TOOLS) == {module for module, _ in COMMANDS.values()}
    for name, path in TOOLS.items():
        text = path.read_text(encoding="utf-8")
        assert "from yolact_mx.commands.{} import main ".format(name) in text
        assert len(text.splitlines()) < 15
        module = importlib.import_module("yolact_mx.commands." + name)
        assert callable(module.main) and module.__doc__ and module.EXAMPLES


def test_the_overview_needs_no_mxnet():
    """It is there at once; each command imports what it needs."""
    code = ("import sys; from yolact_mx import command; command.main(['--help']); "
            "assert 'mxnet' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=str(ROOT),
                   stdout=subprocess.DEVNULL)


def test_threads_are_set_before_mxnet(tmp_path):
    """The console script imports the package, and so its runtime, before any MXNet."""
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
    env = {name: value for name, value in os.environ.items() if name not in names}
    code = ("import os, sys; sys.argv = ['yolact-mx', 'train', 'nothing', '--data', 'nowhere']\n"
            "try:\n    from yolact_mx.command import console; console()\n"
            "except SystemExit: print(*map(os.environ.get, {}))".format(names))
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=str(ROOT),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    cores, policy = done.stdout.split()
    assert int(cores) >= 1 and policy == "PASSIVE" and "'nothing' not found" in done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what is packed: building leaves files behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(str(ROOT / name), str(folder))
    for name in ("yolact_mx", "configs", "examples"):
        shutil.copytree(str(ROOT / name), str(folder / name),
                        ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_what_is_packed(source, tmp_path):
    """Configurations and the demo's example are inside the package and found there."""
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-lib",
                    str(tmp_path / "lib")], cwd=str(source), check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    packed = tmp_path / "lib" / "yolact_mx"
    assert {path.name for path in (packed / "configs").iterdir()} == {
        path.name for path in (ROOT / "configs").glob("*.yml")}
    assert (packed / "examples" / "mxnet_predict.py").is_file()
    assert {path.name for path in (packed / "csrc").iterdir()} == {
        path.name for path in (ROOT / "yolact_mx" / "csrc").iterdir()}
    assert {path.relative_to(packed) for path in packed.rglob("*.py")} >= {
        path.relative_to(ROOT / "yolact_mx") for path in (ROOT / "yolact_mx").rglob("*.py")}
    code = ("from yolact_mx.config import configs_dir, load_config; print(configs_dir()); "
            "load_config('yolact_plus_resnet50')")
    done = subprocess.run([sys.executable, "-c", code], cwd=str(tmp_path), check=True,
                          env=dict(os.environ, PYTHONPATH=str(tmp_path / "lib")),
                          stdout=subprocess.PIPE, universal_newlines=True)
    assert done.stdout.strip() == str(packed / "configs")


@pytest.mark.slow
def test_the_wheel_runs_the_demo_elsewhere(source, tmp_path):
    """Built, installed into an environment of its own, run from another folder."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", ".", "-q", "--no-deps",
                    "--no-build-isolation", "--wheel-dir", str(tmp_path)], cwd=str(source),
                   check=True)
    venv.create(str(tmp_path / "env"), with_pip=True)
    bin_dir = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    wheel, = tmp_path.glob("*.whl")
    subprocess.run([str(bin_dir / "pip"), "install", "-q", "--no-deps", str(wheel)], check=True)
    site = subprocess.run(
        [str(bin_dir / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.strip()
    # What yolact_mx needs comes from this environment: nothing is downloaded
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (Path(site) / "needed.pth").write_text("\n".join(folders), encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(bin_dir / "yolact-mx"), "demo", "--steps", "3"], env=env,
                          cwd=str(elsewhere), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (elsewhere / "runs" / "demo" / "metrics.json").is_file()
    assert len(list((elsewhere / "runs" / "demo" / "overlays").glob("*.png"))) == 12
