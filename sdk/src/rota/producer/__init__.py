"""
The producer: `api` and `async_api` are its faces, `rota_engine` and `kafka_engine` what they run on.

    Producer, AsyncProducer       what the application calls
      preparing                   interceptors, serializers, the application's own partitioner
      rota_blocking, rota_engine  one producer on Rota's log
        accumulator, batches      records that wait
        sender                    sends them, until each is decided
        sequences, transaction_state    what to send, and what may be done next; pure
      kafka_engine                one on Kafka
    futures                       what `send` gives back
"""
