package dev.tallygate;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.text.Normalizer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The names of requests and the outcomes of answers: those of Go's middleware and of access logs. */
public final class Names {
  /** The API of requests that no route takes. */
  public static final String UNROUTED = "unrouted";

  /** The outcome of what a limit denied. */
  public static final String LIMITED = "limited";

  private static final int MAX = 128; // bytes of a name
  private static final Pattern URL = Pattern.compile("[^/%:]*:(?://[^/]*(.*)|(/.*)?)", Pattern.DOTALL);
  private static final Pattern ENCODED = Pattern.compile("%([0-9a-fA-F]{2})");

  /** Of bytes as ISO 8859-1: a character in UTF-8, or a byte that is in none, unless a name may have it. */
  private static final Pattern OTHER = Pattern.compile(("[\u00c2-\u00df]#|\u00e0[\u00a0-\u00bf]#|\u00ed[\u0080-\u009f]#"
      + "|[\u00e1-\u00ec\u00ee\u00ef]##|\u00f0[\u0090-\u00bf]##|[\u00f1-\u00f3]###|\u00f4[\u0080-\u008f]##|[^a-zA-Z0-9]")
      .replace("#", "[\u0080-\u00bf]"));

  private static final String SPACE = "[\\t-\\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]";
  private static final Pattern AROUND = Pattern.compile("^" + SPACE + "+|(?<!" + SPACE + ")" + SPACE + "+\\z");

  private Names() {}

  /** The outcome of a response's status. */
  public static String outcome(int status) {
    return switch (status) {
      case 401, 403 -> "denied";
      case 429 -> LIMITED;
      default -> status < 400 ? "success" : "failure";
    };
  }

  /**
   * The name of a method and a request's target as the client wrote it: the method and the first two
   * segments of the path. All spellings of a path have one name: see "Names of requests" of the reference.
   */
  public static String pathApi(String method, String target) {
    String path = target.split("[?#]", 2)[0];
    Matcher url = URL.matcher(path);
    if (!path.startsWith("/") && url.matches()) {
      path = url.group(1) != null ? url.group(1) : url.group(2) != null ? url.group(2) : "";
    }
    if (method.equalsIgnoreCase("CONNECT") && !path.startsWith("/")) {
      path = "";
    }
    String bytes = ENCODED.matcher(new String(path.getBytes(UTF_8), ISO_8859_1))
        .replaceAll(m -> Matcher.quoteReplacement("" + (char) Integer.parseInt(m.group(1), 16)));
    Deque<String> segments = new ArrayDeque<>();
    for (String segment : bytes.split("/")) {
      segment = segment.split(";", 2)[0];
      if (segment.equals("..")) {
        segments.pollLast();
      } else if (!segment.isEmpty() && !segment.equals(".")) {
        segments.add(segment);
      }
    }
    return name(method, segments.stream().limit(2));
  }

  /** The name of a route: of GET and /orders/{id}/items it is get.orders.id.items. */
  public static String templateApi(String method, String template) {
    return name(method, Stream.of(new String(template.getBytes(UTF_8), ISO_8859_1).split("/"))
        .map(s -> s.replaceAll("^[{:*]+|[}?]+$", "").replaceAll("\\.\\.\\.$", "").split(":", 2)[0])
        .filter(s -> !s.isEmpty() && !s.equals("$")));
  }

  /**
   * The one form of a key that people type, such as a coupon code: without white space around it, in lower case, in
   * NFC. Give it where the key is emitted and where it is checked. Each character is lowered by itself, in no language's
   * way.
   */
  public static String normalizeKey(String text) {
    String lowered = Normalizer.normalize(text, Normalizer.Form.NFC).codePoints().map(Character::toLowerCase)
        .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append).toString();
    return AROUND.matcher(Normalizer.normalize(lowered, Normalizer.Form.NFC)).replaceAll("");
  }

  private static String name(String method, Stream<String> segments) {
    boolean get = method.isEmpty() || method.equalsIgnoreCase("HEAD");
    String name = Stream.concat(Stream.of(get ? "get" : method), segments)
        .map(s -> OTHER.matcher(s).replaceAll("-")).collect(Collectors.joining("."));
    return name.substring(0, Math.min(name.length(), MAX)).toLowerCase(Locale.ROOT);
  }
}
