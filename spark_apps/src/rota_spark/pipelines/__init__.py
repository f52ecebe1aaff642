"""Pipelines: Spark applications that are ready to run, as `python -m rota_spark.pipelines.orders_enrichment`."""
