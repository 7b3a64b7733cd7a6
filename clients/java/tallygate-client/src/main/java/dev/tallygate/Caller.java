package dev.tallygate;

import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.Map;

/** Who asks, or who did it: a user, an address, attributes. Values that are null or "" are absent. */
public final class Caller {
  private static final int MAX_ATTRS = 32;

  String uid = "";
  String ip = "";
  final Map<String, Object> attrs = new LinkedHashMap<>();

  /** Returns a user, who must be known: a check of nobody would allow everybody. */
  public static Caller of(String uid) {
    if (uid == null || uid.isEmpty()) {
      throw new IllegalArgumentException("the user is missing; new Caller() is for those that are not known");
    }
    return new Caller().uid(uid);
  }

  /** Returns a user, by a number. */
  public static Caller of(long uid) {
    return of(Long.toString(uid));
  }

  /** Sets the user, as your authentication found it: never what a client can choose. */
  public Caller uid(String uid) { this.uid = uid == null ? "" : Canonical.uid(uid); return this; }

  /** Sets the user, by a number. */
  public Caller uid(long uid) { return uid(Long.toString(uid)); }

  /** Sets the client's address. What is no address is absent. */
  public Caller ip(String ip) { this.ip = Canonical.ip(ip); return this; }

  /** Sets an attribute: a text, a number or a boolean. There are up to 32. */
  public Caller attr(String name, Object value) {
    if (name == null || name.isEmpty()) {
      throw new IllegalArgumentException("an attribute needs a name");
    }
    name = Canonical.text(name, Canonical.MAX_NAME);
    if (value == null || value.equals("")) {
      attrs.remove(name);
      return this;
    }
    if (!attrs.containsKey(name) && attrs.size() == MAX_ATTRS) {
      throw new IllegalArgumentException("more than " + MAX_ATTRS + " attributes: leave some out");
    }
    attrs.put(name, canonical(name, value));
    return this;
  }

  private static Object canonical(String name, Object value) {
    if (value instanceof Boolean) {
      return value;
    }
    if (value instanceof Number) {
      BigDecimal number = new BigDecimal(value.toString());
      String text = Canonical.number(number);
      return text.length() <= Canonical.MAX_TEXT ? number : Canonical.text(text, Canonical.MAX_TEXT);
    }
    if (value instanceof CharSequence || value instanceof Character || value instanceof Enum) {
      return Canonical.text(value.toString(), Canonical.MAX_TEXT);
    }
    throw new IllegalArgumentException(
        "attribute " + name + " is a " + value.getClass().getName() + ": want a text, a number or a boolean");
  }

  /** Adds what is known to an event's or a question's fields. */
  void addTo(Map<String, Object> fields) {
    put(fields, "uid", uid);
    put(fields, "ip", ip);
    put(fields, "attrs", attrs);
  }

  static void put(Map<String, Object> fields, String name, Object value) {
    if (value != null && !value.equals("") && !value.equals(Map.of())) {
      fields.put(name, value);
    }
  }
}
