package events;

import dev.tallygate.Emitter;
import dev.tallygate.Event;
import java.time.Duration;
import java.util.List;

/** Events from Java: {@code events.Emit BROKERS TOPIC COUNT UID...} */
public class Emit {
  public static void main(String[] args) {
    int count = Integer.parseInt(args[2]);
    try (Emitter emitter = Emitter.to(args[0]).topic(args[1]).client("shop").start()) {
      for (String uid : List.of(args).subList(3, args.length)) {
        for (int i = 0; i < count; i++) {
          emitter.emit(Event.of("search.query").uid(uid).outcome("success"));
        }
      }
      emitter.close(Duration.ofSeconds(30));
      System.out.println(emitter.stats());
    }
  }
}
