package dev.tallygate;

import static java.lang.System.Logger.Level.INFO;
import static java.lang.System.Logger.Level.WARNING;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.DateTimeException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
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
  private final Seldom toldRefused = new Seldom();
  private final LongAdder answered = new LongAdder();
  private final LongAdder failed = new LongAdder();
  private final LongAdder skipped = new LongAdder();
  private final LongAdder refused = new LongAdder();

  private TallygateClient(Builder b) {
    url = b.url.replaceAll("/+$", "");
    settings = b;
    http = b.http != null ? b.http
        : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(b.timeout.plus(LATER)).build();
    // The first question of a Java program takes longer, as it loads classes. This is it; nobody waits.
    send(request("/readyz").GET().build()).whenComplete((answer, e) -> {
      if (e != null || answer.statusCode() != 200) {
        unanswered(e != null ? reason(e) : "it is not ready: " + Json.cut(answer.body()));
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

  /**
   * What has become of questions, for metrics.
   *
   * @param answered by the server
   * @param failed without an answer, or with a late or a wrong one
   * @param skipped and not asked, as the server is away
   * @param refused of those that were answered: they are wrong, and denied
   */
  public record Stats(long answered, long failed, long skipped, long refused) {}

  /** Returns what has become of questions. */
  public Stats stats() {
    return new Stats(answered.sum(), failed.sum(), skipped.sum(), refused.sum());
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
    if (pausing()) {
      skipped.increment();
    } else {
      try {
        Reply answer = post(path, question).get(settings.timeout.toNanos(), TimeUnit.NANOSECONDS);
        if (answer.statusCode() == 200) {
          Map<String, Object> fields = object(answer.body());
          Decision decision = Decision.of(fields, verdict);
          answered();
          return new Answer(decision, fields);
        }
        why = "it answers " + path + " with " + answer.statusCode() + ": " + Json.cut(answer.body());
        if (refuses(answer.statusCode())) {
          return new Answer(refused(why), Map.of());
        }
        failed(why);
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

  /** Tells whether a status says that the question is wrong: by the server, or by a proxy before it. */
  private static boolean refuses(int status) {
    return status >= 300 && status < 500;
  }

  /**
   * Denies a question that was refused, whatever {@link Fail} says: whoever finds out what makes a question
   * wrong would else be let in. It is no failure either, as others ask what is right.
   */
  private Decision refused(String why) {
    answered();
    refused.increment();
    toldRefused.say(WARNING, "the decision server at " + url + " refuses a question, which is denied: " + why);
    return Decision.inDoubt(false, 0, why);
  }

  /** Ends a permit. Nobody waits for it, so it may take longer than a question. */
  CompletableFuture<Boolean> end(String path, Map<String, Object> question) {
    return post(path, question).handle((answer, e) -> {
      boolean ended = e == null && answer.statusCode() == 200;
      if (!ended) {
        told.say(WARNING, "a permit could not be ended, and is over after its rule's hold: "
            + (e != null ? reason(e) : answer.statusCode() + " " + Json.cut(answer.body())));
      }
      return ended;
    });
  }

  private HttpRequest.Builder request(String path) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url + path)).timeout(settings.timeout.plus(LATER));
    String token = settings.token.get();
    return token == null || token.isEmpty() ? request : request.header("Authorization", "Bearer " + token);
  }

  private CompletableFuture<Reply> post(String path, Map<String, Object> question) {
    HttpRequest request = request(path).header("Content-Type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofString(Json.write(question))).build();
    // The server may close a kept connection just now. To ask again does no harm: a permit has an id.
    return send(request).exceptionallyCompose(e -> {
      Throwable cause = e instanceof CompletionException ? e.getCause() : e;
      boolean again = cause instanceof IOException && !(cause instanceof ConnectException || cause instanceof HttpTimeoutException);
      return again ? send(request) : CompletableFuture.failedFuture(cause);
    });
  }

  /** An answer: its status, and of its body what came. */
  private record Reply(int statusCode, String body) {}

  private CompletableFuture<Reply> send(HttpRequest request) {
    // Where the status says all, the body may end late, wrongly, or not at all.
    AtomicInteger refusal = new AtomicInteger();
    return http.sendAsync(request, head -> {
      if (!refuses(head.statusCode())) {
        return HttpResponse.BodySubscribers.ofString(UTF_8);
      }
      refusal.set(head.statusCode());
      return new Hasty(HttpResponse.BodySubscribers.ofString(UTF_8), settings.timeout.dividedBy(2));
    }).handle((answer, e) -> {
      if (e == null) {
        return new Reply(answer.statusCode(), answer.body());
      }
      if (refusal.get() != 0) {
        return new Reply(refusal.get(), "");
      }
      throw e instanceof CompletionException wrapped ? wrapped : new CompletionException(e);
    });
  }

  /** Has what comes of a body within a time; else "". */
  private record Hasty(HttpResponse.BodySubscriber<String> all, Duration within) implements HttpResponse.BodySubscriber<String> {
    @Override
    public CompletionStage<String> getBody() {
      return all.getBody().toCompletableFuture().copy().exceptionally(e -> "").completeOnTimeout("", within.toNanos(), TimeUnit.NANOSECONDS);
    }

    @Override
    public void onSubscribe(Flow.Subscription s) {
      all.onSubscribe(s);
    }

    @Override
    public void onNext(List<ByteBuffer> part) {
      all.onNext(part);
    }

    @Override
    public void onError(Throwable e) {
      all.onError(e);
    }

    @Override
    public void onComplete() {
      all.onComplete();
    }
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
    failed.increment();
    if (failures.incrementAndGet() == FAILURES) {
      askAgain.set(System.nanoTime() + PAUSE);
    }
    unanswered(why);
  }

  private void unanswered(String why) {
    told.say(WARNING, "the decision server at " + url + " gives no good answer, so nobody knows who is over a limit: " + why);
  }

  private void answered() {
    answered.increment();
    if (failures.getAndSet(0) >= FAILURES) {
      LOG.log(INFO, "the decision server answers again");
    }
  }
}
