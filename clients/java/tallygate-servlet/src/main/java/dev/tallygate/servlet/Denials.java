package dev.tallygate.servlet;

import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.LongSupplier;

/**
 * Chooses which denied requests the filter emits events of. Rules do not count these, but they tell the rules which
 * limit the caller has now. What says something new is emitted at once, what repeats it every five seconds, and no more
 * than 256 a second.
 */
final class Denials {
  private static final int SLOTS = 256;
  private static final long EVERY = 5_000_000_000L; // between two events of one caller and API
  private static final long APART = 1_000_000_000L; // between two events of others that share a slot

  private final AtomicReferenceArray<Said> slots = new AtomicReferenceArray<>(SLOTS);
  private final LongSupplier nanos;

  Denials(LongSupplier nanos) { this.nanos = nanos; }

  private record Said(Object who, long at) { }

  /** Reports whether the denial of a request is emitted; who is its API and all that is known of its caller. */
  boolean emits(Object who) {
    int slot = Math.floorMod(who.hashCode() * 0x9e3779b9 >>> 16, SLOTS);
    Said last = slots.get(slot);
    long now = nanos.getAsLong();
    if (last != null && now - last.at < (last.who.equals(who) ? EVERY : APART)) {
      return false;
    }
    return slots.compareAndSet(slot, last, new Said(who, now)); // else another one is emitted
  }
}
