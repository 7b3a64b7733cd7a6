package dev.tallygate.servlet;

import dev.tallygate.Permit;
import jakarta.servlet.ServletRequest;

/** What handlers behind a {@link TallygateFilter} use. */
public final class Tallygate {
  static final String PASSAGE = Tallygate.class.getName();

  private Tallygate() {}

  /** Notes something for the event of this request. Where no filter emits it, that does nothing. */
  public static Note note(ServletRequest request) {
    return request.getAttribute(PASSAGE) instanceof Passage p ? p.note : new Note();
  }

  /** The permit of this request, for handlers that emit their own event; null is none. */
  public static Permit permit(ServletRequest request) {
    return request.getAttribute(PASSAGE) instanceof Passage p ? p.permit : null;
  }
}
