"""Access to clusters: the port that commands use, and one backend each for Kafka and Rota."""
