package dev.tallygate;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;

/**
 * One action that happened. It has an id and a time of its own, unless you give others. An
 * IllegalArgumentException says what no event can have; texts that are too long are shortened.
 */
public final class Event {
  private static final int MAX_API = 128;
  private static final BigDecimal MAX_COST = new BigDecimal("9223372036854.775807");
  private static final BigDecimal BILLIONTH = new BigDecimal("0.000000001");
  private static final Instant MIN_TIME = Instant.parse("0000-01-01T00:00:00Z");
  private static final Instant MAX_TIME = Instant.parse("9999-12-31T23:59:59.999999Z");

  private final String api;
  private final Caller caller = new Caller();
  private String id = "";
  private Instant time = Instant.now();
  private String outcome = "";
  private BigDecimal cost = BigDecimal.ONE;
  private String refunds = "";
  private String permit = "";
  private Object permitAt;

  private Event(String api) {
    this.api = api;
  }

  /** Returns an event of this API, such as order.create, that happens now and has the cost 1. */
  public static Event of(String api) {
    return new Event(checked(api));
  }

  static String checked(String api) {
    if (api == null || api.isEmpty()) {
      throw new IllegalArgumentException("there is no api: name the action, such as order.create");
    }
    if (api.getBytes(UTF_8).length > MAX_API || api.chars().anyMatch(c -> c < ' ' || c == 0x7f)) {
      throw new IllegalArgumentException("an api has up to " + MAX_API + " bytes, and no control characters: " + api);
    }
    return api;
  }

  /** Sets user, address and attributes: those that were checked. */
  public Event by(Caller who) {
    caller.uid = who.uid;
    caller.ip = who.ip;
    caller.attrs.putAll(who.attrs);
    return this;
  }

  /** Sets the user. */
  public Event uid(String uid) { caller.uid(uid); return this; }

  /** Sets the user, by a number. */
  public Event uid(long uid) { return uid(Long.toString(uid)); }

  /** Sets the client's address. What is no address is absent. */
  public Event ip(String ip) { caller.ip(ip); return this; }

  /** Sets an attribute: a text, a number or a boolean; null and "" are absent. There are up to 32. */
  public Event attr(String name, Object value) { caller.attr(name, value); return this; }

  /** Sets how it ended, such as success: see "Outcomes" of the reference. */
  public Event outcome(String outcome) {
    this.outcome = outcome == null ? "" : Canonical.text(outcome, Canonical.MAX_TEXT);
    return this;
  }

  /** How it ended. */
  public String outcome() {
    return outcome;
  }

  /** Sets how much it counts for: up to 6 fraction digits; below zero only with {@link #refunds}. */
  public Event cost(Number cost) {
    BigDecimal given = new BigDecimal(cost.toString());
    this.cost = given.setScale(6, RoundingMode.HALF_UP);
    // What binary numbers add, as in 0.1 + 0.2, is rounded away, and nothing else.
    if (given.subtract(this.cost).abs().compareTo(BILLIONTH) >= 0 || this.cost.abs().compareTo(MAX_COST) > 0) {
      throw new IllegalArgumentException("cost " + cost + ": up to 6 fraction digits, and at most " + MAX_COST);
    }
    return this;
  }

  /** Sets the id: the same one twice counts once. */
  public Event id(String id) { this.id = Canonical.id(id); return this; }

  /** Sets the id, by a number. */
  public Event id(long id) { return id(Long.toString(id)); }

  /** Sets when it happened. */
  public Event time(Instant time) {
    if (time.isBefore(MIN_TIME) || time.isAfter(MAX_TIME)) {
      throw new IllegalArgumentException("time " + time + " is outside the years 0 to 9999");
    }
    this.time = time;
    return this;
  }

  /** Sets the id of the event that a cost below zero takes back. */
  public Event refunds(String id) { refunds = Canonical.id(id); return this; }

  /** Sets the id, a number, of the event that a cost below zero takes back. */
  public Event refunds(long id) { return refunds(Long.toString(id)); }

  /** Sets the permit by which strict limits count it. One that has none changes nothing. */
  public Event permit(Permit permit) {
    return permit(permit.permit(), permit.permitAt());
  }

  /** Sets permit and permit_at of a decision server's answer. */
  Event permit(String id, Object at) {
    permit = Canonical.id(id);
    permitAt = at;
    return this;
  }

  /** The record's key; null is none. */
  byte[] key() {
    return caller.uid.isEmpty() ? null : caller.uid.getBytes(UTF_8);
  }

  /** The record's value. */
  String json() {
    if (cost.signum() < 0 && refunds.isEmpty()) {
      throw new IllegalArgumentException("a cost of " + cost + " needs refunds: name the event that it takes back");
    }
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("id", id.isEmpty() ? UUID.randomUUID().toString() : id);
    fields.put("time", time.truncatedTo(ChronoUnit.MICROS).toString());
    fields.put("api", api);
    caller.addTo(fields);
    Caller.put(fields, "outcome", outcome);
    if (cost.compareTo(BigDecimal.ONE) != 0) {
      fields.put("cost", cost);
    }
    Caller.put(fields, "refunds", refunds);
    if (!permit.isEmpty()) {
      fields.put("permit", permit);
      Caller.put(fields, "permit_at", permitAt);
    }
    return Json.write(fields);
  }
}
