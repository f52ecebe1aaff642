# Process 1 of every pod: it holds the pod's namespaces while the containers come and go.
FROM scratch
COPY reaper /pause
USER 65535:65535
ENTRYPOINT ["/pause"]
