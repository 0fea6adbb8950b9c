"""Where the time of a training step or of inference goes: MXNet's profiler, by operator.

Prints a Markdown table.  Operators are not bundled while they are profiled, so the whole takes a
little longer than it does otherwise; their shares are what to look at.  Network, pictures and
objects are those of benchmarks/reference.py.
"""
import argparse
import json
import os
import sys
from types import SimpleNamespace

EXAMPLES = """
examples:
  python benchmarks/operators.py --what training
  python benchmarks/operators.py --what inference --dtype int8 --rows 8
  python benchmarks/operators.py yolact_plus_resnet50 --what training --dtype bfloat16
"""


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="yolact_resnet50")
    parser.add_argument("--what", choices=("inference", "training"), required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "int8"), default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="runs that are averaged (default: 3)")
    parser.add_argument("--rows", type=int, default=12, help="operators shown (default: 12)")
    return parser.parse_args(argv)


def profiled(run, rounds):
    """{operator: (calls, milliseconds)} of one run."""
    import mxnet as mx

    for _ in range(2):  # memory is planned and taken
        run()
    mx.profiler.set_config(profile_imperative=True, profile_symbolic=True, aggregate_stats=True,
                           filename=os.devnull)
    mx.profiler.set_state("run")
    for _ in range(rounds):
        run()
    mx.profiler.set_state("stop")
    content = json.loads(mx.profiler.dumps(format="json"))["Time"]["operator"]
    return {name: (entry["Count"] / rounds, entry["Total"] / rounds)
            for name, entry in content.items()}


def table(found, rows):
    total = sum(milliseconds for _, milliseconds in found.values())
    order = sorted(found.items(), key=lambda item: -item[1][1])
    shown, others = order[:rows], order[rows:]
    rest = [sum(value[i] for _, value in others) for i in range(2)]
    shown += [("{} others".format(len(others)), rest)] if others else []
    shown.append(("all", (sum(calls for calls, _ in found.values()), total)))
    lines = ["| operator | calls | ms | share |", "|---|---|---|---|"]
    for name, (calls, milliseconds) in shown:
        lines.append("| {} | {:.0f} | {:.1f} | {:.1%} |".format(
            name.strip("_"), calls, milliseconds, milliseconds / total))
    return "\n".join(lines)


def main(argv=None):
    args = parse(argv)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    # operators one by one, not in bundles that the profiler sees as one
    os.environ.update(MXNET_EXEC_BULK_EXEC_TRAIN="0", MXNET_EXEC_BULK_EXEC_INFERENCE="0")
    from reference_tasks import TASKS

    options = SimpleNamespace(config=args.config, dtype=args.dtype, threads=args.threads,
                              score_threshold=0.0)
    run, _ = TASKS["ours", args.what](options)
    print("{} of {} in {}, {} threads\n".format(args.what, args.config, args.dtype, args.threads))
    print(table(profiled(run, args.rounds), args.rows))


if __name__ == "__main__":
    sys.exit(main())
