package events;

import dev.tallygate.Caller;
import dev.tallygate.Emitter;
import dev.tallygate.Event;
import dev.tallygate.Permit;
import dev.tallygate.TallygateClient;
import java.time.Duration;
import java.util.UUID;

/**
 * A strict limit from Java: a permit before the action, and an event behind it. {@code events.Admit
 * http://127.0.0.1:8080 BROKERS TOPIC COUNT UID} tries to send COUNT messages of one user. However many
 * programs do, no more are sent than the rule allows:
 *
 * <pre>- {name: messages, match: {api: sms.send, outcome: success}, limit: 10, per: day, strict: true}</pre>
 */
public class Admit {
  public static void main(String[] args) throws InterruptedException {
    TallygateClient client = TallygateClient.at(args[0]).timeout(Duration.ofSeconds(5)).build();
    Caller caller = Caller.of(args[4]);
    int done = 0;
    try (Emitter emitter = Emitter.to(args[1]).topic(args[2]).start()) {
      for (int number = 1; number <= Integer.parseInt(args[3]); number++) {
        Permit permit = admit(client, caller);
        if (!permit.admitted()) {
          continue; // permit.decision() says when to come back
        }
        if (!sendMessage(number)) {
          permit.cancel().join(); // nothing was done, and there is no event
          continue;
        }
        // The event counts, and settles the permit. So emit one also for an action that failed.
        emitter.emit(Event.of("sms.send").by(caller).outcome("success").permit(permit));
        permit.done("success");
        done++;
      }
      emitter.close(Duration.ofSeconds(30));
    }
    System.out.println("done " + done);
  }

  /** Asks again while nobody knows whether the limit is reached: with the same id, so for one permit. */
  static Permit admit(TallygateClient client, Caller caller) throws InterruptedException {
    String id = UUID.randomUUID().toString();
    for (int i = 0; ; i++) {
      Permit permit = client.admit("sms.send", caller, 1, id, TallygateClient.Fail.CLOSED);
      if (!permit.decision().inDoubt() || i == 60) {
        return permit;
      }
      Thread.sleep(1000);
    }
  }

  /** The action itself. The third one does not happen, to show what to do then. */
  static boolean sendMessage(int number) {
    return number != 3;
  }
}
