package dev.tallygate;

import static java.lang.System.Logger.Level.INFO;
import static java.lang.System.Logger.Level.WARNING;

import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.time.DateTimeException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/**
 * Asks a decision server (the program enforcer). No call takes longer than its timeout, and none throws
 * because the server is away: {@link Fail} says what is answered then. All threads may share one.
 */
public final class TallygateClient {
  /** What is answered while the decision server gives no answer. */
  public enum Fail {
    /** It is allowed. */
    OPEN,
    /** It is denied. */
    CLOSED
  }

  private static final System.Logger LOG = System.getLogger("tallygate");
  private static final int FAILURES = 5; // in a row: then nobody waits for the server
  private static final long PAUSE = TimeUnit.SECONDS.toNanos(1);
  private static final Duration LATER = Duration.ofSeconds(2); // what an answer takes at most that nobody waits for

  private final String url;
  private final Builder settings;
  private final HttpClient http;
  private final AtomicInteger failures = new AtomicInteger(); // in a row
  private final AtomicLong askAgain = new AtomicLong(); // by nanoTime
  private final Seldom told = new Seldom();

  private TallygateClient(Builder b) {
    url = b.url.replaceAll("/+$", "");
    settings = b;
    http = b.http != null ? b.http
        : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(b.timeout.plus(LATER)).build();
    // The first question of a Java program takes longer, as it loads classes. This is it; nobody waits.
    send(request("/readyz").GET().build()).whenComplete((answer, e) -> {
      if (e != null || answer.statusCode() != 200) {
        unanswered(e != null ? reason(e) : "it is not ready: " + answer.body().strip());
      }
    });
  }

  /** Begins a client of the decision server at this URL, such as http://127.0.0.1:8080. */
  public static Builder at(String url) {
    return new Builder(url);
  }

  /** Settings of a client. */
  public static final class Builder {
    private final String url;
    private Duration timeout = Duration.ofMillis(50);
    private Fail fail;
    private Supplier<String> token = () -> "";
    private HttpClient http;

    private Builder(String url) {
      if (url == null || !url.matches("https?://[^/]+.*")) {
        throw new IllegalArgumentException("url is " + url + ", want one such as http://127.0.0.1:8080");
      }
      this.url = url;
    }

    /** Sets how long a call takes at most: 50 ms. */
    public Builder timeout(Duration timeout) {
      if (timeout.isNegative() || timeout.isZero()) {
        throw new IllegalArgumentException("timeout is " + timeout + ", want one above zero");
      }
      this.timeout = timeout;
      return this;
    }

    /** Sets what is answered while the server gives no answer. By default checks are open, permits closed. */
    public Builder fail(Fail fail) { this.fail = fail; return this; }

    /** Sets where the credential comes from, which the server wants for permits unless it is on loopback. */
    public Builder token(Supplier<String> token) { this.token = token; return this; }

    /** Sets an HTTP client of your own, for example with certificates. */
    public Builder http(HttpClient http) { this.http = http; return this; }

    public TallygateClient build() {
      return new TallygateClient(this);
    }
  }

  /** May the caller do this now? */
  public Decision check(String api, Caller caller) {
    return check(api, caller, settings.fail == null ? Fail.OPEN : settings.fail);
  }

  /** May the caller do this now? fail is what is answered if nobody knows. */
  public Decision check(String api, Caller caller, Fail fail) {
    return ask("/v1/check", question(api, caller), "allowed", fail).decision;
  }

  /** Asks for a permit of the cost 1, under strict limits too. */
  public Permit admit(String api, Caller caller) {
    return admit(api, caller, 1, UUID.randomUUID().toString(), settings.fail == null ? Fail.CLOSED : settings.fail);
  }

  /**
   * Asks for a permit, under strict limits too.
   *
   * @param cost the event's, or more than that
   * @param id names this one action: asked again with it, it gets the same permit
   * @param fail what is answered if nobody knows. What is let in then has no permit, and may exceed the limit
   */
  public Permit admit(String api, Caller caller, Number cost, String id, Fail fail) {
    Map<String, Object> question = question(api, caller);
    question.put("cost", cost);
    question.put("id", id);
    Answer answer = ask("/v1/admit", question, "admitted", fail);
    return new Permit(this, answer.decision, answer.fields);
  }

