package shop;

import dev.tallygate.Caller;
import dev.tallygate.Decision;
import dev.tallygate.TallygateClient;
import dev.tallygate.spring.TallygateCustomizer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Profile;

/** What a shop may add to the filter, and a check in code. The profile callers turns it on. */
@Configuration
@Profile("callers")
class Callers {
  /** Says who asks, where a header or a login does not. */
  @Bean
  TallygateCustomizer callers() {
    return options -> options
        .attr("tenant", request -> request.getServerName())
        .denied((request, response, decision) -> response.sendError(decision.status()));
  }

  static String order(TallygateClient client, String user, String address) {
    Decision decision = client.check("order.create", Caller.of(user).ip(address).attr("plan", "pro"));
    if (!decision.allowed()) {
      return "try again in " + decision.retryAfter() + " s";
    }
    return "ordered";
  }
}
