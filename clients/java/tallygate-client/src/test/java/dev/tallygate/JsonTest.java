package dev.tallygate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** What we write and read is what everybody's library reads and writes. */
class JsonTest {
  private static final ObjectMapper MAPPER =
      JsonMapper.builder().enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS).build();

  @Test
  void whatIsWrittenIsRead() throws Exception {
    long seed = Long.getLong("tallygate.seed", System.nanoTime());
    Random random = new Random(seed);
    for (int i = 0; i < 2000; i++) {
      Object value = value(random, 4);
      String text = Json.write(value);
      assertEquals(value, Json.read(text), "seed " + seed);
      assertEquals(MAPPER.readTree(MAPPER.writeValueAsString(value)), MAPPER.readTree(text), "seed " + seed);
      assertEquals(value, Json.read(MAPPER.writerWithDefaultPrettyPrinter().writeValueAsString(value)), "seed " + seed);
    }
  }

  private static Object value(Random random, int depth) {
    switch (random.nextInt(depth == 0 ? 4 : 6)) {
      case 0:
        return random.nextBoolean();
      case 1:
        return null;
      case 2:
        return BigDecimal.valueOf(1 + random.nextInt(1000));
      case 3:
        return text(random);
      case 4:
        List<Object> list = new ArrayList<>();
        for (int n = random.nextInt(4); n > 0; n--) {
          list.add(value(random, depth - 1));
        }
        return list;
      default:
        Map<String, Object> map = new LinkedHashMap<>();
        for (int n = random.nextInt(4); n > 0; n--) {
          map.put(text(random), value(random, depth - 1));
        }
        return map;
    }
  }

  private static String text(Random random) {
    StringBuilder text = new StringBuilder();
    for (int n = random.nextInt(8); n > 0; n--) {
      text.append(new String[] {"a", "\"", "\\", "\n", "\0", "漢", "😀", "/", "\u007f", "\u2028"}[random.nextInt(10)]);
    }
    return text.toString();
  }

  @Test
  void whatIsNoJsonIsRefused() {
    for (String text : List.of("", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "[1,]", "[1 2]", "{a:1}", "nul", "1 2", "\"a",
        "\"\\", "{\"a\":1}}", "[}", ",", "[".repeat(100_000), "1.e", "-", "[[[[" + "[".repeat(100) + "]".repeat(104))) {
      assertThrows(IllegalArgumentException.class, () -> Json.read(text), text.substring(0, Math.min(20, text.length())));
    }
  }

  @Test
  void halvesOfPairsAreReplaced() {
    assertEquals("\"a\ufffdb\ufffd\"", Json.write("a\ud800b\udc00"));
    assertEquals("😀", Json.read("\"\\ud83d\\ude00\""));
    assertEquals("a/\b\f\n\r\t\"\\", Json.read("\"a\\/\\b\\f\\n\\r\\t\\\"\\\\\""));
  }
}
