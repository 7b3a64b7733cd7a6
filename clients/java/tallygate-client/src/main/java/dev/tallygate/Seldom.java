package dev.tallygate;

import java.util.concurrent.TimeUnit;

/** Says something in the log at once, and then at most once a minute: with how often it was left out. */
final class Seldom {
  private static final System.Logger LOG = System.getLogger("tallygate");
  private static final long EVERY = TimeUnit.MINUTES.toNanos(1);

  private long said;
  private long leftOut = -1; // nothing was said yet

  synchronized void say(System.Logger.Level level, String text) {
    long now = System.nanoTime();
    if (leftOut >= 0 && now - said < EVERY) {
      leftOut++;
      return;
    }
    LOG.log(level, leftOut > 0 ? text + " (left out since the last line: " + leftOut + ")" : text);
    said = now;
    leftOut = 0;
  }
}
