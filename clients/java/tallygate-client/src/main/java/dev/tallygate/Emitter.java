package dev.tallygate;

import static java.lang.System.Logger.Level.ERROR;
import static java.lang.System.Logger.Level.INFO;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends events to Kafka. {@link #emit} never waits: Kafka's producer may, so that a thread stands between
 * them. While Kafka is away events wait, and those that are too many are dropped and counted. All
 * threads may share one; make one for the whole program, and close it at the end.
 */
public final class Emitter implements AutoCloseable {
  /** Why an event was not sent. */
  public enum Reason {
    /** It is no event, or is longer than 64 KiB. */
    INVALID,
    /** Too many waited for Kafka. */
    QUEUE_FULL,
    /** The emitter was closed. */
    CLOSED,
    /** Kafka will never take it. */
    REFUSED,
    /** It waited for Kafka when the time of close was over. */
    UNDELIVERED
  }

  /** What happened so far: events that Kafka has, that wait for it, and that were dropped, by reason. */
  public record Stats(long sent, long queued, Map<Reason, Long> dropped, String lastError) {}

  private record Item(ProducerRecord<byte[], byte[]> record, int bytes) {}

  private static final System.Logger LOG = System.getLogger("tallygate");
  private static final int MAX_EVENT = 64 << 10;
  private static final int RECORD = 100; // bytes, around each event
  private static final long OUTAGE = TimeUnit.SECONDS.toNanos(2); // Kafka's leaders change within less

  private final Builder settings;
  private final Supplier<Producer<byte[], byte[]>> make;
  private final Thread thread = new Thread(this::run, "tallygate-emitter");
  private final LinkedBlockingDeque<Item> queue = new LinkedBlockingDeque<>();
  private final AtomicInteger waiting = new AtomicInteger(); // for Kafka's answer
  private final AtomicLong waitingBytes = new AtomicLong();
  private final LongAdder sent = new LongAdder();
  private final Map<Reason, LongAdder> dropped = new EnumMap<>(Reason.class);
  private final Seldom drops = new Seldom();
  private volatile Producer<byte[], byte[]> producer; // null: it is to be made
  private volatile long progress = System.nanoTime(); // when Kafka answered, or something began to wait
  private volatile Exception lastError;
  private volatile boolean pause; // before the next event
  private volatile boolean closed;
  private volatile boolean stopped;
  private boolean outage; // that was told
  private long told; // drops

  Emitter(Builder b, Supplier<Producer<byte[], byte[]>> make) {
    settings = b;
    this.make = make;
    for (Reason r : Reason.values()) {
      dropped.put(r, new LongAdder());
    }
    try {
      producer = make.get();
    } catch (KafkaException e) {
      String why = e.getCause() == null ? e.getMessage() : e.getCause().getMessage();
      if (!why.contains("No resolvable bootstrap urls")) { // names may be there later
        throw new IllegalArgumentException("the settings for Kafka: " + why, e);
      }
      lastError = e;
    }
    thread.setDaemon(true);
    thread.start();
  }

  /** Begins an emitter to these brokers: host:port, with commas between several. */
  public static Builder to(String brokers) {
    return new Builder(brokers);
  }

  /** Settings of an emitter. */
  public static final class Builder {
    private final Map<String, Object> kafka = new HashMap<>();
    private String topic = "tallygate.events";
    private byte[] client;
    private int maxEvents = 100_000;
    private long maxBytes = 64 << 20;

    private Builder(String brokers) {
      if (brokers == null || brokers.isBlank()) {
        throw new IllegalArgumentException("brokers are missing: give host:port, with commas between several");
      }
      kafka.put("client.id", "tallygate-java");
      kafka.put("linger.ms", 5);
      kafka.put("max.block.ms", 1000);
      kafka.put("bootstrap.servers", brokers);
    }

    /** Sets where events go: tallygate.events. */
    public Builder topic(String topic) { this.topic = topic; return this; }

    /** Names this application, where events are told that are in a wrong partition. */
    public Builder client(String name) {
      client = name.getBytes(UTF_8);
      kafka.put("client.id", name);
      return this;
    }

    /** Sets how many events may wait for Kafka: 100,000. */
    public Builder maxEvents(int events) { maxEvents = events; return this; }

    /** Sets how many bytes of events may wait for Kafka: 64 MiB. */
    public Builder maxBytes(long bytes) { maxBytes = bytes; return this; }

    /** Sets an option of Kafka's producer, such as security.protocol. */
    public Builder kafka(String name, Object value) { kafka.put(name, value); return this; }

    /** Starts it. Brokers need not be there. An IllegalArgumentException is about the settings. */
    public Emitter start() {
      kafka.put("acks", "all"); // these four keep a count from being lost or doubled
      kafka.put("enable.idempotence", true);
      kafka.put("delivery.timeout.ms", Integer.MAX_VALUE);
      kafka.remove("partitioner.class"); // the default places by murmur2
      return new Emitter(this, () -> new KafkaProducer<>(kafka, new ByteArraySerializer(), new ByteArraySerializer()));
    }
  }

  /**
   * Queues an event, and returns at once. False: it was dropped, which is counted and logged. An
   * IllegalArgumentException says what no event can have.
   */
  public boolean emit(Event event) {
    byte[] value;
    try {
      value = event.json().getBytes(UTF_8);
    } catch (IllegalArgumentException e) {
      dropped.get(Reason.INVALID).increment();
      throw e;
    }
    if (value.length > MAX_EVENT) {
      return drop(Reason.INVALID);
    }
    Item item = new Item(new ProducerRecord<>(settings.topic, event.key(), value), value.length + RECORD);
    if (settings.client != null) {
      item.record.headers().add("tg-c", settings.client);
    }
    if (waiting.getAndIncrement() == 0) {
      progress = System.nanoTime();
    }
    long bytes = waitingBytes.addAndGet(item.bytes);
    Reason not = closed ? Reason.CLOSED : waiting.get() > settings.maxEvents || bytes > settings.maxBytes ? Reason.QUEUE_FULL : null;
    if (not != null) {
      settle(item);
      return drop(not);
    }
    queue.add(item);
    return true;
  }

  private boolean drop(Reason why) {
    dropped.get(why).increment();
    return false;
  }

  private void settle(Item item) {
    waitingBytes.addAndGet(-item.bytes);
    waiting.decrementAndGet();
  }

  private void run() {
    while (!stopped) {
      Item item = null;
      try {
        report();
        if (pause) {
          pause = false;
          Thread.sleep(1000);
        }
        if (producer == null) {
          producer = make.get();
        }
        item = queue.poll(500, TimeUnit.MILLISECONDS);
        if (item != null) {
          send(item);
        }
      } catch (InterruptedException | InterruptException e) { // stopped
        again(item, lastError);
      } catch (RuntimeException e) { // a producer that is beyond repair, or cannot be made yet
        again(item, e);
        renew();
      }
    }
  }

  private void send(Item item) {
    producer.send(item.record, (where, e) -> answered(item, e));
  }

  private void again(Item item, Exception e) {
    lastError = e;
    pause = true;
    if (item != null) {
      queue.addFirst(item);
    }
  }

  private void renew() {
    Producer<byte[], byte[]> old = producer;
    producer = null;
    if (old != null) {
      old.close(Duration.ZERO);
    }
  }

  /** Is told by Kafka's producer how a record ended. What somebody can mend waits for that. */
  private void answered(Item item, Exception e) {
    if (e == null) {
      sent.increment();
      progress = System.nanoTime();
      lastError = null;
    } else if (stopped) {
      drop(Reason.UNDELIVERED);
    } else if (producer == null || e instanceof RetriableException || e instanceof AuthenticationException || e instanceof AuthorizationException) {
      again(item, e);
      return;
    } else {
      lastError = e;
      drop(Reason.REFUSED);
    }
    settle(item);
  }

  /** Tells the log of an outage and of its end, and of drops. */
  private void report() {
    boolean fails = waiting.get() > 0 && System.nanoTime() - progress > OUTAGE;
    if (fails && !outage) {
      outage = true;
      LOG.log(ERROR, "events cannot be sent to Kafka; they wait, and it is tried again: "
          + (lastError == null ? "it does not answer" : lastError.getMessage()));
    } else if (outage && !fails) {
      outage = false;
      LOG.log(INFO, "events reach Kafka again");
    }
    long all = dropped.values().stream().mapToLong(LongAdder::sum).sum();
    if (all > told) {
      told = all;
      drops.say(ERROR, "events are dropped, and will not be counted: so far " + stats().dropped());
    }
  }

  /** Returns the numbers for your metrics. */
  public Stats stats() {
    Map<Reason, Long> sums = new EnumMap<>(Reason.class);
    dropped.forEach((reason, n) -> sums.put(reason, n.sum()));
    Exception e = lastError;
    return new Stats(sent.sum(), waiting.get(), sums, e == null ? "" : e.getMessage());
  }

  /** Waits until Kafka has all that was emitted; false: the time was over first. */
  public boolean flush(Duration timeout) {
    for (long end = System.nanoTime() + timeout.toNanos(); waiting.get() > 0; LockSupport.parkNanos(1_000_000)) {
      if (System.nanoTime() - end >= 0 || Thread.currentThread().isInterrupted()) {
        return false;
      }
    }
    return true;
  }

  /** Sends what waits, for up to five seconds. */
  @Override
  public void close() {
    close(Duration.ofSeconds(5));
  }

  /** Sends what waits. What Kafka does not have after the timeout is dropped, and counted as that. */
  public synchronized void close(Duration timeout) {
    if (closed) {
      return;
    }
    closed = true;
    flush(timeout);
    stopped = true;
    thread.interrupt();
    try {
      thread.join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    renew(); // what is on its way is answered now
    for (Item item; (item = queue.poll()) != null; settle(item)) {
      drop(Reason.UNDELIVERED);
    }
    report();
  }
}
