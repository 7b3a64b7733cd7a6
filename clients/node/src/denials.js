import { dimensions } from './event.js';

const [places, every, apart] = [256, 5000, 1000]; // ms between two events of one caller and API, and of two that take one place

// Denials chooses which denied requests a middleware emits events of. Rules do not count these, but they tell the rules
// which limit the caller has now. What says something new is emitted at once, what repeats it every five seconds, and no
// more than 256 a second.
export class Denials {
  #said = new Map(); // when each was emitted last, the oldest first

  constructor(now = () => performance.now()) { this.now = now; }

  // emits reports whether the denial of a request is emitted. who is what was asked for it: uid, ip, attrs.
  emits(api, who) {
    const { uid, ip, attrs = {} } = dimensions(who);
    const said = JSON.stringify([api, uid, ip, Object.entries(attrs).sort(([a], [b]) => (a < b ? -1 : 1))]);
    const [known, now] = [this.#said.has(said), this.now()];
    const out = known || this.#said.size < places ? said : this.#said.keys().next().value; // makes room
    if (now - (this.#said.get(out) ?? -Infinity) < (known ? every : apart)) return false;
    this.#said.delete(out);
    this.#said.set(said, now);
    return true;
  }
}
