package dev.tallygate.spring;

import dev.tallygate.TallygateClient;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Settings of Tallygate.
 *
 * @param url the decision server, such as http://127.0.0.1:8080; without it nothing is limited
 * @param token the credential for permits, where the decision server wants one
 * @param timeout how long a question takes at most
 * @param fail open or closed: what is answered while the decision server gives no answer. By default checks
 *     are open, permits closed
 * @param filter whether requests are checked and emitted
 * @param order of the filter; that of Spring Security is -100
 * @param uidHeader the header by which your proxy names the user; by default it is who is logged in
 * @param ip whether the client's address is one of the caller's dimensions
 * @param skip paths that are neither checked nor emitted: /healthz, or /internal/** with all below it
 * @param admit APIs for which a permit is asked, since strict rules count them: coupon.redeem, or sms.*
 * @param emitDenied whether what is denied is emitted too, with the outcome limited
 * @param kafka where events go
 */
@ConfigurationProperties(prefix = "tallygate", ignoreUnknownFields = false)
public record TallygateProperties(String url, String token, @DefaultValue("50ms") Duration timeout, TallygateClient.Fail fail,
    @DefaultValue("true") boolean filter, @DefaultValue("0") int order, String uidHeader, @DefaultValue("false") boolean ip,
    @DefaultValue("/actuator/**") List<String> skip, @DefaultValue List<String> admit,
    @DefaultValue("false") boolean emitDenied, @DefaultValue Kafka kafka) {

  /**
   * Where events go.
   *
   * @param brokers host:port, with commas between several; without them there are no events
   * @param topic the topic of events
   * @param client the name of this application in Kafka; by default spring.application.name
   * @param maxEvents how many events may wait for Kafka; more are dropped
   * @param properties options of Kafka's producer, such as security.protocol
   */
  public record Kafka(String brokers, @DefaultValue("tallygate.events") String topic, String client,
      @DefaultValue("100000") int maxEvents, @DefaultValue Map<String, String> properties) {}
}
