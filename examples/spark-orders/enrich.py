"""The pipeline of `rota_spark`, as the file that spark-submit takes."""

from rota_spark.pipelines.orders_enrichment import main

if __name__ == "__main__":
    main()
