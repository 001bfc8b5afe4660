"""QuantuMQTT: MQTT broker, durable sessions, client, work queues and a Spark pipeline."""
