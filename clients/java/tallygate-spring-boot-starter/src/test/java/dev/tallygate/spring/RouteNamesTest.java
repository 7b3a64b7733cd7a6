package dev.tallygate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Collections;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.mock.web.MockHttpServletRequest;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.function.RouterFunction;
import org.springframework.web.servlet.function.RouterFunctions;
import org.springframework.web.servlet.function.ServerResponse;

/** The name of a request is that of the route that really takes it. */
@SpringBootTest(webEnvironment = SpringBootTest.WebEnvironment.MOCK)
class RouteNamesTest {
  @SpringBootConfiguration
  @EnableAutoConfiguration
  @RestController
  static class Application {
    @GetMapping("/orders/{id}")
    String order() {
      return "";
    }

    @PostMapping(path = "/orders", consumes = "application/json")
    String create() {
      return "";
    }

    @GetMapping("/files/{*path}")
    String files() {
      return "";
    }

    @Bean
    RouterFunction<ServerResponse> routes() {
      return RouterFunctions.route().GET("/routed/{x}", r -> ServerResponse.ok().build()).build();
    }
  }

  @Autowired private ApplicationContext context;

  private String name(String method, String path, String type) {
    MockHttpServletRequest request = new MockHttpServletRequest(method, path);
    request.setContentType(type);
    String name = new RouteNames(context).of(request);
    assertThat(Collections.list(request.getAttributeNames())).as("asking leaves no trace").isEmpty();
    return name;
  }

  @Test
  void names() {
    String[][] rows = {{"GET", "/orders/17", "get.orders.id"}, {"HEAD", "/orders/17", "get.orders.id"}, {"GET", "/orders/%31", "get.orders.id"},
      {"POST", "/orders", "post.orders"}, {"DELETE", "/orders/17", "unrouted"}, {"GET", "/wp-admin", "unrouted"},
      {"GET", "/files/a/b", "get.files.path"}, {"GET", "/routed/17", "get.routed.x"}};
    for (String[] row : rows) {
      assertThat(name(row[0], row[1], "application/json")).as(row[1]).isEqualTo(row[2]);
    }
    assertThat(name("POST", "/orders", "text/plain")).isEqualTo("unrouted");
  }
}
