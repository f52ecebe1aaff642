# The same with a Java, for a base of Spark applications. Drivers of tests are short and many: they compile quickly instead of well.
FROM scratch
ADD base.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV JDK_JAVA_OPTIONS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CMD ["python3"]
