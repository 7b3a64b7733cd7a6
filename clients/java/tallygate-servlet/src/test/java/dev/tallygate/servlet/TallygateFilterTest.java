package dev.tallygate.servlet;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import dev.tallygate.Emitter;
import dev.tallygate.TallygateClient;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.UnaryOperator;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.mock.web.MockAsyncContext;
import org.springframework.mock.web.MockHttpServletRequest;
import org.springframework.mock.web.MockHttpServletResponse;

@Timeout(60)
class TallygateFilterTest {
  private static final String ALLOWED = "{\"allowed\":true,\"admitted\":true,\"token\":\"t1\",\"permit\":\"p1\",\"verdicts\":[]}";
  private static final String DENIED =
      "{\"allowed\":false,\"admitted\":false,\"rule\":\"secret\",\"public\":\"orders\",\"retry_after\":7,\"verdicts\":[{\"limit\":5}]}";

  private final List<String> asked = new CopyOnWriteArrayList<>();
  private final Sent sent = new Sent();
  private final HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
  private final TallygateClient client;
  private volatile String answer = ALLOWED;

  TallygateFilterTest() throws IOException {
    server.createContext("/v1/", exchange -> {
      asked.add(exchange.getRequestURI().getPath() + " " + new String(exchange.getRequestBody().readAllBytes(), UTF_8));
      byte[] out = answer.getBytes(UTF_8);
      exchange.sendResponseHeaders(200, out.length);
      exchange.getResponseBody().write(out);
      exchange.close();
    });
    server.start();
    client = TallygateClient.at("http://127.0.0.1:" + server.getAddress().getPort()).timeout(Duration.ofSeconds(20)).build();
  }

  @AfterEach
  void stop() {
    server.stop(0);
  }

  private MockHttpServletResponse request(UnaryOperator<TallygateFilter.Options> options, MockHttpServletRequest request, FilterChain handler)
      throws IOException, ServletException {
    MockHttpServletResponse response = new MockHttpServletResponse();
    try (Emitter emitter = sent.emitter()) {
      TallygateFilter.Options o = new TallygateFilter.Options().client(client).emitter(emitter).uid(TallygateFilter.header("X-User"));
      new TallygateFilter(options.apply(o)).doFilter(request, response, handler);
    }
    return response;
  }

  private static MockHttpServletRequest by(String user, String method, String path) {
    MockHttpServletRequest request = new MockHttpServletRequest(method, path);
    request.addHeader("X-User", user);
    return request;
  }

  private static void matches(String pattern, String text) {
    assertTrue(Pattern.matches(pattern, text), text);
  }

  @Test
  void anAllowedRequestHasAnEventWithWhatItsHandlerNotes() throws Exception {
    request(o -> o.ip(r -> r.getRemoteAddr()).attr("plan", r -> "pro"), by("42", "POST", "/orders/17"), (request, response) -> {
      Tallygate.note(request).attr("discounted", true).cost(2).id("o-17");
      assertThrows(IllegalArgumentException.class, () -> Tallygate.note(request).attr("", 1));
      assertThrows(IllegalArgumentException.class, () -> Tallygate.note(request).cost(-1));
      assertNull(Tallygate.permit(request));
      ((MockHttpServletResponse) response).setStatus(403);
    });
    assertEquals(List.of("/v1/check {\"api\":\"post.orders.17\",\"uid\":\"42\",\"ip\":\"127.0.0.1\",\"attrs\":{\"plan\":\"pro\"}}"), asked);
    matches("\\{\"id\":\"o-17\",\"time\":\"[^\"]+\",\"api\":\"post.orders.17\",\"uid\":\"42\",\"ip\":\"127.0.0.1\",\"attrs\":\\{\"plan\":\"pro\","
        + "\"status\":403,\"latency_ms\":[0-9.]+,\"discounted\":true},\"outcome\":\"denied\",\"cost\":2}", sent.only());
  }

  @Test
  void aDeniedRequestIsAnsweredAsByGo() throws Exception {
    answer = DENIED;
    FilterChain never = (request, response) -> {
      throw new AssertionError("it was let in");
    };
    MockHttpServletResponse response = request(o -> o, by("42", "GET", "/search"), never);
    assertEquals(429, response.getStatus());
    assertEquals("7", response.getHeader("Retry-After"));
    assertEquals("\"orders\";r=0;t=7", response.getHeader("RateLimit"));
    assertEquals("\"orders\";q=5", response.getHeader("RateLimit-Policy"));
    assertEquals("application/problem+json", response.getContentType());
    assertTrue(response.getContentAsString().contains("\"rule\":\"orders\""));
    matches(".*\"outcome\":\"limited\".*", sent.only());

    assertEquals("", request(o -> o, by("42", "HEAD", "/search"), never).getContentAsString());

    request(o -> o.emitDenied(true).denied((r, w, d) -> w.setStatus(418)), by("42", "GET", "/search"), never);
    matches(".*\"status\":418,.*\"outcome\":\"limited\".*", sent.values().get(2));
  }

