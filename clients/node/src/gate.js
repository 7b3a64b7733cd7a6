// What middleware of any framework shares: a Gate decides on requests, and emits their events.
import { AsyncLocalStorage } from 'node:async_hooks';
import { attrsOf, costOf, idOf, known, maxAttrs, string, wrong } from './event.js';
import { Denials } from './denials.js';
import { statusOutcome } from './names.js';
import { Seldom, logTo } from './seldom.js';

const options = ['client', 'emitter', 'uid', 'ip', 'attrs', 'api', 'skip', 'admit', 'wait', 'fail', 'emitDenied', 'event', 'denied', 'logger'];
const own = ['status', 'latency_ms']; // attributes that a gate adds itself
const watched = 20; // requests

const ambiguous = Symbol('ambiguous');
const current = new AsyncLocalStorage();
const byRequest = new WeakMap();

// header returns a function for uid and attrs: the value of a header that your proxy sets, and removes from
// what clients send. A request with several values is refused: a client may have added one.
export function header(name) {
  const key = name.toLowerCase();
  return (request) => {
    const values = (request.raw ?? request).headersDistinct[key] ?? [];
    // node:http gives bytes as characters.
    return values.length > 1 ? ambiguous : Buffer.from(values[0] ?? '', 'latin1').toString('utf8');
  };
}

// note adds to the event that the middleware emits for the current request: attrs, cost, outcome, id.
// Outside of a request it does nothing. request is for code that the request's context does not reach.
export function note(what, request) {
  known(what, ['attrs', 'cost', 'outcome', 'id'], 'a note');
  const { attrs = {}, cost, outcome } = what;
  if (cost !== undefined && costOf(cost) < 0) throw wrong('a cost that is noted is not negative');
  if (outcome !== undefined) string('outcome', outcome);
  const id = what.id === undefined ? undefined : idOf('id', what.id);
  const noted = attrsOf(attrs);
  const passage = request ? byRequest.get(request.raw ?? request) : current.getStore();
  if (!passage) return;
  Object.assign(passage.notes, JSON.parse(JSON.stringify({ cost, outcome, id }))); // without what is undefined
  Object.assign(passage.attrs, noted);
}

// inside runs what handles a request, so that its notes find it.
export const inside = (raw, run) => current.run(byRequest.get(raw), run);

export class Gate {
  constructor(given) {
    known(given, options, "the middleware's options");
    const { client, emitter, uid, ip, attrs = {} } = given;
    if (!client && !emitter) throw wrong('give a client, an emitter, or both');
    if (!uid && !ip && Object.keys(attrs).length === 0) throw wrong('give at least one of uid, ip and attrs: functions that say who sends a request');
    for (const name of own) if (name in attrs) throw wrong(`attrs.${name} is of the event itself: choose another name`);
    const logger = logTo(given.logger);
    this.given = { ...given, attrs, logger };
    this.admits = admitting(given.admit);
    this.what = uid ? 'a uid' : ip ? 'an address' : 'one of the attributes';
    this.denials = new Denials();
    this.requests = this.named = 0;
    this.lost = new Seldom(logger);
  }

  skips(request) {
    return this.given.skip?.(request) === true;
  }

  // enter decides on a request. It returns an answer for one that is not let in, as { status, headers,
  // body }, and else { headers } for the answer that the handler will give. Of a client that has left
  // meanwhile it returns undefined: nothing is to be done.
  async enter(request, raw, response, nameOf) {
    const who = await this.#who(request);
    if (Object.values({ ...who, ...who.attrs }).includes(ambiguous)) return refused;
    this.#watch(who);
    const api = nameOf(request);
    const passage = new Passage(this, request, api, who);
    const decision = await this.#decide(request, api, who);
    if (response.destroyed) return void decision?.cancel?.();
    if (!decision || decision.allowed) {
      passage.permit = decision?.done ? decision : undefined;
      byRequest.set(raw, passage);
      passage.endWith(response);
      return { headers: decision?.headers() ?? {} };
    }
    passage.limited = true;
    if (this.given.emitDenied || (this.given.emitter && this.denials.emits(api, who))) passage.endWith(response);
    return {
      decision, status: decision.status, headers: { ...decision.headers(), 'Content-Type': 'application/problem+json' },
      body: JSON.stringify(decision.problem()) + '\n',
    };
  }

