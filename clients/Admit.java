// A strict limit from Java: a permit before the action, and an event behind it.
//
//   java -cp "$(scripts/kafka.sh install)/*" clients/Admit.java http://127.0.0.1:8080 BROKERS TOPIC COUNT UID
//
// tries to send COUNT messages of one user. The decision server (`enforcer`) grants permits by the
// rules, never more than a strict limit allows, however many programs ask at once:
//
//   - {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: day, strict: true}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;

public class Admit {
  static final ObjectMapper JSON = new ObjectMapper();
  static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();

  public static void main(String[] args) throws Exception {
    String server = args[0], topic = args[2], uid = args[4];
    Properties config = new Properties();
    config.put("bootstrap.servers", args[1]);
    config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
      for (int number = 1; number <= Integer.parseInt(args[3]); number++) {
        String action = UUID.randomUUID().toString();
        JsonNode answer = admit(server, action, uid);
        if (!answer.path("admitted").asBoolean()) {
          continue; // retry_after, where it is known, says in how many seconds to come back
        }
        if (!sendMessage(number)) { // the permit is free again, and there is no event
          if (answer.has("token")) {
            post(server + "/v1/cancel", JSON.createObjectNode().set("token", answer.get("token")));
          }
          continue;
        }
        // The event counts, and settles the permit. Without it the permit counts as lost after its
        // `hold`, so emit one also for an action that failed half-way (outcome: failure).
        ObjectNode event = JSON.createObjectNode().put("id", action).put("time", Instant.now().toString())
            .put("uid", uid).put("api", "sms.send").put("outcome", "success");
        for (String field : List.of("permit", "permit_at")) {
          if (answer.has(field)) {
            event.set(field, answer.get(field)); // unchanged, whatever it is
          }
        }
        sent.add(producer.send(new ProducerRecord<>(topic, uid, event.toString())));
      }
    }
    for (Future<RecordMetadata> record : sent) {
      record.get(); // throws when the event was not written
    }
    System.out.println("done " + sent.size());
  }

  // sendMessage is the action itself. The third one does not happen, to show what to do then.
  static boolean sendMessage(int number) {
    return number != 3;
  }

  // admit asks for a permit. The id names this one action: asked again, it gets the same permit, so
  // that a lost answer costs none.
  static JsonNode admit(String server, String action, String uid) throws Exception {
    ObjectNode wish = JSON.createObjectNode().put("id", action).put("uid", uid).put("api", "sms.send").put("cost", 1);
    for (int i = 0; i < 60; i++) {
      JsonNode answer = post(server + "/v1/admit", wish);
      if (answer.path("admitted").asBoolean() || answer.has("limited") && !answer.path("in_doubt").asBoolean()) {
        return answer;
      }
      Thread.sleep(1000); // nobody knows whether the limit is reached: ask again
    }
    return JSON.createObjectNode();
  }

  // post asks the decision server; nothing comes back while it is away. Beyond loopback it also wants
  // a credential.
  static JsonNode post(String url, JsonNode body) throws Exception {
    HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(5))
        .header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body.toString())).build();
    try {
      HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
      if (response.statusCode() == 200 || response.statusCode() == 503) {
        return JSON.readTree(response.body());
      }
      throw new IllegalStateException(response.statusCode() + " " + response.body()); // a mistake of ours
    } catch (IOException away) {
      return JSON.createObjectNode();
    }
  }
}
