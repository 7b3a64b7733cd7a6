package dev.tallygate;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** JSON, as far as events, questions and answers need it: so applications get no other library. */
final class Json {
  private static final Pattern TOKEN = Pattern.compile(
      "\\s*+([{}\\[\\]:,]|\"[^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+\"|true|false|null|-?\\d[\\d.eE+-]*+)\\s*+");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");
  private static final Pattern SPECIAL = Pattern.compile("[\"\\\\\\x00-\\x1f]");
  private static final int DEPTH = 64; // of what is read

  private final Matcher rest;
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
    rest = TOKEN.matcher(text);
  }

  static String write(Object value) {
    if (value instanceof Map<?, ?> map) {
      return map.entrySet().stream().map(e -> write(e.getKey()) + ":" + write(e.getValue()))
          .collect(Collectors.joining(",", "{", "}"));
    }
    if (value instanceof List<?> list) {
      return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
    }
    if (value instanceof BigDecimal number) {
      return Canonical.number(number);
    }
    if (!(value instanceof String s)) {
      return String.valueOf(value); // a boolean, a whole number, null
    }
    return "\"" + SPECIAL.matcher(Canonical.valid(s)).replaceAll(m -> {
      char c = m.group().charAt(0);
      return Matcher.quoteReplacement(c < ' ' ? String.format("\\u%04x", (int) c) : "\\" + c);
    }) + "\"";
  }

  /** The beginning of a text that somebody else wrote, in one line. */
  static String cut(String text) {
    return text.substring(0, Math.min(text.length(), 200)).replaceAll("\\s+", " ").strip();
  }

  /** Returns maps, lists, texts, BigDecimals, booleans and null. */
  static Object read(String text) {
    Json in = new Json(text);
    Object value = in.value(in.token(), DEPTH);
    if (in.at < text.length()) {
      throw in.wrong();
    }
    return value;
  }

  private String token() {
    if (!rest.region(at, text.length()).lookingAt()) {
      throw wrong();
    }
    at = rest.end();
    return rest.group(1);
  }

  private Object value(String token, int depth) {
    char c = depth == 0 ? 0 : token.charAt(0);
    return switch (c) {
      case '{' -> {
        Map<String, Object> map = new LinkedHashMap<>();
        for (String name = token(); !name.equals("}"); name = more("}")) {
          want(name.startsWith("\""));
          want(token().equals(":"));
          map.put(string(name), value(token(), depth - 1));
        }
        yield map;
      }
      case '[' -> {
        List<Object> list = new ArrayList<>();
        for (String element = token(); !element.equals("]"); element = more("]")) {
          list.add(value(element, depth - 1));
        }
        yield list;
      }
      case '"' -> string(token);
      case 't', 'f' -> c == 't';
      case 'n' -> null;
      case 0, '}', ']', ':', ',' -> throw wrong();
      default -> new BigDecimal(token);
    };
  }

  /** The token behind a comma; or the end. */
  private String more(String end) {
    String token = token();
    if (token.equals(end)) {
      return end;
    }
    want(token.equals(","));
    token = token();
    want(!token.equals(end));
    return token;
  }

  private static String string(String token) {
    return ESCAPE.matcher(token.substring(1, token.length() - 1)).replaceAll(m -> {
      String c = m.group(2);
      int known = c == null ? -1 : "bfnrt".indexOf(c);
      return Matcher.quoteReplacement(c == null ? "" + (char) Integer.parseInt(m.group(1), 16)
          : known < 0 ? c : "" + "\b\f\n\r\t".charAt(known));
    });
  }

  private void want(boolean so) {
    if (!so) {
      throw wrong();
    }
  }

  private IllegalArgumentException wrong() {
    return new IllegalArgumentException("no JSON at character " + at);
  }
}
