package dev.tallygate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class DenialsTest {
  private static final long SECOND = 1_000_000_000L;

  @Test
  void whatIsNewIsEmittedAtOnceAndTheRestNowAndThen() {
    AtomicLong now = new AtomicLong();
    Denials denials = new Denials(now::get);
    int emitted = 0;
    for (int second = 0; second < 20; second++) {
      now.set(second * SECOND);
      for (int i = 0; i < 1000; i++) {
        emitted += denials.emits(List.of("x", "42", "null", Map.of("plan", "free"))) ? 1 : 0;
      }
    }
    assertEquals(4, emitted);
    now.addAndGet(SECOND);
    assertTrue(denials.emits(List.of("x", "42", "null", Map.of("plan", "pro"))));
  }

  @Test
  void aFloodIsBounded() {
    Denials denials = new Denials(() -> 0);
    long emitted = IntStream.range(0, 10_000).filter(i -> denials.emits(List.of("x", "u" + i, "null", Map.of()))).count();
    assertTrue(emitted <= 256 && emitted > 128, () -> emitted + " of 10,000");
  }
}
