package dev.tallygate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.math.BigDecimal;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The one form that a value has in events, keys and checks: "Canonical values" of the reference. */
final class Canonical {
  static final int MAX_TEXT = 1024;
  static final int MAX_NAME = 256; // of an attribute
  private static final int MAX_UID = 256;
  private static final int MAX_ID = 128;
  private static final int PLAIN_DIGITS = 40; // up to which a number is written without exponent

  private static final String FOUR = "(?:(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(?:\\.(?!$)|$)){4}";
  private static final Pattern ADDRESS =
      Pattern.compile(FOUR + "|(?:[0-9a-fA-F]{0,4}:){2,8}(?:[0-9a-fA-F]{0,4}|" + FOUR + ")");

  private static final Pattern WITH_PORT =
      Pattern.compile("\\[([^\\]]*)](?::([0-9]{1,5}))?|([^:]*):([0-9]{1,5})", Pattern.DOTALL);

  private static final Pattern ZEROS = Pattern.compile("(?:^|:)(0(?::0)+)(?::|$)");

  private Canonical() {}

  /** Each half of a surrogate pair becomes U+FFFD. */
  static String valid(String s) {
    if (s.codePoints().noneMatch(Canonical::isHalf)) {
      return s;
    }
    StringBuilder out = new StringBuilder();
    s.codePoints().forEach(c -> out.appendCodePoint(isHalf(c) ? 0xfffd : c));
    return out.toString();
  }

  private static boolean isHalf(int c) {
    return c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE;
  }

  static String uid(String uid) {
    uid = valid(uid);
    return uid.getBytes(UTF_8).length <= MAX_UID ? uid : "sha256-" + hash(uid);
  }

  static String id(String id) {
    id = valid(id);
    return id.getBytes(UTF_8).length <= MAX_ID ? id : hash(id).substring(0, 32);
  }

  /** An attribute's value, or an outcome; with MAX_NAME an attribute's name. */
  static String text(String s, int limit) {
    s = valid(s);
    if (s.length() * 6 <= limit || s.codePoints().map(Canonical::jsonBytes).sum() <= limit) {
      return s;
    }
    String hash = "~sha256-" + hash(s);
    int end = 0;
    for (int left = limit - hash.length(); ; end = s.offsetByCodePoints(end, 1)) {
      left -= jsonBytes(s.codePointAt(end));
      if (left < 0) {
        return s.substring(0, end) + hash;
      }
    }
  }

  private static int jsonBytes(int c) {
    if (c < 0x80) {
      return c < ' ' ? 6 : c == '"' || c == '\\' ? 2 : 1;
    }
    return c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  }

  /** An address as in RFC 5952; "" for what is none. It asks no name server. */
  static String ip(String text) {
    text = text == null ? "" : bare(text);
    if (!ADDRESS.matcher(text).matches()) {
      return "";
    }
    String full; // IPv6: eight groups without leading zeros
    try {
      full = InetAddress.getByName(text).getHostAddress();
    } catch (UnknownHostException none) {
      return "";
    }
    MatchResult longest = null; // of the runs of zeros, the first of several
    for (MatchResult run : ZEROS.matcher(full).results().toList()) {
      if (longest == null || run.group(1).length() > longest.group(1).length()) {
        longest = run;
      }
    }
    return longest == null ? full : full.substring(0, longest.start()) + "::" + full.substring(longest.end());
  }

  /** An address without brackets, port and zone; "" with a port that is none. */
  private static String bare(String text) {
    Matcher written = WITH_PORT.matcher(text);
    if (written.matches()) {
      String port = written.group(2) == null ? written.group(4) : written.group(2);
      if (port != null && Integer.parseInt(port) > 65535) {
        return "";
      }
      text = written.group(1) == null ? written.group(3) : written.group(1);
    }
    int zone = text.indexOf(':') >= 0 ? text.indexOf('%') : -1;
    return zone < 0 || zone == text.length() - 1 ? text : text.substring(0, zone);
  }

  /** A number in its shortest form: 42 for 42.0, and 1.5e60. */
  static String number(BigDecimal n) {
    if (n.signum() == 0) {
      return "0";
    }
    n = n.stripTrailingZeros();
    int point = n.precision() - n.scale(); // ±0.ddd · 10^point
    if (Math.max(point, 1) + Math.max(n.scale(), 0) <= PLAIN_DIGITS) {
      return n.toPlainString();
    }
    return new BigDecimal(n.unscaledValue(), n.precision() - 1).toPlainString() + "e" + (point - 1);
  }

  private static String hash(String s) {
    try {
      byte[] sum = MessageDigest.getInstance("SHA-256").digest(s.getBytes(UTF_8));
      return HexFormat.of().formatHex(sum);
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError("every Java has SHA-256", e);
    }
  }
}
