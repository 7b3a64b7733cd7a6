package dev.tallygate.servlet;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.tallygate.Caller;
import dev.tallygate.Decision;
import dev.tallygate.Emitter;
import dev.tallygate.Event;
import dev.tallygate.Names;
import dev.tallygate.Permit;
import dev.tallygate.TallygateClient;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Stream;

/**
 * Answers 429 to those who may not use an API now, and emits an event for each request that it let in.
 * Register it behind the filter that authenticates, for requests only, with support of async.
 */
public final class TallygateFilter extends HttpFilter {
  /** What a function of a request returns that cannot tell who sends it: the answer is 400. */
  public static final String AMBIGUOUS = new String("ambiguous");

  private static final long serialVersionUID = 1;
  private static final int MAX_ATTRS = 14; // as of Go's middleware

  private static final int WATCHED = 20; // requests
  private static final System.Logger LOG = System.getLogger("tallygate");

  private final transient Options o;
  private final transient Denials denials = new Denials(System::nanoTime);
  private final AtomicLong unnamed = new AtomicLong();
  private final AtomicInteger seen = new AtomicInteger(); // requests, none of which said who asks; WATCHED: that is over

  public TallygateFilter(Options options) {
    o = options;
  }

  /** How many requests nobody is known to have sent: without a uid, or where none is read, without an address or attributes. */
  public long unnamed() {
    return unnamed.get();
  }

  /** Counts requests of which nobody knows who sends them, and tells once of options by which nobody ever is known. */
  private void watch(boolean known) {
    if (!known) {
      unnamed.incrementAndGet();
    }
    if (seen.get() >= WATCHED) {
      return;
    }
    if (known) {
      seen.set(WATCHED);
    } else if (seen.incrementAndGet() == WATCHED) {
      LOG.log(System.Logger.Level.WARNING, "none of the first " + WATCHED + " requests had " + o.expected
          + ", so no limit on that holds: check uid, ip and attr of the filter");
    }
  }

  /** Settings of a filter. At least one of uid, ip and attr is needed for limits. */
  public static final class Options {
    private TallygateClient client;
    private Emitter emitter;
    private static final String UID = "a uid";
    private String expected = "an address or an attribute"; // of requests
    private Function<HttpServletRequest, String> uid = r -> null;
    private Function<HttpServletRequest, String> ip = r -> null;
    private Function<HttpServletRequest, String> api = r -> Names.pathApi(r.getMethod(), r.getRequestURI());
    private Predicate<HttpServletRequest> skip = r -> false;
    private Predicate<String> admit = api -> false;
    private Denied denied = TallygateFilter::deny;
    private boolean emitDenied;
    private final Map<String, Function<HttpServletRequest, ?>> attrs = new LinkedHashMap<>();

    /** Sets what checks; without it all is let in. */
    public Options client(TallygateClient client) { this.client = client; return this; }

    /** Sets what emits; without it there are no events. */
    public Options emitter(Emitter emitter) { this.emitter = emitter; return this; }

    /** Sets who the user is, as your authentication found it: never what a client can choose. */
    public Options uid(Function<HttpServletRequest, String> uid) { this.uid = uid; expected = UID; return this; }

    /** Sets the client's address. Behind a proxy, getRemoteAddr is right only where the server is told of it. */
    public Options ip(Function<HttpServletRequest, String> ip) { this.ip = ip; return this; }

    /** Sets an attribute of the caller, for rules whose key has attrs.NAME. */
    public Options attr(String name, Function<HttpServletRequest, ?> of) {
      if (name.equals(Passage.STATUS) || name.equals(Passage.LATENCY)) {
        throw new IllegalArgumentException("the filter adds the attribute " + name + " itself: choose another name");
      }
      if (attrs.size() == MAX_ATTRS) {
        throw new IllegalArgumentException("more than " + MAX_ATTRS + " attributes of callers");
      }
      attrs.put(name, of);
      return this;
    }

    /** Sets the name of what a request does. By default it is that of its path: {@link Names#pathApi}. */
    public Options api(Function<HttpServletRequest, String> api) { this.api = api; return this; }

