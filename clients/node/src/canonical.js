// What an event's values become: one text each, whoever wrote it and however. The reference has the
// table, "Canonical values"; testdata/vectors/canonical.json is what the tests of all clients read.
import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { isIPv4, isIPv6 } from 'node:net';

const maxUID = 256; // bytes
const maxID = 128; // bytes
const maxText = 1024; // bytes of JSON
const maxName = 256; // bytes of JSON, of an attribute's name
const marker = '~sha256-';

const sha256 = (text) => createHash('sha256').update(text).digest('hex');

// decode reads UTF-8 as Go does: each byte that is none becomes U+FFFD. TextDecoder replaces several by
// one, and two clients would have two names for one thing.
export function decode(bytes) {
  if (isUtf8(bytes)) return bytes.toString('utf8');
  let out = '';
  for (let i = 0; i < bytes.length; ) {
    const first = bytes[i];
    const size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    const part = bytes.subarray(i, i + size);
    const whole = part.length === size && isUtf8(part);
    out += whole ? part.toString('utf8') : '\ufffd';
    i += whole ? size : 1;
  }
  return out;
}

// text is a value's text: of a string without halves of surrogate pairs, of a Buffer as UTF-8.
export const text = (value) => (typeof value === 'string' ? value.toWellFormed() : decode(value));

export function canonicalUID(value) {
  const uid = text(value);
  return Buffer.byteLength(uid) > maxUID ? 'sha256-' + sha256(uid) : uid;
}

// canonicalID is that of id, refunds and permit.
export function canonicalID(value) {
  const id = text(value);
  return Buffer.byteLength(id) > maxID ? sha256(id).slice(0, 32) : id;
}

// canonicalText is an attribute's value, or an outcome.
export const canonicalText = (value) => cut(text(value), maxText);

const space = '[\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]';
const around = new RegExp(`^${space}+|(?<!${space})${space}+$`, 'g');

// normalizeKey is the one form of a key that people type: without the white space around it, in lower case, in NFC.
// Each character is lowered by itself, as other languages do it.
export const normalizeKey = (key) => Array.from(text(key).normalize('NFC'), (c) => [...c.toLowerCase()][0]).join('').normalize('NFC').replace(around, '');

export const canonicalName = (value) => cut(text(value), maxName);

function cut(whole, limit) {
  if (jsonLength(whole) <= limit) return whole;
  let left = limit - marker.length - 64;
  let end = 0;
  for (const c of whole) {
    left -= jsonLength(c);
    if (left < 0) break;
    end += c.length;
  }
  return whole.slice(0, end) + marker + sha256(whole);
}

// jsonLength is how many bytes a text takes in JSON, without the quotes.
function jsonLength(s) {
  let n = Buffer.byteLength(s);
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c < 0x20) n += 5;
    else if (c === 0x22 || c === 0x5c) n++;
  }
  return n;
}

// bare is an address without brackets, port and zone.
function bare(value) {
  const [, bracketed, port1] = /^\[([^\]]*)\](?::(\d{1,5}))?$/.exec(value) ?? [];
  const [, host, port2] = /^([^:]*):(\d{1,5})$/.exec(value) ?? [];
  if (Number(port1 ?? port2 ?? 0) > 65535) return '';
  const ip = bracketed ?? host ?? value;
  return isIPv6(ip) ? ip.replace(/%.*$/s, '') : ip;
}

// canonicalIP is an address as in RFC 5952, an IPv4-mapped one as IPv4; '' for what is none. It may have
// a port, and stand in brackets.
export function canonicalIP(value) {
  const address = bare(value);
  if (isIPv4(address)) return address;
  if (!isIPv6(address)) return '';
  const ip = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(ip);
  if (!mapped) return ip;
  return mapped.slice(1).flatMap((hex) => [parseInt(hex, 16) >> 8, parseInt(hex, 16) & 0xff]).join('.');
}
