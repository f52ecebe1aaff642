"""
The producer: `api` and `async_api` are public, `rota_engine` and `kafka_engine` send.

    Producer, AsyncProducer       what the application calls
      pipeline                    interceptors, serializers, the application's own partitioner
      rota_blocking, rota_engine  one producer on Rota's log
        accumulator, batches      records that wait
        sender                    sends them, until each is decided
        sequences, transaction_state    what to send, and what may be done next; pure
      kafka_engine                one on Kafka
    futures                       what `send` gives back
"""