    /** Sets which requests are let in as if there were no filter. */
    public Options skip(Predicate<HttpServletRequest> skip) { this.skip = skip; return this; }

    /** Sets the APIs for which a permit is asked: those that strict rules count. */
    public Options admit(Predicate<String> api) { admit = api; return this; }

    /** Also emits what is denied here, with the outcome limited. */
    public Options emitDenied(boolean emit) { emitDenied = emit; return this; }

    /** Sets what answers a request that is denied. */
    public Options denied(Denied denied) { this.denied = denied; return this; }
  }

  /** Answers a request that is denied. */
  @FunctionalInterface
  public interface Denied {
    void answer(HttpServletRequest request, HttpServletResponse response, Decision decision) throws IOException;
  }

  /** A header that your proxy sets, and removes from what clients send. With several values it is ambiguous. */
  public static Function<HttpServletRequest, String> header(String name) {
    return request -> {
      List<String> values = Collections.list(request.getHeaders(name));
      return values.size() > 1 ? AMBIGUOUS : values.isEmpty() ? null : values.get(0);
    };
  }

  @Override
  protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    if (request.getAttribute(Tallygate.PASSAGE) != null || o.skip.test(request)) {
      chain.doFilter(request, response);
      return;
    }
    String uid = o.uid.apply(request);
    String ip = o.ip.apply(request);
    String named = o.api.apply(request);
    Map<String, Object> attrs = new LinkedHashMap<>();
    o.attrs.forEach((name, of) -> attrs.put(name, of.apply(request)));
    if (Stream.concat(Stream.of(uid, ip, named), attrs.values().stream()).anyMatch(v -> v == AMBIGUOUS)) {
      write(request, response, 400, "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":"
          + "\"It is not clear who sends this request: a header that says so has several values.\"}");
      return;
    }
    watch(isThere(uid) || o.expected != Options.UID && (isThere(ip) || attrs.values().stream().anyMatch(TallygateFilter::isThere)));
    String api = named == null || named.isEmpty() ? Names.UNROUTED : named;
    Caller caller = new Caller().uid(uid).ip(ip);
    attrs.forEach(caller::attr);
    enter(request, response, chain, api, caller, List.of(api, String.valueOf(uid), String.valueOf(ip), attrs));
  }

  private static boolean isThere(Object value) {
    return value != null && !value.equals("");
  }

  private void enter(HttpServletRequest request, HttpServletResponse response, FilterChain chain, String api, Caller caller, Object who)
      throws IOException, ServletException {
    Event event = Event.of(api).by(caller);
    Permit permit = o.client != null && o.admit.test(api) ? o.client.admit(api, caller) : null;
    Decision d = permit != null ? permit.decision() : o.client != null ? o.client.check(api, caller) : Decision.ALLOWED;
    Passage passage = new Passage(o.emitter, permit, event, response);
    if (!d.allowed()) {
      o.denied.answer(request, response, d);
      if (o.emitDenied || o.emitter != null && denials.emits(who)) {
        passage.end(response.getStatus(), Names.LIMITED);
      }
      return;
    }
    request.setAttribute(Tallygate.PASSAGE, passage);
    boolean finished = false;
    try {
      chain.doFilter(request, response);
      finished = true;
    } finally {
      passage.failed = !finished;
      if (request.isAsyncStarted()) {
        request.getAsyncContext().addListener(passage);
      } else {
        passage.end();
      }
    }
  }

  private static void deny(HttpServletRequest request, HttpServletResponse response, Decision d) throws IOException {
    d.headers().forEach(response::setHeader);
    write(request, response, d.status(), d.problem());
  }

  private static void write(HttpServletRequest request, HttpServletResponse response, int status, String problem)
      throws IOException {
    response.setStatus(status);
    response.setHeader("Cache-Control", "no-store");
    response.setContentType("application/problem+json");
    if (!request.getMethod().equals("HEAD")) {
      response.getOutputStream().write(problem.getBytes(UTF_8));
    }
  }
}
