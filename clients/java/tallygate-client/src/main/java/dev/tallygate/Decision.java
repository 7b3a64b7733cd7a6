package dev.tallygate;

import java.math.BigDecimal;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a check says.
 *
 * @param allowed whether the caller may do this now
 * @param inDoubt nobody knows: the blocklist is stale, or the decision server gives no answer
 * @param rule the rule that denies, for logs and metrics; "" is none
 * @param publicName the rule's name that callers may see; "" is none
 * @param action what the rule says, such as block; "" is none
 * @param until when the denial ends; null is unknown
 * @param retryAfter whole seconds until then; 0 is unknown
 * @param limit how much the rule allows; null is unknown
 * @param reason in words why it is in doubt, where there is more to say
 */
public record Decision(boolean allowed, boolean inDoubt, String rule, String publicName, String action, Instant until,
    long retryAfter, BigDecimal limit, String reason) {

  /** What nobody was asked about. */
  public static final Decision ALLOWED = new Decision(true, false, "", "", "", null, 0, null, "");

  /** Reads the answer of /v1/check, or of /v1/admit. */
  @SuppressWarnings("unchecked")
  static Decision of(Map<String, Object> answer, String verdict) {
    if (!(answer.get(verdict) instanceof Boolean allowed)) {
      throw new IllegalArgumentException("an answer without " + verdict);
    }
    Map<String, Object> numbers = answer; // where the limit is
    if (answer.get("verdicts") instanceof List<?> all && !all.isEmpty()) {
      numbers = (Map<String, Object>) all.get(0); // the one that decides
    }
    String until = text(answer, "until");
    return new Decision(allowed, Boolean.TRUE.equals(answer.get("in_doubt")), text(answer, "rule"),
        text(answer, "public"), text(answer, "action"), until.isEmpty() ? null : Instant.parse(until),
        answer.get("retry_after") instanceof BigDecimal n ? n.longValue() : 0,
        numbers.get("limit") instanceof BigDecimal n ? n : null, text(answer, "reason"));
  }

  static String text(Map<String, Object> answer, String name) {
    return answer.get(name) instanceof String s ? s : "";
  }

  static Decision inDoubt(boolean allowed, long retryAfter, String reason) {
    return new Decision(allowed, true, "", "", "", null, retryAfter, null, reason);
  }

  /** The status of a response that says so: 429, or 503 in doubt. */
  public int status() {
    return allowed ? 200 : inDoubt ? 503 : 429;
  }

  /** The header fields of such a response, the same as those of Go's middleware. */
  public Map<String, String> headers() {
    Map<String, String> headers = new LinkedHashMap<>();
    if (allowed) {
      return headers;
    }
    headers.put("Cache-Control", "no-store");
    headers.put("Content-Type", "application/problem+json");
    if (retryAfter > 0) {
      headers.put("Retry-After", Long.toString(retryAfter));
    }
    if (!inDoubt) {
      String name = policy().replaceAll("([\"\\\\])", "\\\\$1").replaceAll("[^ -~]", "?");
      headers.put("RateLimit", "\"" + name + "\";r=0" + (retryAfter > 0 ? ";t=" + retryAfter : ""));
      if (limit != null && limit.longValue() > 0) { // a block by command has none
        headers.put("RateLimit-Policy", "\"" + name + "\";q=" + limit.longValue());
      }
    }
    return headers;
  }

  private String policy() {
    return publicName.isEmpty() ? "limit" : publicName;
  }

  /** The body of such a response: a problem of RFC 9457. */
  public String problem() {
    Map<String, Object> body = new LinkedHashMap<>();
    if (inDoubt) {
      body.put("type", "about:blank");
      body.put("title", "Service Unavailable");
      body.put("status", status());
      body.put("detail", "It is not known at the moment whether this is allowed.");
      return Json.write(body);
    }
    String which = publicName.isEmpty() ? "A limit" : "The limit of \"" + publicName + "\"";
    body.put("type", "https://iana.org/assignments/http-problem-types#quota-exceeded");
    body.put("title", "Request cannot be satisfied as assigned quota has been exceeded");
    body.put("status", status());
    body.put("detail", which + " was exceeded" + (retryAfter > 0 ? "; try again in " + retryAfter + " s." : "."));
    Caller.put(body, "rule", publicName);
    Caller.put(body, "action", action);
    // Java writes three, six or nine digits of a second; the decision server as many as there are.
    Caller.put(body, "until", until == null ? null : until.toString().replaceAll("(\\.\\d*[1-9])0+Z$", "$1Z"));
    if (retryAfter > 0) {
      body.put("retry_after", retryAfter);
    }
    body.put("violated-policies", List.of(policy()));
    return Json.write(body);
  }
}
