"""Ours beside the work of the original in PyTorch: seconds, CPU seconds and memory.

Each side runs in a process of its own, and they take turns in every round, so a disturbance of the
machine hits all alike.  Inference: a 550 x 550 picture to 100 instances with their masks at
640 x 480.  Training: a step with two images of ten objects; ours gets the matches from its loader,
the original matches in its loss.  Weights, pictures and objects are those of tests/golden, the same
on both sides; "agreement" says how far the first results are apart.  The original's deformable
convolution is a CUDA extension: for YOLACT++ grid_sample stands in for it.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median

EXAMPLES = """
examples:
  python benchmarks/reference.py
  python benchmarks/reference.py --config yolact_plus_resnet50 --what inference --rounds 3
  python benchmarks/reference.py --dtype float32 bfloat16 --json compared.json
  python benchmarks/reference.py --what gemm --dtype float32 bfloat16
"""
DTYPES = ("float32", "bfloat16", "int8")
CONFIGS = ("yolact_resnet50", "yolact_resnet101", "yolact_base", "yolact_plus_resnet50",
           "yolact_plus_resnet101", "yolact_plus_base")
LINE = "{:22}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}"


class Worker:
    """A process that does its task once whenever it is asked."""

    def __init__(self, side, dtype, what, options):
        self.side, self.dtype, self.name = side, dtype, "{} {}".format(side, dtype)
        threads = str(options.threads)
        command = [sys.executable, "-W", "ignore", __file__, "--worker", side, "--what", what,
                   "--dtype", dtype, "--config", options.config, "--threads", threads,
                   "--score-threshold", str(options.score_threshold)]
        environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=environment, universal_newlines=True)
        self.facts = self._answer()
        self.samples = []

    def run(self, keep):
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._answer()
        if keep:
            self.samples.append(answer)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def result(self):
        seconds = [sample["seconds"] for sample in self.samples]
        return {"median": median(seconds), "min": min(seconds), "max": max(seconds),
                "cpu": median(sample["cpu"] for sample in self.samples),
                "peak_mb": max(sample["peak_mb"] for sample in self.samples),
                "seconds": seconds, "facts": self.facts}

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            sys.exit("{}: its process has ended, see above".format(self.name))
        return json.loads(line)


def serve(options):
    """The loop of a worker: a line in, the cost of one run out."""
    from reference_tasks import prepare_task

    # whatever a library prints must not come between the answers
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        run, answer = prepare_task(options)
    except ImportError as error:
        sys.exit("error: {} (PyTorch: pip install torch==2.13.0)".format(error))
    while True:
        print(json.dumps(answer), file=answers, flush=True)
        if not sys.stdin.readline():
            return
        start, cpu = time.perf_counter(), time.process_time()
        run()
        answer = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu,
                  "peak_mb": peak_mb()}


def peak_mb():
    """Peak resident memory of this process; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2 ** (20 if sys.platform == "darwin" else 10)


def compare(what, options):
    """Rounds over all workers of a task -> {name: result}, the reference first."""
    sides = [("PyTorch", "float32")] + [("ours", dtype) for dtype in options.dtype]
    if what == "gemm":
        sides = [(side, dtype) for dtype in options.dtype for side in ("PyTorch", "ours")]
    workers = []
    try:
        for side, dtype in sides:
            workers.append(Worker(side, dtype, what, options))
        for number in range(options.rounds + 1):  # the first round is untimed
            for worker in workers:
                worker.run(keep=number > 0)
        return {worker.name: worker.result() for worker in workers}
    finally:
        for worker in workers:
            worker.close()


def agreement(facts, reference):
    """How far the first results are apart, in words."""
    if "losses" in facts:
        # the mask terms are those of a random subset of the positives
        return ", ".join("{} {:.1e}".format(name, abs(facts["losses"][name] / value - 1))
                         for name, value in sorted(reference["losses"].items())
                         if "mask" not in name)
    if facts["detections"] != reference["detections"]:
        return "{} detections, not {}".format(facts["detections"], reference["detections"])
    scores = max((abs(a - b) for a, b in zip(facts["scores"], reference["scores"])), default=0)
    same = sum(a == b for a, b in zip(facts["classes"], reference["classes"]))
    pixels = abs(facts["mask pixels"] / max(1, reference["mask pixels"]) - 1)
    return "{} of {} classes, scores {:.1e}, mask pixels {:.1e}".format(
        same, facts["detections"], scores, pixels)


def report(what, results, options):
    title = "{} {}".format(what, "2048 x 2048 x 2048" if what == "gemm" else options.config)
    print("\n{}, {} threads, {} rounds, load {:.1f}".format(
        title, options.threads, options.rounds, os.getloadavg()[0]))
    print(LINE.format("", "median s", "min", "max", "CPU s", "peak MB", "GFLOP/s", "time",
                      "memory"))
    first = next(iter(results.values()))
    for name, result in results.items():
        cells = ["{:.3f}".format(result[key]) for key in ("median", "min", "max", "cpu")]
        ratios = ["{:.2f}".format(result[key] / first[key]) for key in ("median", "peak_mb")]
        speed = first["facts"]["operations"] / result["median"] / 1e9
        print(LINE.format(name, *cells, "{:.0f}".format(result["peak_mb"]),
                          "{:.0f}".format(speed), *ratios))
    for name, result in list(results.items())[1:] if what != "gemm" else ():
        print("{}: agreement: {}".format(name, agreement(result["facts"], first["facts"])))
    sys.stdout.flush()


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="yolact_resnet50", choices=CONFIGS)
    parser.add_argument("--what", default="both",
                        choices=("inference", "training", "both", "gemm"))
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=DTYPES,
                        help="of ours; the original runs in float32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--score-threshold", type=float, default=0.0,
                        help="anchors below are left out before NMS (default 0: none is)")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--worker", choices=("PyTorch", "ours"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    if options.worker:
        options.dtype = options.dtype[0]
        serve(options)
        return
    figures = {}
    for what in ("inference", "training") if options.what == "both" else (options.what,):
        figures[what] = compare(what, options)
        report(what, figures[what], options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(dict(vars(options), figures=figures), file, indent=1)


if __name__ == "__main__":
    main()
