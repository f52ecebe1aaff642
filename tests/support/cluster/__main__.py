"""
A Kubernetes cluster to try things out: `python -m tests.support.cluster up`.

It runs on this machine in namespaces of its own, survives the command, and is gone after `down`.
"""

import argparse
import os
import sys
from collections.abc import Callable

from tests.support import cache
from tests.support.cluster.builder import BuildFailed
from tests.support.cluster.detached import DEFAULT, Detached, Refused
from tests.support.cluster.kubectl import Kubectl, KubectlFailed
from tests.support.cluster.prepared import prepare
from tests.support.processes import ProcessFailed
from tests.support.unavailable import Unavailable

Act = Callable[[Detached, argparse.Namespace], int]
COMMAND = "python -m tests.support.cluster"


def main() -> int:
    arguments = _parser().parse_args()
    act: Act = arguments.act
    try:
        return act(Detached(arguments.name), arguments)
    except (Refused, Unavailable, ProcessFailed, KubectlFailed, BuildFailed) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 1


def _up(cluster: Detached, arguments: argparse.Namespace) -> int:
    prepare()
    started = cluster.up()
    option = cluster.option()
    cache.say(f"cluster '{cluster.name}' {'is up' if started else 'was up already'}; next:")
    cache.say(f"  {COMMAND} kubectl{option} -- get nodes")
    cache.say(f"  export KUBECONFIG=$({COMMAND} kubeconfig{option} | tail -n 1)")
    cache.say(f"  {COMMAND} down{option}")
    return 0


def _down(cluster: Detached, arguments: argparse.Namespace) -> int:
    cluster.down()
    cache.say(f"cluster '{cluster.name}' is gone")
    return 0


def _kubeconfig(cluster: Detached, arguments: argparse.Namespace) -> int:
    print(cluster.kubeconfig())
    return 0


def _kubectl(cluster: Detached, arguments: argparse.Namespace) -> int:
    kubeconfig = cluster.kubeconfig()
    kubectl = Kubectl(prepare().machinery.kube, kubeconfig)
    command = kubectl.command(*arguments.words)
    # kubectl takes this process's place: its answer, its exit code, and Ctrl-C are its own.
    os.execve(command[0], command, {**os.environ, **kubectl.environment})


def _status(cluster: Detached, arguments: argparse.Namespace) -> int:
    kubeconfig = cluster.kubeconfig()
    print(f"cluster '{cluster.name}', kubeconfig {kubeconfig}")
    print(Kubectl(prepare().machinery.kube, kubeconfig).run("get", "nodes", "--output", "wide"), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (act, help) in COMMANDS.items():
        command = commands.add_parser(name, help=help, description=help)
        command.add_argument("--name", default=DEFAULT, help="which cluster, where there are several")
        command.set_defaults(act=act)
        if act is _kubectl:
            command.add_argument("words", nargs="*", help="after --: what kubectl is to do")
    return parser


COMMANDS: dict[str, tuple[Act, str]] = {
    "up": (_up, "start a cluster with two nodes; it outlives this command"),
    "down": (_down, "stop it and remove everything of it"),
    "kubeconfig": (_kubeconfig, "print the path of a kubeconfig that reaches it from here"),
    "kubectl": (_kubectl, "run kubectl against it"),
    "status": (_status, "print its nodes"),
}


if __name__ == "__main__":
    sys.exit(main())
