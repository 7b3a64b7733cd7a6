// Answers to checks, and what a caller is told of them: the same as by Go's middleware.

const maxInteger = 999_999_999_999_999; // of a structured field, RFC 9651
const whole = (n) => Math.min(Math.max(Math.floor(n), 0), maxInteger);

export class Decision {
  #until;

  // given is the decision server's answer, or what stands for one that did not come.
  constructor(given) {
    this.allowed = given.allowed;
    this.action = given.action ?? null;
    this.rule = given.rule ?? null;
    this.public = given.public ?? null;
    this.limit = given.limit ?? null;
    this.remaining = given.remaining ?? null;
    this.reset = given.reset ?? null;
    this.retryAfter = given.retry_after ?? null;
    this.#until = given.until;
    this.until = given.until === undefined ? null : new Date(given.until);
    // Denied, and nobody knows whether a limit is reached: the fault is ours, and not the caller's.
    this.unavailable = !given.allowed && given.in_doubt === true;
    this.reason = given.reason ?? null; // why nobody knows
  }

  // status is that of an answer to a denied request.
  get status() {
    return this.unavailable ? 503 : 429;
  }

  // headers are the fields of an answer: what is left of a limit, or when to come back.
  headers() {
    const name = quoted(this.public ?? 'limit');
    const out = {};
    if (!this.allowed) out['Cache-Control'] = 'no-store';
    if (!this.allowed && this.retryAfter !== null) out['Retry-After'] = String(this.retryAfter);
    if (this.unavailable) return out;
    if (!this.allowed) {
      out.RateLimit = `${name};r=0;t=${whole(this.retryAfter)}`;
      if (whole(this.limit) > 0) out['RateLimit-Policy'] = `${name};q=${whole(this.limit)}`; // a command has none
    } else if (this.remaining !== null && this.limit > 0) {
      out.RateLimit = `${name};r=${whole(this.remaining)}` + (this.reset > 0 ? `;t=${whole(this.reset)}` : '');
      out['RateLimit-Policy'] = `${name};q=${whole(this.limit)}`;
    }
    return out;
  }

  // problem is the body of an answer to a denied request: application/problem+json.
  problem() {
    const { status } = this;
    if (this.unavailable) {
      return { type: 'about:blank', title: 'Service Unavailable', status, detail: 'It is not known at the moment whether this is allowed.' };
    }
    const what = this.public === null ? 'A limit' : `The limit of ${JSON.stringify(this.public)}`;
    const when = this.retryAfter === null ? '' : `; try again in ${this.retryAfter} s`;
    return {
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Request cannot be satisfied as assigned quota has been exceeded',
      status,
      detail: `${what} was exceeded${when}.`,
      rule: this.public ?? undefined,
      action: this.action ?? undefined,
      until: this.#until,
      retry_after: this.retryAfter ?? undefined,
      'violated-policies': [this.public ?? 'limit'],
    };
  }
}

// Permit is the answer to admit. Its permit and permit_at belong into the action's event; then done
// ends it, or cancel if nothing was done. The first call counts.
export class Permit extends Decision {
  #end;
  #ended;

  constructor(given, end) {
    super({ ...given, allowed: given.admitted });
    this.permit = given.permit;
    this.permit_at = given.permit_at;
    this.#end = given.token === undefined ? () => Promise.resolve(true) : (path, more) => end(path, { token: given.token, ...more });
  }

  // done says that the action has ended. It never rejects: false is for a server that is not reached.
  done(outcome) {
    return (this.#ended ??= this.#end('/v1/done', outcome ? { outcome } : {}));
  }

  // cancel says that the action did not happen: emit no event.
  cancel() {
    return (this.#ended ??= this.#end('/v1/cancel', {}));
  }
}

// quoted is a string of a structured field.
function quoted(text) {
  return `"${text.replace(/[^ -~]/gu, '?').replace(/["\\]/g, '\\$&')}"`;
}
