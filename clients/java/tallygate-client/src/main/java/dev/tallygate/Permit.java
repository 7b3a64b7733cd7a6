package dev.tallygate;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * Leave for one action under strict limits. Where {@link #admitted}, do it, emit its event with
 * {@link Event#permit}, and end the permit once: with {@link #done}, or with {@link #cancel} if nothing
 * was done. Without an event it counts as lost when the rule's hold is over.
 */
public final class Permit implements AutoCloseable {
  private final TallygateClient client;
  private final Decision decision;
  private final Map<String, Object> answer;
  private String token; // null: it has ended

  Permit(TallygateClient client, Decision decision, Map<String, Object> answer) {
    this.client = client;
    this.decision = decision;
    this.answer = answer;
    this.token = Decision.text(answer, "token");
  }

  /** Tells whether the action may be done. */
  public boolean admitted() {
    return decision.allowed();
  }

  /** Says more: when to come back, which limit it was, whether it is in doubt. */
  public Decision decision() {
    return decision;
  }

  String permit() {
    return Decision.text(answer, "permit");
  }

  Object permitAt() {
    return answer.get("permit_at");
  }

  /**
   * Says that the action has ended, and how. It does not wait: the result tells whether the server
   * knows. Where the decision server emits the events (--emit-admitted), it does so now.
   */
  public CompletableFuture<Boolean> done(String outcome) {
    return end("/v1/done", outcome);
  }

  /** Gives the permit back: nothing was done, and there is no event. */
  public CompletableFuture<Boolean> cancel() {
    return end("/v1/cancel", "");
  }

  /** Ends a permit that neither done nor cancel has: the action failed, and nobody knows how far it got. */
  @Override
  public void close() {
    done("failure");
  }

  private CompletableFuture<Boolean> end(String path, String outcome) {
    Map<String, Object> question = new LinkedHashMap<>();
    synchronized (this) {
      if (token == null || token.isEmpty()) { // it has ended, or there is nothing to end
        return CompletableFuture.completedFuture(true);
      }
      question.put("token", token);
      token = null;
    }
    Caller.put(question, "outcome", outcome);
    return client.end(path, question);
  }
}