  private static Map<String, Object> question(String api, Caller caller) {
    Map<String, Object> question = new LinkedHashMap<>();
    question.put("api", Event.checked(api));
    caller.addTo(question);
    return question;
  }

  private record Answer(Decision decision, Map<String, Object> fields) {}

  private Answer ask(String path, Map<String, Object> question, String verdict, Fail fail) {
    String why = "it gave none " + FAILURES + " times in a row, and is asked again each second";
    if (!pausing()) {
      try {
        HttpResponse<String> answer = post(path, question).get(settings.timeout.toNanos(), TimeUnit.NANOSECONDS);
        if (answer.statusCode() == 200) {
          Map<String, Object> fields = object(answer.body());
          Decision decision = Decision.of(fields, verdict);
          answered();
          return new Answer(decision, fields);
        }
        why = "it answers " + path + " with " + answer.statusCode() + ": " + answer.body().strip();
        if (answer.statusCode() >= 500) {
          failed(why);
        } else { // it refuses this question, and may answer others: that stops nobody else's
          unanswered(why);
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        why = "the thread was interrupted";
      } catch (TimeoutException e) {
        failed(why = "nothing came within " + settings.timeout.toMillis() + " ms");
      } catch (ExecutionException | IllegalArgumentException | DateTimeException e) {
        failed(why = reason(e));
      }
    }
    boolean open = fail == Fail.OPEN;
    return new Answer(Decision.inDoubt(open, open || verdict.equals("allowed") ? 0 : 1, why), Map.of());
  }

  /** Ends a permit. Nobody waits for it, so it may take longer than a question. */
  CompletableFuture<Boolean> end(String path, Map<String, Object> question) {
    return post(path, question).handle((answer, e) -> {
      boolean ended = e == null && answer.statusCode() == 200;
      if (!ended) {
        told.say(WARNING, "a permit could not be ended, and is over after its rule's hold: "
            + (e != null ? reason(e) : answer.statusCode() + " " + answer.body().strip()));
      }
      return ended;
    });
  }

  private HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path)).timeout(settings.timeout.plus(LATER));
    String token = settings.token.get();
    return token == null || token.isEmpty() ? request : request.header("Authorization", "Bearer " + token);
  }

  private CompletableFuture<HttpResponse<String>> post(String path, Map<String, Object> question) {
    HttpRequest request = request(path).header("Content-Type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofString(Json.write(question))).build();
    // The server may close a kept connection just now. To ask again does no harm: a permit has an id.
    return send(request).exceptionallyCompose(e -> {
      Throwable cause = e instanceof CompletionException ? e.getCause() : e;
      boolean again = cause instanceof IOException && !(cause instanceof ConnectException || cause instanceof HttpTimeoutException);
      return again ? send(request) : CompletableFuture.failedFuture(cause);
    });
  }

  private CompletableFuture<HttpResponse<String>> send(HttpRequest request) {
    return http.sendAsync(request, HttpResponse.BodyHandlers.ofString());
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> object(String body) {
    if (Json.read(body) instanceof Map<?, ?> map) {
      return (Map<String, Object>) map;
    }
    throw new IllegalArgumentException("the answer is no object");
  }

  private static String reason(Throwable e) {
    Throwable cause = e.getCause() != null ? e.getCause() : e;
    return cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
  }

  /** After some failures in a row nobody waits for the server. Each second one asks it again. */
  private boolean pausing() {
    long at = askAgain.get();
    long now = System.nanoTime();
    return failures.get() >= FAILURES && (now - at < 0 || !askAgain.compareAndSet(at, now + PAUSE));
  }

  private void failed(String why) {
    if (failures.incrementAndGet() == FAILURES) {
      askAgain.set(System.nanoTime() + PAUSE);
    }
    unanswered(why);
  }

  private void unanswered(String why) {
    told.say(WARNING, "the decision server at " + url + " gives no good answer, so nobody knows who is over a limit: " + why);
  }

  private void answered() {
    if (failures.getAndSet(0) >= FAILURES) {
      LOG.log(INFO, "the decision server answers again");
    }
  }
}
