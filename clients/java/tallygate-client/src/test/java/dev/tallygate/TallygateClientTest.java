package dev.tallygate;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import dev.tallygate.TallygateClient.Fail;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class TallygateClientTest {
  private final List<String> asked = new CopyOnWriteArrayList<>(); // path, credential and body
  private volatile int status = 200;
  private volatile String answer = "{}";
  private volatile CountDownLatch silent = new CountDownLatch(0); // the server answers when this is down
  private HttpServer server;
  private String url;

  TallygateClientTest() throws IOException {
    start(0);
  }

  private void start(int port) throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
    server.setExecutor(Executors.newCachedThreadPool(r -> {
      Thread t = new Thread(r);
      t.setDaemon(true);
      return t;
    }));
    server.createContext("/", exchange -> {
      String body = new String(exchange.getRequestBody().readAllBytes(), UTF_8);
      if (!exchange.getRequestURI().getPath().equals("/readyz")) {
        asked.add(exchange.getRequestURI().getPath() + " " + exchange.getRequestHeaders().getFirst("Authorization") + " " + body);
        try {
          silent.await();
        } catch (InterruptedException e) {
          return;
        }
      }
      byte[] out = answer.getBytes(UTF_8);
      exchange.sendResponseHeaders(status, out.length);
      exchange.getResponseBody().write(out);
      exchange.close();
    });
    server.start();
    url = "http://127.0.0.1:" + server.getAddress().getPort();
  }

  @AfterEach
  void stop() {
    silent.countDown();
    server.stop(0);
  }

  private TallygateClient.Builder patient() {
    return TallygateClient.at(url + "/").timeout(Duration.ofSeconds(20));
  }

  @Test
  void aDenialSaysWhatCallersAreTold() {
    answer = """
        {"allowed":false,"action":"block","rule":"search-combined","public":"sear\\"ches","until":"2026-11-21T14:44:18.24Z",
         "retry_after":29,"verdicts":[{"rule":"search-combined","count":6,"limit":5.5}],"staleness":"849ms"}""";
    Decision d = patient().build().check("search.query", Caller.of("42").ip("::ffff:192.0.2.1").attr("plan", "pro"));
    assertEquals(List.of("/v1/check null {\"api\":\"search.query\",\"uid\":\"42\",\"ip\":\"192.0.2.1\",\"attrs\":{\"plan\":\"pro\"}}"), asked);
    assertFalse(d.allowed());
    assertEquals("search-combined", d.rule());
    assertTrue(d.problem().contains("\"until\":\"2026-11-21T14:44:18.24Z\""), d.problem());
    assertEquals(Instant.parse("2026-11-21T14:44:18.24Z"), d.until());
    assertEquals(429, d.status());
    assertEquals(Map.of("Cache-Control", "no-store", "Content-Type", "application/problem+json", "Retry-After", "29",
        "RateLimit", "\"sear\\\"ches\";r=0;t=29", "RateLimit-Policy", "\"sear\\\"ches\";q=5"), d.headers());
    Map<?, ?> body = (Map<?, ?>) Json.read(d.problem());
    assertEquals("The limit of \"sear\"ches\" was exceeded; try again in 29 s.", body.get("detail"));
    assertEquals(List.of("sear\"ches"), body.get("violated-policies"));
    assertFalse(d.problem().contains("search-combined")); // the rule's own name is nobody's business
  }

  @Test
  void whatIsStaleAndClosedIsUnavailable() {
    answer = "{\"allowed\":false,\"in_doubt\":true,\"verdicts\":[],\"staleness\":\"2m\"}";
    Decision d = patient().build().check("a", Caller.of("42"));
    assertEquals(503, d.status());
    assertEquals(Map.of("Cache-Control", "no-store", "Content-Type", "application/problem+json"), d.headers());
  }

  @Test
  void aServerThatIsSilentCostsItsTimeoutAndThenNothing() throws InterruptedException {
    answer = "{\"allowed\":true,\"verdicts\":[]}";
    TallygateClient client = TallygateClient.at(url).timeout(Duration.ofMillis(200)).build();
    assertTrue(patient().build().check("a", Caller.of("1")).allowed());
    silent = new CountDownLatch(1);
    for (int i = 0; i < 5; i++) {
      Decision d = client.check("a", Caller.of("1"), i % 2 == 0 ? Fail.OPEN : Fail.CLOSED);
      assertEquals(i % 2 == 0, d.allowed());
      assertTrue(d.inDoubt());
    }
    int before = asked.size();
    long began = System.nanoTime();
    for (int i = 0; i < 1000; i++) {
      assertTrue(client.check("a", Caller.of("1")).inDoubt());
    }
    assertTrue(System.nanoTime() - began < Duration.ofSeconds(10).toNanos());
    assertTrue(asked.size() - before < 20, "it is asked once a second at most");

    silent.countDown();
    while (client.check("a", Caller.of("1")).inDoubt()) {
      Thread.sleep(10);
    }
    assertFalse(client.check("a", Caller.of("1")).inDoubt());
  }

  @Test
  void aServerThatIsAwayOpensChecksAndClosesPermits() {
    TallygateClient client = patient().build();
    server.stop(0);
    assertTrue(client.check("a", Caller.of("1")).allowed());
    Permit permit = client.admit("a", Caller.of("1"));
    assertFalse(permit.admitted());
    assertEquals("1", permit.decision().headers().get("Retry-After"));
    assertEquals(503, permit.decision().status());
    assertTrue(patient().fail(Fail.OPEN).build().admit("a", Caller.of("1")).admitted());
    assertFalse(patient().fail(Fail.CLOSED).build().check("a", Caller.of("1")).allowed());
  }

  @Test
  void aServerThatRefusesIsNoReasonToThrow() {
    status = 401;
    answer = "{\"detail\":\"this needs a credential\"}";
    TallygateClient client = patient().build();
    for (int i = 0; i < 20; i++) { // a question that is refused keeps nobody from asking others
      assertTrue(client.admit("a", Caller.of("1")).decision().reason().contains("credential"));
    }
    for (String nonsense : List.of("", "[]", "{\"allowed\":1}", "{}", "<html>")) {
      status = 200;
      answer = nonsense;
      assertTrue(patient().build().check("a", Caller.of("1")).inDoubt(), nonsense);
    }
  }

  /** Whoever finds out what makes a question wrong would else be let in, and after five of them everybody. */
  @Test
  void whatIsRefusedIsDeniedWhateverFailSays() {
    TallygateClient client = patient().fail(Fail.OPEN).build();
    int n = 0;
    for (int code : List.of(400, 401, 403, 404, 405, 408, 413, 414, 422, 429, 431, 451, 499)) {
      status = code;
      for (String text : List.of("{\"detail\":\"no\"}", "<html>")) {
        answer = text;
        for (Decision d : List.of(client.check("a", Caller.of("1")), client.admit("a", Caller.of("1")).decision())) {
          assertFalse(d.allowed());
          assertEquals(503, d.status());
          assertTrue(d.reason().contains(code + ": " + text), d.reason());
          n++;
        }
      }
    }
    assertEquals(new TallygateClient.Stats(n, 0, 0, n), client.stats());
  }

  @Test
  void aRefusalWithoutAnEndIsOne() throws IOException {
    for (String rest : List.of("Connection: close\r\n\r\n431 ", "Content-Length: 99\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\nxyz\r\n")) {
      try (ServerSocket raw = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
        Thread serves = new Thread(() -> {
          List<Socket> open = new ArrayList<>(); // they are never closed
          try {
            while (open.add(raw.accept())) {
              Socket socket = open.get(open.size() - 1);
              socket.getInputStream().read(new byte[1 << 16]);
              socket.getOutputStream().write(("HTTP/1.1 431 Too Large\r\n" + rest).getBytes(UTF_8));
            }
          } catch (IOException over) {
            open.clear();
          }
        });
        serves.setDaemon(true);
        serves.start();
        TallygateClient client = TallygateClient.at("http://127.0.0.1:" + raw.getLocalPort()).timeout(Duration.ofSeconds(4)).build();
        assertFalse(client.check("a", Caller.of("1"), Fail.OPEN).allowed(), rest);
        assertEquals(new TallygateClient.Stats(1, 0, 0, 1), client.stats(), rest);
      }
    }
  }

  @Test
  void usersAndIdsMayBeNumbers() {
    Map<?, ?> event = (Map<?, ?>) Json.read(Event.of("a").uid(42).id(Long.MAX_VALUE).cost(-1).refunds(17).json());
    assertEquals(List.of("42", "9223372036854775807", "17"), List.of(event.get("uid"), event.get("id"), event.get("refunds")));
    assertEquals("7", Caller.of(7).uid);
  }

  @Test
  void aPermitGoesIntoItsEventAndEndsOnce() {
    answer = """
        {"admitted":true,"permit":"p-4","permit_at":{"uid=42":"2026-11-23T06:52:08.114203Z"},"id":"p-4","token":"1.AAE","limited":false,
         "limit":3,"remaining":2,"reset":3600,"rule":"sms-daily","public":"messages"}""";
    TallygateClient client = patient().token(() -> "secret").build();
    Permit permit = client.admit("sms.send", Caller.of("42"), 2, "action-1", Fail.CLOSED);
    assertTrue(permit.admitted());
    Map<?, ?> event = (Map<?, ?>) Json.read(Event.of("sms.send").uid("42").permit(permit).json());
    assertEquals("p-4", event.get("permit"));
    assertEquals(Map.of("uid=42", "2026-11-23T06:52:08.114203Z"), event.get("permit_at"));
    assertTrue(permit.done("success").join());
    assertTrue(permit.cancel().join());
    permit.close();
    assertEquals(List.of("/v1/admit Bearer secret {\"api\":\"sms.send\",\"uid\":\"42\",\"cost\":2,\"id\":\"action-1\"}",
        "/v1/done Bearer secret {\"token\":\"1.AAE\",\"outcome\":\"success\"}"), asked);

    asked.clear();
    try (Permit left = client.admit("sms.send", Caller.of("42"))) {
      assertTrue(left.admitted());
    }
    client.admit("sms.send", Caller.of("42")).cancel().join();
    assertTrue(asked.contains("/v1/cancel Bearer secret {\"token\":\"1.AAE\"}"));
  }

  @Test
  void mistakesAreTold() {
    TallygateClient client = patient().build();
    assertThrows(IllegalArgumentException.class, () -> Caller.of(""));
    assertThrows(IllegalArgumentException.class, () -> client.check("", Caller.of("1")));
    assertThrows(IllegalArgumentException.class, () -> TallygateClient.at("localhost:8080"));
    assertThrows(IllegalArgumentException.class, () -> TallygateClient.at(url).timeout(Duration.ZERO));
    assertNull(Decision.ALLOWED.until());
  }
}
