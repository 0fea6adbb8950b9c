"""``yolact-mx benchmark`` and benchmarks/scaling.py: what is counted, and what a table says."""
import importlib
import json
import subprocess
import sys
from types import SimpleNamespace

import mxnet as mx
import pytest
from mxnet.gluon.parameter import Constant
from tiny import ROOT, four_class_data, write_config

from yolact_mx import benchmark, benchmark_tasks
from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.detect import build_detector
from yolact_mx.errors import UserError
from yolact_mx.graph_cost import count
from yolact_mx.losses import build_loss
from yolact_mx.models import build_yolact
from yolact_mx.train_step import TrainStep

pytest_plugins = ("tiny_fixtures",)
FIGURES = {"median", "min", "max", "cpu", "rounds"}
RATED = {"flops", "flops_per_second", "gemm_share"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """(configuration file, folder of data with four classes)."""
    folder = tmp_path_factory.mktemp("benchmark")
    return write_config(folder), four_class_data(folder / "data")


@pytest.fixture
def scaling(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("scaling")
    for name in ("scaling", "timing"):
        sys.modules.pop(name)


def cost_of(outputs, block, **shapes):
    """(FLOPs, parameters) of a graph, its constants left out."""
    graph, values = mx.sym.Group(list(outputs)), block.collect_params()
    inputs = set(graph.list_inputs()) - set(shapes)
    trained = [name for name in set(graph.list_arguments()) - set(shapes)
               if not isinstance(values[name], Constant)]
    cost = count(graph, **dict(shapes, **{name: values[name].shape for name in inputs}))
    return cost.flops, sum(values[name].data().size for name in trained)


def test_tables_and_figures_of_a_configuration(tool, tiny, tmp_path):
    """The whole command, in its processes; FLOPs and parameters are those of the graphs."""
    path = tmp_path / "figures.json"
    code, out, err = tool("benchmark", tiny[0], "--data", tiny[1], "--batch", 2, "--rounds", 1,
                          "--threads", 1, "--json", path, "train.workers=1")
    assert code == 0 and "tiny.yml training" in err  # progress
    content = json.loads(path.read_text())
    peak, results = content["gemm"]["float32"]["flops_per_second"], content["results"]
    assert [result["what"] for result in results] == ["inference", "training"]
    for result in results:
        assert result["config"] == "tiny" and result["batch"] == 2 and result["threads"] == 1
        assert 50 < result["base_mb"] < result["peak_mb"] < 4000
        assert set(result["phases"]) == set(benchmark.PHASES[result["what"]])
        for phase in result["phases"].values():
            assert FIGURES <= set(phase) and 0 < phase["min"] <= phase["median"] <= phase["max"]
            assert phase["rounds"] == 1
        total = result["phases"]["total"]
        assert RATED <= set(total) and total["images_per_second"] == 2 / total["median"]
        assert total["gemm_share"] == pytest.approx(total["flops"] / total["median"] / peak)
    assert [result["classes"] for result in results] == [80, 4]
    assert out.count("### tiny, ") == 2 and "Input 64x64, batch 2, 80 classes, float32" in out
    for result in results:
        for label in benchmark.PHASES[result["what"]].values():
            assert "| {} | ".format(label) in out
    config = load_config(tiny[0])
    check_inference_costs(results[0], config)
    check_training_costs(results[1], config)


def check_inference_costs(result, config):
    net = build_yolact(config, 80, dcn_sampler="mxnet")
    detector = build_detector(config, net, 80)
    x, shape = mx.sym.var("data"), (2, 3, 64, 64)
    assert (result["flops"], result["parameters"]) == cost_of(detector(x), detector, data=shape)
    assert result["phases"]["total"]["flops"] == result["flops"]
    assert result["phases"]["forward"]["flops"] == cost_of(net(x), net, data=shape)[0]
    assert not any("Loader" in note or "int8" in note for note in result["notes"])


def check_training_costs(result, config):
    net = build_yolact(config, 4, training=True, dcn_sampler="mxnet")
    step = TrainStep(net, build_loss(config, net, 4))
    anchors = step.loss.anchors.shape[1]
    inputs = {"images": (2, 3, 64, 64), "match": (2, anchors), "gt_boxes": (2, 8, 4),
              "gt_labels": (2, 8), "gt_masks": (2, 8, 16, 16), "gt_semantic": (2, 8, 8, 8),
              "totals": (2,)}
    flops, parameters = cost_of(step(*map(mx.sym.var, inputs)), step, **inputs)
    assert (result["flops"], result["parameters"]) == (3 * flops, parameters)
    assert [result["phases"][name].get("flops") for name in benchmark.PHASES["training"]] == [
        None, flops, 2 * flops, None, 3 * flops]
    assert "Loader processes beside it: 1" in result["notes"][0]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_matrix_products_of_other_number_formats(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(benchmark_tasks, "GEMM_SIDE", 64)
    said = []
    result = benchmark_tasks.gemm(said.append, 2, tmp_path, dtype)
    assert result["flops_per_second"] == 2 * 64 ** 3 / result["min"]
    assert said == [{"done": n, "of": 3} for n in (1, 2, 3)]


def test_int8_says_where_its_ranges_are_from(tiny, tmp_path):
    plain = ("model.mask_iou=[]", "model.backbone.dcn_blocks=[0,0,0,0]")
    result = benchmark_tasks.inference(print, tiny[0], plain, 1, 2, tmp_path, "int8")
    assert result["dtype"] == "int8" and "random pictures" in result["notes"][0]
    assert {name: phase["rounds"] for name, phase in result["phases"].items()} == {
        "load": 1, "prepare": 2, "forward": 2, "detection": 2, "masks": 2, "total": 2}


def test_generated_pictures_have_the_classes_of_the_configuration(tmp_path):
    config = benchmark_tasks.read_config("shapes", ["classes=[a, b]", "train.batch_size=2"])
    dataset = benchmark_tasks.training_set(config, None, tmp_path)
    assert dataset.classes == ["a", "b"] and len(dataset) == 8 and dataset.report.clean
    assert {label for i in range(8) for label in dataset[i].labels} == {0, 1}


def test_timed_and_its_summary():
    calls, rounds = [], []
    times = benchmark.timed({name: lambda name=name: calls.append(name) for name in "ab"}, 3,
                            lambda: rounds.append(len(calls)))
    assert calls == list("abababab") and rounds == [2, 4, 6, 8]  # the first round is untimed
    assert [len(samples) for samples in times.values()] == [3, 3]
    assert benchmark.summary([(3.0, 1.0), (1.0, 5.0), (2.0, 4.0)]) == {
        "median": 2.0, "min": 1.0, "max": 3.0, "cpu": 4.0, "rounds": 3}


def test_a_row_of_the_table():
    phase = {"median": 0.5, "min": 0.25, "max": 0.75, "cpu": 12.34, "rounds": 3}
    result = {"config": "c", "what": "inference", "input": 64, "batch": 4, "classes": 2,
              "dtype": "int8", "device": "cpu(0)", "threads": 1, "rounds": 3, "parameters": 1.5e6,
              "flops": 8e9, "peak_mb": 100.4, "notes": ["Note"],
              "phases": {name: dict(phase) for name in benchmark.PHASES["inference"]}}
    result["phases"]["load"]["rounds"] = 1
    result["phases"]["total"]["flops"] = 8e9
    result = benchmark.with_rates(result, {"flops_per_second": 64e9, "cpu": 1.0, "median": 1.0})
    lines = benchmark.markdown(result).splitlines()
    assert lines[2] == ("1.5 M parameters, 2.00 GFLOPs an image, peak memory 100 MB, GEMM peak 64 "
                        "GFLOP/s.")
    assert lines[3] == "Note."
    assert lines[7].split(" | ")[1:] == ["0.500", "", "", "12.3", "", "", "", " |"]
    assert lines[-1].split(" | ")[1:] == [
        "0.500", "0.250", "0.750", "12.3", "8.00", "8.00", "16.0", "25% |"]
    assert [benchmark._number(x) for x in (None, 1234.5, 0.01234, 0.0012345)] == [
        "", "1234", "0.0123", "0.00123"]


@pytest.mark.parametrize("cpu, device, busy", [
    (2.0, "cpu(0)", False), (1.7, "cpu(0)", False), (1.0, "cpu(0)", True), (0.1, "gpu(0)", False)])
def test_a_busy_machine_is_said(cpu, device, busy):
    result = {"what": "training", "threads": 2, "device": device, "notes": [], "phases": {}}
    gemm = {"flops_per_second": 1e9, "cpu": cpu, "median": 1.0}
    notes = benchmark.with_rates(result, gemm)["notes"]
    assert ["had 1.0 cores for 2 threads" in note for note in notes] == [True] * busy


def test_the_first_steps_are_not_timed(monkeypatch):
    """The first backward, which compiles, lies in the interval after the second step."""
    steps, clock = [], iter([0, 100, 300, 700, 701, 703, 706])

    def update(batch):
        steps.append(batch)
        return 0.1, []

    trainer = SimpleNamespace(update=update, train_set=None, samples=None,
                              config=SimpleNamespace(train=SimpleNamespace(workers=0)))
    monkeypatch.setattr(benchmark_tasks, "build_batches", lambda *args: range(*args[2:]))
    monkeypatch.setattr(benchmark_tasks, "build_loader", lambda samples, batches, workers: batches)
    monkeypatch.setattr(benchmark_tasks.time, "perf_counter", lambda: next(clock))
    samples = benchmark_tasks.whole_steps(trainer, 3, lambda: None)
    assert len(steps) == 7 and [seconds for seconds, _ in samples] == [1, 2, 3]


@pytest.mark.parametrize("code, text", [
    ("import os; os.kill(os.getpid(), 9)", r"c gemm: its process was killed \(out of memory\?\)"),
    ("raise SystemExit(3)", "its process has failed, see above"),
    ("print('{\"error\": \"key such and such\"}')", "^c gemm: key such and such$")])
def test_a_process_that_fails(monkeypatch, code, text):
    monkeypatch.setattr(benchmark, "_start", lambda *_: start(code))
    with pytest.raises(UserError, match=text):
        benchmark.measure("gemm", 1, config="c")


def test_ctrl_c_ends_the_process(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    process = start("import time; time.sleep(60)")
    monkeypatch.setattr(benchmark, "_start", lambda *_: process)
    monkeypatch.setattr(benchmark, "_last_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure("gemm", 1)
    assert process.returncode == -9


def start(code):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                            universal_newlines=True, start_new_session=True)


def test_mistakes_are_found_before_anything_is_measured(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "measure", lambda *_, **__: pytest.fail("measured"))
    for arguments, text in [
            (("nosuch",), "configuration 'nosuch' not found"),
            (("shapes", "nosuch"), "configuration 'nosuch' not found"),
            (("shapes", "input.sise=64"), "did you mean 'input.size'?"),
            (("shapes", "--ctx", "gpu:99"), "--ctx gpu:99: this MXNet sees"),
            (("shapes", "--ctx", "cpu:0,1"), "--ctx cpu:0,1: expected one device"),
            (("shapes", "--data", tmp_path), "expected instances_train.json there"),
            (("shapes", "--json", tmp_path / "no" / "x.json"), "No such file or directory"),
            (("shapes", "--what", "training", "--dtype", "int8"), "int8 is for inference"),
            (("shapes", "--what", "inference", "--data", "x"), "--data DIR is for training"),
            (("input.size=64",), "name at least one configuration")]:
        code, out, err = tool("benchmark", *arguments)
        assert code == 2 and out == "" and "Traceback" not in err
        assert "error: " in err.splitlines()[-1] and text in err.splitlines()[-1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")
    code, _, err = tool("benchmark", "shapes")
    assert code == 2 and "OMP_NUM_THREADS: expected a whole number, found '2,1'" in err


def test_help_needs_no_mxnet():
    code = ("import sys; from yolact_mx.commands.benchmark import main\n"
            "try: main(['--help'])\nexcept SystemExit: assert 'mxnet' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=str(ROOT),
                   stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("objects, classes", [(1, 3), (30, 4)])
def test_scaling_draws_as_many_objects_as_asked(scaling, tmp_path, objects, classes):
    scaling.generate(tmp_path, 2, objects, classes)
    dataset = CocoDataset(tmp_path / "instances_train.json", tmp_path / "images")
    assert len(dataset) == 2 and dataset.report.clean and len(dataset.classes) == classes
    sample = dataset[1]
    assert len(sample) == objects and sample.has_mask.all()
    assert sorted(set(sample.labels)) == list(range(min(objects, classes)))


def test_scaling_compares_growth_with_work(scaling):
    def point(seconds, flops, memory):
        cpu = {"cpu": seconds, "median": seconds}
        return {"what": "training", "flops": flops, "base_mb": 100, "peak_mb": 100 + memory,
                "phases": {"total": cpu, "load": cpu}}

    lines = scaling.table("batch", "training", {1: point(1, 1e9, 50), 4: point(2, 4e9, 400)})
    titles, _, first, second = [line.strip("| ").split(" | ") for line in lines.splitlines()[2:]]
    assert titles == ["batch", "total s", "GFLOPs", "x", "step", "x", "/ work", "load", "x",
                      "memory MB", "x", "/ work"]
    assert first[1:] == ["1.000", "1.00", "1.00", "1.000", "1.00", "1.00", "1.0000", "1.00", "50",
                         "1.00", "1.00"]
    assert second == ["4", "2.000", "4.00", "4.00", "2.000", "2.00", "0.50", "2.0000", "2.00",
                      "400", "8.00", "2.00"]


@pytest.mark.parametrize("nms, pairs", [("fast", 3 * 200 ** 2), ("cross_class", 200 ** 2),
                                        ("greedy", 4096 ** 2)])
def test_scaling_counts_what_detection_goes_through(scaling, nms, pairs):
    options = scaling.parse(["--config", "yolact_resnet50", "detect.nms=" + nms])
    setting = {"batch": 2, "size": 550, "objects": 10, "classes": 3}
    assert scaling.detection_values(options, setting) == 2 * (
        3 * 19248 + pairs + 10 * 138 ** 2)
