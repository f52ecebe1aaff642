"""
The producer: `api` and `async_api` are public, `rota_engine` and `kafka_engine` send.

    Producer, AsyncProducer       public classes
      pipeline                    interceptors, serializers, the application's own partitioner
      rota_blocking, rota_engine  engine of one producer on Rota's log
        slab_writer, slabs        records that threads append without a lock
        accumulator, batches      records that wait to be sent
        sender                    sends batches and retries them until each has an outcome
        compressor                compresses batches, in threads
        sequences, transaction_state    sequence numbers and transaction states; pure
      kafka_engine                engine of one producer on Kafka
    futures                       outcomes that `send` returns
"""
