package dev.tallygate;

import org.apache.kafka.clients.producer.Producer;

/** Emitters without a Kafka. */
public final class TestEmitters {
  private TestEmitters() {}

  public static Emitter to(Producer<byte[], byte[]> kafka) {
    return new Emitter(Emitter.to("b:1"), () -> kafka);
  }
}
