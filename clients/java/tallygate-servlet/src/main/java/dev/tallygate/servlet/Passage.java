package dev.tallygate.servlet;

import static java.lang.System.Logger.Level.WARNING;

import dev.tallygate.Emitter;
import dev.tallygate.Event;
import dev.tallygate.Names;
import dev.tallygate.Permit;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletResponse;
import java.math.BigDecimal;
import java.util.concurrent.TimeUnit;

/** A request between its check and its event. */
final class Passage implements AsyncListener {
  static final String STATUS = "status";
  static final String LATENCY = "latency_ms";
  private static final System.Logger LOG = System.getLogger("tallygate");

  final Note note = new Note();
  final Permit permit; // null is none
  private final Emitter emitter; // null is none
  private final Event event;
  private final HttpServletResponse response;
  private final long began = System.nanoTime();
  boolean failed; // the handler has thrown
  private boolean ended;

  Passage(Emitter emitter, Permit permit, Event event, HttpServletResponse response) {
    this.emitter = emitter;
    this.permit = permit;
    this.event = event;
    this.response = response;
  }

  /** Emits the event, if there is an emitter, and ends the permit. */
  synchronized void end() {
    // The container answers with 500 when a handler has thrown and nothing is sent yet.
    int status = failed && !response.isCommitted() ? 500 : response.getStatus();
    end(status, failed ? "failure" : Names.outcome(status));
  }

  synchronized void end(int status, String outcome) {
    if (ended) {
      return;
    }
    ended = true;
    try {
      long micros = TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - began);
      event.outcome(outcome).attr(STATUS, status).attr(LATENCY, BigDecimal.valueOf(micros, 3));
      note.apply(event);
      if (permit != null) {
        event.permit(permit);
      }
      if (emitter != null) {
        emitter.emit(event);
      }
    } catch (IllegalArgumentException e) { // the response must not suffer
      LOG.log(WARNING, "a request has no event: " + e.getMessage());
    }
    if (permit != null) {
      permit.done(event.outcome());
    }
  }

  @Override
  public void onComplete(AsyncEvent e) {
    end();
  }

  @Override
  public void onError(AsyncEvent e) {
    failed = true;
  }

  @Override
  public void onTimeout(AsyncEvent e) {} // what answers then, sets the status

  @Override
  public void onStartAsync(AsyncEvent e) { // once more: the listeners of the time before are gone
    e.getAsyncContext().addListener(this);
  }
}
