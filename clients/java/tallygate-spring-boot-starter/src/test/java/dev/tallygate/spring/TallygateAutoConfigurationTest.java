package dev.tallygate.spring;

import static org.assertj.core.api.Assertions.assertThat;

import dev.tallygate.Emitter;
import dev.tallygate.TallygateClient;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.boot.test.context.runner.WebApplicationContextRunner;

class TallygateAutoConfigurationTest {
  private static final AutoConfigurations OURS = AutoConfigurations.of(TallygateAutoConfiguration.class);

  @Test
  void whatIsSetIsThere() {
    new WebApplicationContextRunner().withConfiguration(OURS).run(c -> {
      assertThat(c).doesNotHaveBean(Emitter.class).doesNotHaveBean(TallygateClient.class).hasBean("tallygateFilter");
    });
    new WebApplicationContextRunner().withConfiguration(OURS)
        .withPropertyValues("tallygate.url=http://127.0.0.1:1", "tallygate.kafka.brokers=127.0.0.1:1", "tallygate.fail=closed",
            "tallygate.kafka.properties.retry.backoff.ms=200", "tallygate.filter=false")
        .run(c -> assertThat(c).hasSingleBean(Emitter.class).hasSingleBean(TallygateClient.class).doesNotHaveBean("tallygateFilter"));
    new ApplicationContextRunner().withConfiguration(OURS).withPropertyValues("tallygate.url=http://127.0.0.1:1")
        .run(c -> assertThat(c).hasSingleBean(TallygateClient.class).doesNotHaveBean("tallygateFilter"));
  }

  @Test
  void mistakesEndTheStart() {
    new WebApplicationContextRunner().withConfiguration(OURS).withPropertyValues("tallygate.url=localhost:8080")
        .run(c -> assertThat(c).getFailure().rootCause().hasMessageContaining("want one such as http://127.0.0.1:8080"));
    new WebApplicationContextRunner().withConfiguration(OURS)
        .withPropertyValues("tallygate.kafka.brokers=b:1", "tallygate.kafka.properties.security.protocol=none")
        .run(c -> assertThat(c).getFailure().rootCause().hasMessageContaining("security.protocol"));
    for (String stars : List.of("tallygate.admit=sms.*.send", "tallygate.skip=/*/healthz")) { // would never be found
      new WebApplicationContextRunner().withConfiguration(OURS).withPropertyValues(stars)
          .run(c -> assertThat(c).getFailure().rootCause().hasMessageContaining(stars.substring(0, stars.indexOf('='))));
    }
    for (String slip : List.of("tallygate.brokers=b:1", "tallygate.kafka.broker=b:1", "tallygate.uid-heder=X-User")) { // would be passed over in silence
      new WebApplicationContextRunner().withConfiguration(OURS).withPropertyValues("tallygate.url=http://127.0.0.1:1", slip)
          .run(c -> assertThat(c).getFailure().rootCause().hasMessageContaining(slip.substring(0, slip.indexOf('='))));
    }
  }

  @Test
  void starsStandForAllBelow() {
    var skip = TallygateAutoConfiguration.oneOf(List.of("/actuator/**", "/healthz"));
    assertThat(List.of("/actuator", "/actuator/health", "/healthz")).allMatch(skip);
    assertThat(List.of("/actuators", "/healthz/x", "/")).noneMatch(skip);
    assertThat(List.of("sms.send", "a.b")).anyMatch(TallygateAutoConfiguration.oneOf(List.of("sms.*"))).hasSize(2);
    assertThat(TallygateAutoConfiguration.oneOf(List.of()).test("a")).isFalse();
  }
}
