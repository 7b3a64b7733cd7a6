package dev.tallygate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tallygate.Emitter.Reason;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class EmitterTest {
  private static final Duration LONG = Duration.ofSeconds(30);

  private static MockProducer<byte[], byte[]> kafka(boolean answers) {
    return new MockProducer<>(answers, null, new ByteArraySerializer(), new ByteArraySerializer()) {
      @Override
      public void close(Duration timeout) { // as Kafka's own ends what it has not sent
        while (errorNext(new KafkaException("the producer is closed forcefully"))) {}
      }
    };
  }

  private static Event event(int n) {
    return Event.of("search.query").uid("u" + n);
  }

  private static void until(BooleanSupplier so) throws InterruptedException {
    for (long end = System.nanoTime() + LONG.toNanos(); !so.getAsBoolean(); Thread.sleep(2)) {
      assertTrue(System.nanoTime() < end, "it does not come to that");
    }
  }

  @Test
  void eventsAreRecordsInTheirOrder() {
    MockProducer<byte[], byte[]> kafka = kafka(true);
    try (Emitter emitter = new Emitter(Emitter.to("b:1").topic("t").client("shop"), () -> kafka)) {
      for (int i = 0; i < 100; i++) {
        assertTrue(emitter.emit(event(i)));
      }
      assertTrue(emitter.flush(LONG));
      assertEquals(100, emitter.stats().sent());
      assertEquals(0, emitter.stats().queued());
      assertEquals(100, kafka.history().size());
      assertEquals("u7", new String(kafka.history().get(7).key()));
      assertEquals("shop", new String(kafka.history().get(7).headers().lastHeader("tg-c").value()));
    }
  }

  @Test
  void aFullQueueDropsAndCounts() {
    MockProducer<byte[], byte[]> kafka = kafka(false);
    Emitter emitter = new Emitter(Emitter.to("b:1").maxEvents(10), () -> kafka);
    int queued = 0;
    for (int i = 0; i < 25; i++) {
      queued += emitter.emit(event(i)) ? 1 : 0;
    }
    assertEquals(10, queued);
    assertEquals(15, emitter.stats().dropped().get(Reason.QUEUE_FULL));
    assertFalse(emitter.flush(Duration.ofMillis(1)));
    emitter.close(Duration.ofMillis(1));
    assertFalse(emitter.emit(event(1)));
    assertEquals(10, emitter.stats().dropped().get(Reason.UNDELIVERED));
    assertEquals(1, emitter.stats().dropped().get(Reason.CLOSED));
    assertEquals("", emitter.stats().lastError()); // that close interrupts is none of Kafka's
    assertEquals(0, emitter.stats().queued());
  }

  @Test
  void bytesAreBoundedToo() {
    Emitter emitter = new Emitter(Emitter.to("b:1").maxBytes(1000), () -> kafka(false));
    while (emitter.emit(event(1))) {
      assertTrue(emitter.stats().queued() < 10);
    }
    assertEquals(1, emitter.stats().dropped().get(Reason.QUEUE_FULL));
    emitter.close(Duration.ZERO);
  }

  @Test
  void whatKafkaRefusesForGoodIsDroppedAndWhatSomebodyCanMendWaits() throws InterruptedException {
    MockProducer<byte[], byte[]> kafka = kafka(false);
    try (Emitter emitter = new Emitter(Emitter.to("b:1"), () -> kafka)) {
      emitter.emit(event(1));
      until(() -> kafka.errorNext(new RecordTooLargeException("too large")));
      assertTrue(emitter.flush(LONG));
      assertEquals(1, emitter.stats().dropped().get(Reason.REFUSED));

      emitter.emit(event(2));
      until(() -> kafka.errorNext(new TopicAuthorizationException("t")));
      until(kafka::completeNext);
      assertTrue(emitter.flush(LONG));
      assertEquals(1, emitter.stats().sent());
      assertEquals("", emitter.stats().lastError());
    }
  }

  @Test
  void aProducerThatIsBeyondRepairIsMadeAnew() {
    MockProducer<byte[], byte[]> broken = kafka(true);
    MockProducer<byte[], byte[]> good = kafka(true);
    broken.sendException = new KafkaException("we are in an error state");
    AtomicInteger made = new AtomicInteger();
    try (Emitter emitter = new Emitter(Emitter.to("b:1"), () -> made.getAndIncrement() == 0 ? broken : good)) {
      emitter.emit(event(1));
      assertTrue(emitter.flush(LONG));
      assertEquals(1, good.history().size());
    }
  }

  @Test
  void namesOfBrokersMayComeLater() {
    AtomicInteger tries = new AtomicInteger();
    MockProducer<byte[], byte[]> good = kafka(true);
    Supplier<Producer<byte[], byte[]>> make = () -> {
      if (tries.getAndIncrement() == 0) {
        throw new KafkaException("Failed to construct kafka producer", new ConfigException("No resolvable bootstrap urls given in bootstrap.servers"));
      }
      return good;
    };
    try (Emitter emitter = new Emitter(Emitter.to("b:1"), make)) {
      emitter.emit(event(1));
      assertTrue(emitter.flush(LONG));
    }
  }

  @Test
  void aMistakeInTheSettingsIsToldAtOnce() {
    assertThrows(IllegalArgumentException.class, () -> Emitter.to(" "));
    assertThrows(IllegalArgumentException.class, () -> Emitter.to("127.0.0.1:1").kafka("security.protocol", "none").start());
    Emitter emitter = new Emitter(Emitter.to("b:1"), () -> kafka(true));
    assertThrows(IllegalArgumentException.class, () -> emitter.emit(event(1).cost(-1)));
    assertEquals(1, emitter.stats().dropped().get(Reason.INVALID));
    emitter.close();
  }

  @Test
  void anOutageIsToldOnceAndSoIsItsEnd() throws InterruptedException {
    List<String> said = new CopyOnWriteArrayList<>();
    Logger log = Logger.getLogger("tallygate");
    Handler handler = new Handler() {
      @Override
      public void publish(LogRecord line) {
        said.add(line.getMessage());
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    };
    log.addHandler(handler);
    MockProducer<byte[], byte[]> kafka = kafka(false);
    try (Emitter emitter = new Emitter(Emitter.to("b:1"), () -> kafka)) {
      emitter.emit(event(1));
      until(() -> !said.isEmpty());
      until(kafka::completeNext);
      until(() -> said.size() > 1);
      assertEquals(List.of("events cannot be sent to Kafka; they wait, and it is tried again: it does not answer",
          "events reach Kafka again"), said);
    } finally {
      log.removeHandler(handler);
    }
  }

  /** Kafka's own producer waits a second and more for brokers that are away; emit does not. */
  @Test
  void nobodyWaitsForKafka() {
    Emitter emitter = Emitter.to("127.0.0.1:1").maxEvents(1000).start();
    emitter.emit(event(0)); // loads classes
    long began = System.nanoTime();
    for (int i = 0; i < 2000; i++) {
      emitter.emit(event(i));
    }
    long took = System.nanoTime() - began;
    assertTrue(took < Duration.ofSeconds(1).toNanos(), "2,000 events took " + took + " ns");
    assertEquals(1001, emitter.stats().dropped().get(Reason.QUEUE_FULL));
    emitter.close(Duration.ofMillis(10));
    assertEquals(1000, emitter.stats().dropped().get(Reason.UNDELIVERED));
  }
}
