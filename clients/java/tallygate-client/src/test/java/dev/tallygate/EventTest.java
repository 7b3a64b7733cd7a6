package dev.tallygate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class EventTest {
  private static Map<?, ?> read(Event event) {
    return (Map<?, ?>) Json.read(event.json());
  }

  @Test
  void idsAndTimesAreMade() {
    Map<?, ?> one = read(Event.of("a").uid("1"));
    Map<?, ?> two = read(Event.of("a").uid("1"));
    assertNotEquals(one.get("id"), two.get("id"));
    assertTrue(Instant.parse((String) one.get("time")).isAfter(Instant.now().minusSeconds(60)));
  }

  @Test
  void whatNoEventCanHaveIsRefused() {
    Event event = Event.of("a").uid("1");
    List<Executable> mistakes = List.of(() -> Event.of(""), () -> Event.of(null), () -> Event.of("a\nb"), () -> Event.of("a".repeat(129)),
        () -> event.cost(Double.NaN), () -> event.cost(0.12345678), () -> event.cost(1e13), () -> event.attr("", 1),
        () -> event.attr("a", List.of()), () -> event.attr("a", Double.POSITIVE_INFINITY),
        () -> event.time(Instant.parse("9999-12-31T23:59:59Z").plusSeconds(1)),
        () -> Event.of("a").cost(-1).json());
    for (Executable mistake : mistakes) {
      assertThrows(IllegalArgumentException.class, mistake);
    }
    for (int i = 0; i < 32; i++) {
      event.attr("a" + i, i);
    }
    assertThrows(IllegalArgumentException.class, () -> event.attr("one more", 1));
    event.attr("a0", "again").attr("a1", null).attr("another", true);
    assertEquals(32, ((Map<?, ?>) read(event).get("attrs")).size());
  }

  @Test
  void whatBinaryNumbersAddIsRoundedAway() {
    assertEquals("0.3", read(Event.of("a").cost(0.1 + 0.2)).get("cost").toString());
  }

  @Test
  void whatIsNoAddressIsAbsent() {
    assertTrue(!read(Event.of("a").ip("example.com")).containsKey("ip"));
    for (String[] row : new String[][] {{"1:0:0:2:0:0:0:3", "1:0:0:2::3"}, {"0:0:1::", "0:0:1::"}, {"::1:0:0:0", "::1:0:0:0"}, {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
      {"2001:DB8::00001", ""}, {"1.2.3.4.", ""}, {"256.1.1.1", ""}, {":::", ""}, {"1::2::3", ""}, {"1:0:0:2:0:0:3:4", "1::2:0:0:3:4"}, {"1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"}}) {
      assertEquals(row[1], Canonical.ip(row[0]), row[0]);
    }
  }
}
