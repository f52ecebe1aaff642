# One part of Rota as an image: docker build --build-arg PART=sidecar -t rota-sidecar .
# PART is the part's folder: cli, coordinator, operator or sidecar. BASE is any image with Python 3.11 or newer, pip and venv.
ARG BASE=python:3.11-slim

# A stage of its own: sources, build back-end and pip's settings stay out of the image.
FROM ${BASE} AS build
ARG PART
COPY constraints.txt /src/
# The versions that were tested, for what is installed and, in pip of either generation, for what builds it.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt
COPY proto /src/proto
COPY ${PART} /src/${PART}
RUN : "${PART:?say which part: docker build --build-arg PART=sidecar .}" \
    && python3 -m venv /opt/rota \
    && /opt/rota/bin/pip install --no-cache-dir /src/proto "/src/${PART}"

FROM ${BASE}
ARG PART
COPY --from=build /opt/rota /opt/rota
ENV ROTA_PART=${PART} PATH=/opt/rota/bin:${PATH} PYTHONUNBUFFERED=1
# Nobody in particular. By number, so that Kubernetes can check runAsNonRoot.
USER 65532:65532
# A shell, because an entry point cannot read ARG; exec, so that the part is process 1 and gets the signals.
ENTRYPOINT ["/bin/sh", "-c", "exec python -m rota_$ROTA_PART \"$@\"", "rota"]
