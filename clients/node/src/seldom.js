import { wrong } from './event.js';

const every = 60_000; // ms

// logTo is a logger that never throws: what it is told is told where nobody could catch it.
export function logTo(logger = console) {
  if (typeof logger?.info !== 'function' || typeof logger.error !== 'function') throw wrong('logger has the functions info and error, as console has');
  const quietly = (level) => (text) => {
    try {
      logger[level]('tallygate: ' + text);
    } catch {
      // There is nobody else to tell.
    }
  };
  return { info: quietly('info'), error: quietly('error') };
}

// Seldom is a line of a log that is told the first time, and then once a minute with how often it was due.
// It is told behind whatever runs now: a log may be slow.
export class Seldom {
  #logger;
  #due = 0;
  #timer;
  #text;
  #said = -Infinity;

  constructor(logger) {
    this.#logger = logger;
  }

  add(n) {
    this.#due += n;
    return this;
  }

  // say has the line told, now or later. text makes it of how often it was due.
  say(text) {
    this.#text = text;
    this.#timer ??= setTimeout(() => this.end(), Math.max(0, this.#said + every - performance.now())).unref();
  }

  // sayNow tells it unless it was told within the last minute, and returns whether it did.
  sayNow(text) {
    if (performance.now() - this.#said < every) return false;
    this.#text = text;
    this.end();
    return true;
  }

  // end tells at once what was not told yet.
  end() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#due === 0) return;
    const n = this.#due;
    this.#due = 0;
    this.#said = performance.now();
    this.#logger.error(this.#text(n));
  }
}
