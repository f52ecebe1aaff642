"""
Entry point of an image with Spark: runs a driver or an executor as Spark's scheduler for Kubernetes asks for.

    entrypoint.py driver ARGUMENT...     spark-submit in client mode, with these arguments
    entrypoint.py executor               an executor, which its environment describes
    entrypoint.py PROGRAM ARGUMENT...    any other program

Spark's package on PyPI has none. It needs no module but Python's own, so that nothing is imported twice at each start.
"""

import os
import sys
from collections.abc import Mapping, Sequence

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Java options of an executor: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, in the order of their numbers.
JAVA_OPTION = "SPARK_JAVA_OPT_"
# Flags of an executor, by the variables that Spark sets for it.
FLAGS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the program to become, with its arguments. Raises KeyError with a variable that Spark has not set."""
    match arguments:
        case ["driver", *rest]:
            return [
                "spark-submit",
                *("--conf", f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"),
                *("--deploy-mode", "client"),
                *rest,
            ]
        case ["executor", *_]:
            memory, home = environment["SPARK_EXECUTOR_MEMORY"], environment["SPARK_HOME"]
            # Where Spark mounts the settings of the driver, then its own classes, then those that the driver names.
            classpath = [f"{home}/conf", f"{home}/jars/*", environment.get("SPARK_CLASSPATH", "")]
            return [
                *("java", *java_options(environment), f"-Xms{memory}", f"-Xmx{memory}"),
                *("-cp", ":".join(filter(None, classpath)), EXECUTOR),
                *(text for flag, name in FLAGS.items() for text in (flag, environment[name])),
            ]
        case _:
            return list(arguments) or ["python"]


def java_options(environment: Mapping[str, str]) -> list[str]:
    """Return the Java options of an executor."""
    numbers = sorted(
        int(name.removeprefix(JAVA_OPTION)) for name in environment if name.startswith(JAVA_OPTION)
    )
    return [environment[f"{JAVA_OPTION}{number}"] for number in numbers]


def main() -> None:
    """Become the program, which then gets the signals."""
    program = command(sys.argv[1:], os.environ)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
