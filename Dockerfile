# One part of Rota as an image: docker build --build-arg PART=sidecar -t rota-sidecar .
# PART is the part's folder: cli, coordinator, operator or sidecar. BASE is any image with Python 3.11 or newer, pip and venv.
# An application with the SDK, here an example: docker build --target example --build-arg PART=sdk --build-arg EXAMPLE=orders -t orders .
# A Spark application, from a BASE that has Java 17 too:
# docker build --target spark --build-arg PART=spark_apps --build-arg EXAMPLE=spark-orders --build-arg BASE=... -t spark-orders .
ARG BASE=python:3.11-slim

# A stage of its own: sources, build back-end and pip's settings stay out of the image.
FROM ${BASE} AS build
ARG PART
COPY constraints.txt scripts/pins.py /src/
COPY proto /src/proto
COPY service /src/service
COPY sdk /src/sdk
COPY ${PART} /src/${PART}
WORKDIR /src
# Dependencies by hash, for what is installed and for what builds it; Rota's own parts from here, and from no index. The
# command line and Spark applications have the SDK; the other parts share proto and service alone. What comes as source, as Spark
# does, is built by the back-end that is installed first.
RUN : "${PART:?say which part: docker build --build-arg PART=sidecar .}" \
    && own="proto service" && case "$PART" in cli | spark_apps) own="$own sdk" ;; esac \
    && python3 -m venv /opt/build && python3 -m venv /opt/rota \
    && python3 pins.py select build > build.txt && python3 pins.py select "$PART" > part.txt \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --no-deps -r build.txt \
    && /opt/build/bin/pip wheel --no-cache-dir --require-hashes --no-deps --no-build-isolation --wheel-dir wheels -r part.txt \
    && for part in $own "$PART"; do \
        /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir wheels "./$part" || exit 1; \
    done \
    && /opt/rota/bin/pip install --no-cache-dir --no-compile --no-index --no-deps wheels/*.whl
# Compiled for any time of the sources: a layer rounds it, and each start would compile half of the modules anew. Spark has its Python
# modules a second time, in archives of sources that it prefers, and compiles them at each start of a Python process: for a second.
RUN /opt/rota/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/rota/lib \
    && rm -rf /opt/rota/lib/python3*/site-packages/pyspark/python/lib

# Python files of an example beside the SDK; the example's manifest says what is run.
FROM ${BASE} AS example
ARG EXAMPLE
COPY --from=build /opt/rota /opt/rota
COPY examples/${EXAMPLE}/*.py /app/
WORKDIR /app
ENV PATH=/opt/rota/bin:${PATH} PYTHONUNBUFFERED=1 HOME=/
USER 65532:65532
ENTRYPOINT ["python"]

# The same for Spark: a driver's or an executor's image, with the entry point that Spark's scheduler for Kubernetes calls.
FROM ${BASE} AS spark
ARG EXAMPLE
COPY --from=build /opt/rota /opt/rota
COPY spark_apps/packaging/entrypoint.py /opt/entrypoint.py
COPY examples/${EXAMPLE}/*.py /app/
# Spark looks up the name of its user. Its settings are mounted below /opt/spark, and its packages come in a folder of Python's version.
RUN echo "spark:x:65532:65532::/tmp:/bin/false" >> /etc/passwd \
    && ln -s "$(/opt/rota/bin/python -c 'import importlib.util; print(*importlib.util.find_spec("pyspark").submodule_search_locations)')" /opt/spark
WORKDIR /app
ENV SPARK_HOME=/opt/spark PATH=/opt/rota/bin:${PATH} PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["python", "/opt/entrypoint.py"]

FROM ${BASE}
ARG PART
COPY --from=build /opt/rota /opt/rota
# A home, because its user has none, not every container runtime gives one, and libraries look for their settings there.
# glibc gives threads heaps of their own, up to 8 for each core of the node: gRPC and librdkafka have a dozen threads, which share two.
ENV ROTA_PART=${PART} PATH=/opt/rota/bin:${PATH} PYTHONUNBUFFERED=1 HOME=/ MALLOC_ARENA_MAX=2
# Nobody in particular. By number, so that Kubernetes can check runAsNonRoot.
USER 65532:65532
# A shell, because an entry point cannot read ARG; exec, so that the part is process 1 and gets the signals.
ENTRYPOINT ["/bin/sh", "-c", "exec python -m rota_$ROTA_PART \"$@\"", "rota"]