  @Test
  void aHandlerThatThrowsHasFailed() {
    IOException thrown = new IOException("of the handler");
    assertSame(thrown, assertThrows(IOException.class, () -> request(o -> o, by("42", "GET", "/a"), (request, response) -> {
      Tallygate.note(request).outcome("half"); // a note says more
      throw thrown;
    })));
    matches(".*\"status\":500,.*\"outcome\":\"half\".*", sent.only());
  }

  @Test
  void aPermitIsInTheEventAndEndsWithItsOutcome() throws Exception {
    request(o -> o.admit(api -> api.equals("post.coupons")), by("42", "POST", "/coupons"), (request, response) -> {
      assertNotNull(Tallygate.permit(request));
      ((MockHttpServletResponse) response).setStatus(500);
    });
    matches(".*\"outcome\":\"failure\",\"permit\":\"p1\".*", sent.only());
    for (long end = System.nanoTime() + Duration.ofSeconds(20).toNanos(); asked.size() < 2 && System.nanoTime() < end; ) {
      Thread.sleep(2); // nobody waits for the end
    }
    matches("/v1/admit .*\"cost\":1,\"id\":\"[^\"]+\"}", asked.get(0));
    assertEquals("/v1/done {\"token\":\"t1\",\"outcome\":\"failure\"}", asked.get(1));
  }

  @Test
  void anAsyncRequestEndsLater() throws Exception {
    MockHttpServletRequest request = by("42", "GET", "/slow");
    request.setAsyncSupported(true);
    MockHttpServletResponse response = new MockHttpServletResponse();
    Emitter emitter = sent.emitter();
    new TallygateFilter(new TallygateFilter.Options().client(client).emitter(emitter).uid(r -> "42"))
        .doFilter(request, response, (r, w) -> r.startAsync());
    assertTrue(sent.values().isEmpty());
    response.setStatus(404);
    MockAsyncContext context = (MockAsyncContext) request.getAsyncContext();
    for (int i = 0; i < 2; i++) { // whatever is told twice
      context.getListeners().get(0).onComplete(new AsyncEvent(context));
    }
    emitter.close();
    matches(".*\"status\":404,.*", sent.only());
  }

  @Test
  void whoSendsItMustBeClear() throws Exception {
    MockHttpServletRequest request = by("42", "GET", "/a");
    request.addHeader("X-User", "43");
    assertEquals(400, request(o -> o, request, (r, w) -> {
      throw new AssertionError("it was let in");
    }).getStatus());

    MockHttpServletRequest devices = by("42", "GET", "/a");
    devices.addHeader("X-Device", "1");
    devices.addHeader("X-Device", "2");
    assertEquals(400, request(o -> o.attr("device", TallygateFilter.header("X-Device")), devices, (r, w) -> {
      throw new AssertionError("it was let in");
    }).getStatus());

    request(o -> o, new MockHttpServletRequest("GET", "/a"), (r, w) -> {});
    assertEquals(List.of("/v1/check {\"api\":\"get.a\"}"), asked); // there may be one limit for all
    sent.only();

    request(o -> o.skip(r -> true), by("42", "GET", "/a"), (r, w) -> {});
    assertEquals(1, asked.size());
    sent.only();
  }

  @Test
  void moreNotesThanAnEventHasRoomForAreLeftOut() throws Exception {
    assertThrows(IllegalArgumentException.class, () -> new TallygateFilter.Options().attr("status", r -> 1));
    request(o -> o, by("42", "GET", "/a"), (request, response) -> {
      for (int i = 0; i < 32; i++) {
        Tallygate.note(request).attr("a" + i, i);
      }
    });
    assertTrue(sent.only().contains("\"a29\":29}"));
  }

  @Test
  void aUidIsMissedBesideAnAddress() throws Exception {
    List<String> lines = new CopyOnWriteArrayList<>();
    Logger logger = Logger.getLogger("tallygate");
    Handler keeps = new Handler() {
      @Override
      public void publish(LogRecord line) {
        lines.add(line.getMessage());
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    };
    logger.addHandler(keeps);
    try {
      for (int users : List.of(0, 1)) {
        lines.clear();
        TallygateFilter filter = new TallygateFilter(new TallygateFilter.Options().client(client).ip(r -> r.getRemoteAddr()).uid(TallygateFilter.header("X-User")));
        for (int i = 0; i < 30; i++) {
          MockHttpServletRequest request = i < users ? by("42", "GET", "/") : new MockHttpServletRequest("GET", "/");
          filter.doFilter(request, new MockHttpServletResponse(), (r, w) -> {});
        }
        assertEquals(1 - users, lines.stream().filter(l -> l.contains("none of the first 20 requests had a uid")).count(), lines.toString());
        assertEquals(30 - users, filter.unnamed());
      }
    } finally {
      logger.removeHandler(keeps);
    }
  }
}
