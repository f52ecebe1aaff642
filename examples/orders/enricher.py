"""Works out what each order costs, those of a customer one after the other."""

import json
import os
import sys

import rota

# For Kafka: librdkafka's properties, such as those for TLS and SASL.
KAFKA_CONFIG = json.loads(os.environ.get("KAFKA_CONFIG", "{}"))
PRICES = {"apple": 40, "bread": 350, "cheese": 520, "date": 90, "egg": 35}


def main() -> None:
    """Enrich until it is asked to end; what is begun is finished."""
    with rota.Producer(sys.argv[1], kafka_config=KAFKA_CONFIG) as producer:

        @rota.handler("orders", ordering="key", concurrency=16)
        def enrich(record: rota.Record) -> None:
            order = json.loads(record.value or b"{}")
            if order.get("good") not in PRICES:
                raise rota.Skip(f"nobody knows what this costs: {order}")
            order["cents"] = PRICES[order["good"]] * order["count"]
            # The order is done when its price is there.
            producer.send("priced-orders", json.dumps(order).encode(), key=record.key).result()

        rota.run(enrich)


if __name__ == "__main__":
    main()
