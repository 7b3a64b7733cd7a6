import { dimensions } from './event.js';

const [slots, every, apart] = [256, 5000, 1000]; // ms between two events of one caller and API, and of others that share a slot

// Denials chooses which denied requests a middleware emits events of. Rules do not count these, but they tell the rules
// which limit the caller has now. What says something new is emitted at once, what repeats it every five seconds, and no
// more than 256 a second.
export class Denials {
  #slots = new Array(slots);

  constructor(now = () => performance.now()) { this.now = now; }

  // emits reports whether the denial of a request is emitted. who is what was asked for it: uid, ip, attrs.
  emits(api, who) {
    const { uid, ip, attrs = {} } = dimensions(who);
    const said = JSON.stringify([api, uid, ip, Object.entries(attrs).sort(([a], [b]) => (a < b ? -1 : 1))]);
    let slot = 0;
    for (const byte of Buffer.from(said)) slot = (slot * 31 + byte) % slots;
    const [last, now] = [this.#slots[slot], this.now()];
    if (last && now - last.at < (last.said === said ? every : apart)) return false;
    this.#slots[slot] = { said, at: now };
    return true;
  }
}
