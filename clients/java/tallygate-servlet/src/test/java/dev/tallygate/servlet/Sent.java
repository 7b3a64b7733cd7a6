package dev.tallygate.servlet;

import dev.tallygate.Emitter;
import dev.tallygate.TestEmitters;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Assertions;

/** What emitters have sent. */
final class Sent {
  private final MockProducer<byte[], byte[]> kafka =
      new MockProducer<>(true, null, new ByteArraySerializer(), new ByteArraySerializer()) {
        @Override
        public void close(java.time.Duration timeout) {} // the next one goes on with it
      };

  Emitter emitter() {
    return TestEmitters.to(kafka);
  }

  List<String> values() {
    return kafka.history().stream().map(r -> new String(r.value(), StandardCharsets.UTF_8)).toList();
  }

  /** The only event there ever was. */
  String only() {
    Assertions.assertEquals(1, values().size());
    return values().get(0);
  }
}
