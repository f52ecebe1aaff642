# Stands in for python:3.11-slim where no registry can be reached; base.tar is a minimal Debian with Python.
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
