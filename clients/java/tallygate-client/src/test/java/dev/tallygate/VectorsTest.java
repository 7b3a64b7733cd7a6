package dev.tallygate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.junit.jupiter.api.Test;

/** The tables that all clients share: testdata/vectors, and testdata/outcomes.json. */
class VectorsTest {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private static JsonNode table(String name) throws IOException {
    JsonNode table = MAPPER.readTree(new File(System.getProperty("tallygate.testdata", "../../../testdata"), name));
    assertTrue(table.size() >= 2, name);
    return table;
  }

  @Test
  void names() throws IOException {
    for (JsonNode row : table("vectors/names.json")) {
      assertEquals(row.get("name").asText(), Names.pathApi(row.get("method").asText(), row.get("target").asText()), row.toString());
    }
  }

  @Test
  void templates() throws IOException {
    for (JsonNode row : table("vectors/templates.json")) {
      assertEquals(row.get("name").asText(), Names.templateApi(row.get("method").asText(), row.get("template").asText()), row.toString());
    }
    assertEquals("get.files.path", Names.templateApi("GET", "/files/{*path}")); // Spring's
  }

  @Test
  void outcomes() throws IOException {
    JsonNode http = table("outcomes.json").get("http");
    assertTrue(http.size() >= 40);
    http.properties().forEach(e -> assertEquals(e.getValue().asText(), Names.outcome(Integer.parseInt(e.getKey())), e.getKey()));
  }

  @Test
  void canonicalValues() throws IOException {
    for (JsonNode row : table("vectors/canonical.json")) {
      String in = row.has("in_hex") ? decoded(HexFormat.of().parseHex(row.get("in_hex").asText())) : row.path("in").asText();
      String out = switch (row.get("kind").asText()) {
        case "uid" -> Canonical.uid(in);
        case "text" -> Canonical.text(in, Canonical.MAX_TEXT);
        case "ip" -> Canonical.ip(in);
        default -> throw new AssertionError("a kind that is not known here: " + row);
      };
      assertEquals(row.get("out").asText(), out, row.toString());
    }
  }

  @Test
  void keysThatPeopleType() throws IOException {
    for (JsonNode row : table("vectors/keys.json")) {
      assertEquals(row.get("out").asText(), Names.normalizeKey(row.get("in").asText()), row.toString());
    }
  }

  /** A text in Java has no bytes: whoever makes one of bytes replaces each that is no UTF-8. */
  private static String decoded(byte[] bytes) {
    StringBuilder out = new StringBuilder();
    for (int i = 0, n; i < bytes.length; i += n) {
      String one = "\ufffd";
      for (n = Math.min(4, bytes.length - i); n > 0; n--) {
        one = new String(bytes, i, n, UTF_8);
        if (one.codePointCount(0, one.length()) == 1 && !one.equals("\ufffd")) {
          break;
        }
      }
      out.append(n == 0 ? "\ufffd" : one);
      n = Math.max(n, 1);
    }
    return out.toString();
  }

  @Test
  void partitions() throws IOException {
    for (JsonNode row : table("vectors/partitions.json")) {
      Event event = Event.of("a").uid(row.get("key").asText());
      assertEquals(row.get("partition").asInt(), BuiltInPartitioner.partitionForKey(event.key(), row.get("partitions").asInt()), row.toString());
    }
  }

  @Test
  void events() throws IOException {
    for (JsonNode row : table("vectors/events.json")) {
      JsonNode given = row.get("event");
      Event event = Event.of(given.get("api").asText()).id(given.get("id").asText()).time(Instant.parse(given.get("time").asText()))
          .uid(given.path("uid").asText()).ip(given.path("ip").asText()).outcome(given.path("outcome").asText());
      if (given.has("cost")) {
        event.cost(given.get("cost").decimalValue());
      }
      if (given.has("refunds")) {
        event.refunds(given.get("refunds").asText());
      }
      if (given.has("permit")) {
        event.permit(given.get("permit").asText(), null);
      }
      given.path("attrs").properties().forEach(e -> {
        JsonNode v = e.getValue();
        event.attr(e.getKey(), v.isBoolean() ? (Object) v.asBoolean() : v.isNumber() ? v.decimalValue() : v.asText());
      });
      String key = row.get("key").asText();
      if (key.isEmpty()) {
        assertNull(event.key());
      } else {
        assertEquals(key, new String(event.key(), UTF_8));
      }
      assertEquals(row.get("value"), MAPPER.readTree(event.json()), row.toString());
    }
  }

  @Test
  void numbers() {
    String[][] rows = {{"42.0", "42"}, {"1e3", "1000"}, {"0.50", "0.5"}, {"-0.0", "0"}, {"1.5e60", "1.5e60"}, {"1e-50", "1e-50"},
      {"1e39", "1" + "0".repeat(39)}, {"1e40", "1e40"}, {"-12.5", "-12.5"}, {"100", "100"}};
    for (String[] row : rows) {
      assertEquals(row[1], Canonical.number(new BigDecimal(row[0])));
    }
  }
}
