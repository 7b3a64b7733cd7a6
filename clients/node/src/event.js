// Events as applications give them, and the records that they become.
import { randomUUID } from 'node:crypto';
import { canonicalID, canonicalIP, canonicalName, canonicalText, canonicalUID } from './canonical.js';

export const maxAttrs = 32;
const maxCost = 9223372036854;
const rfc3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;
const fields = ['id', 'time', 'uid', 'api', 'outcome', 'cost', 'refunds', 'ip', 'attrs', 'permit', 'permit_at'];

const absent = (value) => value === undefined || value === null || value === '';

export function wrong(what) {
  return new TypeError('tallygate: ' + what);
}

// record is an event's place and value in Kafka: its key, null without a uid, and its JSON. It throws a
// TypeError for what is no event.
export function record(event) {
  known(event, fields, 'an event');
  const who = dimensions(event);
  const out = { id: absent(event.id) ? randomUUID() : idOf('id', event.id), time: timeOf(event.time) };
  if (who.uid !== undefined) out.uid = who.uid;
  out.api = apiOf(event.api);
  if (!absent(event.outcome)) out.outcome = canonicalText(string('outcome', event.outcome));
  if (!absent(event.cost) && event.cost !== 1) out.cost = costOf(event.cost);
  if (!absent(event.refunds)) out.refunds = idOf('refunds', event.refunds);
  if (out.cost < 0 && out.refunds === undefined) {
    throw wrong('a negative cost needs refunds: name the id of the event that it takes back');
  }
  if (who.ip !== undefined) out.ip = who.ip;
  if (who.attrs !== undefined) out.attrs = who.attrs;
  const permit = typeof event.permit === 'object' && event.permit !== null ? event.permit : event;
  if (!absent(permit.permit)) {
    out.permit = canonicalID(string('permit', permit.permit));
    if (!absent(permit.permit_at)) out.permit_at = permit.permit_at;
  }
  return { key: out.uid ?? null, value: JSON.stringify(out) };
}

// dimensions are who acts: uid, ip and attrs in their canonical forms, without what is absent. A caller
// that gives none has most likely forgotten it: uid: null says that there is nobody.
export function dimensions(given) {
  const out = {};
  if (!absent(given.uid)) out.uid = canonicalUID(textOf('uid', given.uid));
  if (!absent(given.ip)) out.ip = canonicalIP(string('ip', given.ip));
  if (!out.ip) delete out.ip; // rules by address cannot count it; those by user can
  const attrs = attrsOf(given.attrs ?? {});
  if (Object.keys(attrs).length > 0) out.attrs = attrs;
  if (Object.keys(out).length === 0 && given.uid !== null && absent(given.ip)) {
    throw wrong('nobody is named: give uid, ip or attrs, or uid: null for what is done by nobody');
  }
  return out;
}

export function apiOf(api) {
  if (absent(api)) throw wrong('api is missing: name the action, such as order.create');
  const name = string('api', api).toWellFormed();
  if (Buffer.byteLength(name) > 128 || /[\u0000-\u001f\u007f]/.test(name)) {
    throw wrong('api has at most 128 bytes and no control characters: ' + JSON.stringify(name.slice(0, 150)));
  }
  return name;
}

export function attrsOf(given) {
  if (typeof given !== 'object' || Array.isArray(given)) throw wrong('attrs is an object of strings, numbers and booleans');
  const out = {};
  let n = 0;
  for (const [name, value] of Object.entries(given)) {
    if (absent(value) || name === '') continue;
    if (++n > maxAttrs) throw wrong(`there are more than ${maxAttrs} attributes`);
    // Not an assignment: that of __proto__ would be lost.
    Object.defineProperty(out, canonicalName(name), { value: attrOf(name, value), enumerable: true, configurable: true });
  }
  return out;
}

function attrOf(name, value) {
  switch (typeof value) {
    case 'string':
      return canonicalText(value);
    case 'boolean':
      return value;
    case 'bigint':
      return BigInt.asIntN(53, value) === value ? Number(value) : String(value);
    case 'number':
      if (Number.isFinite(value)) return value;
  }
  throw wrong(`attribute ${JSON.stringify(name)} is no string, boolean or finite number`);
}

export function costOf(cost) {
  if (typeof cost !== 'number' || !(Math.abs(cost) <= maxCost)) {
    throw wrong(`cost is a number of at most ${maxCost}, not ${String(cost)}`);
  }
  return Number(cost.toFixed(6));
}

// textOf is a text, or a whole number as one. What may be rounded already is none.
function textOf(name, value) {
  if (typeof value === 'string') return value;
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return String(value === 0 ? 0 : value);
  if (Number.isInteger(value)) throw wrong(`${name} is a number beyond 2^53, which JavaScript rounds: give a string or a BigInt`);
  throw wrong(`${name} is a string or an integer, not ` + describe(value));
}

export function idOf(name, id) {
  return canonicalID(textOf(name, id));
}

function timeOf(time = new Date()) {
  if (typeof time === 'string' && rfc3339.test(time)) return time;
  // In milliseconds these would lie in 1970: they are seconds, as the aggregator reads them.
  const seconds = typeof time === 'number' && time >= 1e8 && time < 31_536_000_000;
  const at = typeof time === 'number' ? new Date(seconds ? time * 1000 : time) : time;
  if (at instanceof Date && at.getUTCFullYear() >= 0 && at.getUTCFullYear() <= 9999) {
    return at.toISOString();
  }
  throw wrong(`time is a Date, Unix milliseconds, or RFC 3339 with an offset, not ${describe(time)}`);
}

export function string(name, value) {
  if (typeof value !== 'string') throw wrong(`${name} is a string, not ${describe(value)}`);
  return value;
}

// known throws for a name that is none of these: a slip of the pen would be lost in silence.
export function known(given, names, what) {
  if (typeof given !== 'object' || given === null) throw wrong(what + ' is an object');
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw wrong(`${what} has no ${JSON.stringify(name)}; it has ${names.join(', ')}`);
  }
}

const describe = (value) => (typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : value === null ? 'null' : typeof value);
