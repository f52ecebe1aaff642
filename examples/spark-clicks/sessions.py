"""The pipeline of `rota_spark`, as the file that spark-submit takes."""

from rota_spark.pipelines.clickstream_sessions import main

if __name__ == "__main__":
    main()
