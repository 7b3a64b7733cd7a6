package dev.tallygate.servlet;

import dev.tallygate.Event;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * What a handler adds to its request's event. Of two notes that say the same, the later one holds. What no
 * event can have is an IllegalArgumentException; a note after the response does nothing.
 */
public final class Note {
  private final Event tried = Event.of("note"); // refuses at once what no event can have
  private List<Consumer<Event>> notes = new ArrayList<>(); // null: the event is sent

  /** Notes an attribute: a text, a number or a boolean. */
  public Note attr(String name, Object value) {
    return add(e -> e.attr(name, value));
  }

  /** Notes how much the event counts for. A permit is for the cost 1: this may be less then, not more. */
  public Note cost(Number cost) {
    if (cost.doubleValue() < 0) {
      throw new IllegalArgumentException("a cost below zero takes another event back: emit it yourself");
    }
    return add(e -> e.cost(cost));
  }

  /** Notes how the action ended, where the response's status does not say it. */
  public Note outcome(String outcome) {
    return add(e -> e.outcome(outcome));
  }

  /** Notes the event's id: the same one twice counts once. */
  public Note id(String id) {
    return add(e -> e.id(id));
  }

  /** Notes the event's id, by a number. */
  public Note id(long id) {
    return id(Long.toString(id));
  }

  private synchronized Note add(Consumer<Event> note) {
    note.accept(tried);
    if (notes != null) {
      notes.add(note);
    }
    return this;
  }

  synchronized void apply(Event event) {
    for (Consumer<Event> note : notes) {
      try {
        note.accept(event);
      } catch (IllegalArgumentException e) {
        continue; // it is an attribute too many together with those that the event has already
      }
    }
    notes = null;
  }
}
