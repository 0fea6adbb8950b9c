"""Train on several machines, or with several processes of this one, by MXNet's parameter server.
"""
import os

from ..cli import command_parser, positive

EXAMPLES = """examples:
  %(prog)s -n 2 -- tools/train.py shapes --data data/shapes --kvstore dist_sync
  %(prog)s -n 4 -s 4 --hosts hosts.txt -- tools/train.py yolact_resnet50 --data coco \\
      --out /shared/runs/coco --ctx gpu:0 --kvstore dist_sync

hosts.txt has a line `host` or `user@host` for each machine; ssh has to get there without a
password and find the same folder and the same Python.
"""


def parse(argv, prog=None):
    parser = command_parser(__doc__, EXAMPLES, prog)
    parser.add_argument("-n", "--workers", type=positive, required=True, metavar="WORKERS")
    parser.add_argument(
        "-s",
        "--servers",
        type=positive,
        metavar="SERVERS",
        help="processes that add up gradients; default: one a host, at most one a worker",
    )
    parser.add_argument("--hosts", metavar="FILE", help="machines, the first has the scheduler")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="what a worker runs")
    return parser.parse_args(argv)


def main(argv=None, prog=None):
    args = parse(argv, prog)
    from ..launcher import free_port, plan_jobs, read_hosts, run_jobs

    hosts = read_hosts(args.hosts) if args.hosts else []
    servers = args.servers or min(args.workers, len(hosts) or 1)
    run_jobs(
        plan_jobs(
            args.command, args.workers, servers, hosts, free_port(), os.environ, os.getcwd()
        )
    )