  async #who(request) {
    const { uid, ip, attrs } = this.given;
    const out = { uid: await uid?.(request), ip: (await ip?.(request)) || undefined, attrs: {} };
    if (out.uid === undefined || out.uid === '') out.uid = null; // nobody is known
    for (const [name, of] of Object.entries(attrs)) out.attrs[name] = await of(request);
    return out;
  }

  async #decide(request, api, who) {
    const { client, wait, fail } = this.given;
    if (!client) return undefined;
    return (await this.admits(request, api)) ? client.admit(api, { ...who, wait, fail }) : client.check(api, { ...who, wait, fail });
  }

  // watch counts requests of which nobody knows who sends them, and tells once of options by which nobody
  // ever is known.
  #watch(who) {
    const { client, logger, uid, ip } = this.given;
    const known = uid ? who.uid !== null : ip ? who.ip : Object.values(who.attrs).some(Boolean);
    if (!known) client?.unnamed?.();
    if (this.requests >= watched || this.named > 0) return;
    if (known) this.named++;
    if (++this.requests === watched && this.named === 0) {
      logger.error(`none of the first ${watched} requests had ${this.what}, so no limit on that holds: check uid, ip and attrs of the middleware`);
    }
  }
}

// admitting tells which requests ask for permits, by the option of that name.
function admitting(admit = false) {
  if (typeof admit === 'boolean') return () => admit;
  if (typeof admit === 'function') {
    return async (request) => {
      const says = await admit(request);
      if (typeof says !== 'boolean') throw wrong(`admit returns true or false, not ${typeof says}`);
      return says;
    };
  }
  const names = Array.isArray(admit) ? admit : [0];
  if (!names.every((name) => typeof name === 'string' && /^(?!$)[^*]*\*?$/.test(name))) {
    throw wrong("admit is true, false, a function of the request, or a list of APIs such as ['coupon.redeem', 'sms.*']");
  }
  return (request, api) => names.some((name) => (name.endsWith('*') ? api.startsWith(name.slice(0, -1)) : api === name));
}

const refused = {
  status: 400,
  headers: { 'Cache-Control': 'no-store', 'Content-Type': 'application/problem+json' },
  body: JSON.stringify({
    type: 'about:blank', title: 'Bad Request', status: 400,
    detail: 'It is not clear who sends this request: a header that says so has several values.',
  }) + '\n',
};

// Passage is a request between the check and the end of its answer.
class Passage {
  notes = {};
  attrs = {}; // that were noted

  constructor(gate, request, api, who) {
    Object.assign(this, { gate, request, api, who, time: new Date(), began: performance.now() });
  }

  // endWith ends the passage with the answer, or when the client leaves.
  endWith(response) {
    const { socket } = response;
    const end = () => {
      if (this.over) return;
      this.over = true;
      // What breaks off behind its status has failed, unless it was the client that left.
      const left = !socket || socket.readableEnded || ['ECONNRESET', 'EPIPE'].includes(socket.errored?.code);
      this.failed = response.headersSent && !response.writableFinished && !left;
      this.#end(response.headersSent ? response.statusCode : 499);
    };
    response.once('finish', end);
    response.once('close', end);
  }

  #end(status) {
    const { emitter, event: sees } = this.gate.given;
    const event = this.#event(status);
    const emits = !sees || sees(event, this.request) !== false;
    try {
      if (emits) emitter?.emit(event);
    } catch (error) { // what was noted is no event's; the answer is on its way
      this.gate.lost.add(1).say((n) => `${n} events of requests are lost: ${error.message}`);
    }
    if (emits) this.permit?.done(event.outcome);
    else this.permit?.cancel();
  }

  #event(status) {
    const latency = Math.round((performance.now() - this.began) * 1000) / 1000;
    const attrs = { ...this.who.attrs, status, latency_ms: latency };
    for (const [name, value] of Object.entries(this.attrs)) {
      if (name in attrs || Object.keys(attrs).length < maxAttrs) attrs[name] = value;
    }
    return {
      ...this.who, api: this.api, time: this.time, attrs,
      outcome: this.limited ? 'limited' : this.failed ? 'failure' : statusOutcome(status), permit: this.permit, ...this.notes,
    };
  }
}
