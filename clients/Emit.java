// An event from Java, with Kafka's own client:
//
//   java -cp "$(scripts/kafka.sh install)/*" clients/Emit.java BROKERS TOPIC COUNT UID...
//
// The record's key is the uid: Java's default partitioner (murmur2) then puts it where the
// aggregator expects it. Without a uid leave the key out.

import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class Emit {
  public static void main(String[] args) throws Exception {
    String brokers = args[0], topic = args[1];
    int count = Integer.parseInt(args[2]);
    List<String> uids = List.of(args).subList(3, args.length);

    Properties config = new Properties();
    config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
    config.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
    config.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
    config.put(ProducerConfig.ACKS_CONFIG, "all"); // the default, as is an idempotent producer

    List<Future<RecordMetadata>> sent = new ArrayList<>();
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
      for (String uid : uids) {
        for (int i = 0; i < count; i++) {
          sent.add(producer.send(new ProducerRecord<>(topic, uid, event(uid))));
        }
      }
    }
    for (Future<RecordMetadata> record : sent) {
      record.get(); // throws when the event was not written
    }
    System.out.println("wrote " + sent.size() + " events");
  }

  // event is one action as JSON. The id identifies it: sent twice, it counts once. (The
  // uid of a real application goes through a JSON library.)
  static String event(String uid) {
    return """
        {"id": "%s", "time": "%s", "uid": "%s", "api": "search.query", "outcome": "success"}"""
        .formatted(UUID.randomUUID(), Instant.now(), uid);
  }
}
