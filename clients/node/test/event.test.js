import assert from 'node:assert/strict';
import { test } from 'node:test';
import { record } from '../src/event.js';

const valueOf = (event) => JSON.parse(record(event).value);

test('an id and a time are made for an event that has none', () => {
  const before = Date.now();
  const [first, second] = [valueOf({ uid: 42, api: 'search.query' }), valueOf({ uid: 42, api: 'search.query' })];
  assert.match(first.id, /^[0-9a-f-]{36}$/);
  assert.notEqual(first.id, second.id);
  assert.ok(Date.parse(first.time) >= before && Date.parse(first.time) <= Date.now());
  assert.equal(first.uid, '42');
  assert.equal('cost' in first, false);
});

test('ids that are whole numbers are their texts, and what JavaScript has rounded is refused', () => {
  for (const [id, want] of [[17, '17'], [0, '0'], [-0, '0'], [-1, '-1'], [9007199254740993n, '9007199254740993'], [2 ** 53 - 1, '9007199254740991']]) {
    const got = valueOf({ uid: id, api: 'b', id, cost: -1, refunds: id });
    assert.deepEqual([got.uid, got.id, got.refunds], [want, want, want]);
  }
  for (const [id, what] of [[2 ** 53, /rounds/], [1e300, /rounds/], [1.5, /integer/], [NaN, /integer/], [true, /integer/], [{}, /integer/]]) {
    assert.throws(() => record({ uid: 'a', api: 'b', id }), what);
    assert.throws(() => record({ uid: id, api: 'b' }), what);
  }
});

test('times are Dates, milliseconds, or texts with an offset', () => {
  for (const time of [new Date(1e12), 1e12, 1e9, '2001-09-09T01:46:40.000Z']) {
    assert.equal(valueOf({ uid: 'a', api: 'b', time }).time, '2001-09-09T01:46:40.000Z');
  }
  for (const time of ['yesterday', '2001-09-09', '2001-09-09T01:46:40', NaN, new Date(NaN), 1e15, {}]) {
    assert.throws(() => record({ uid: 'a', api: 'b', time }), /time is a Date, Unix milliseconds, or RFC 3339/);
  }
});

test('what binary numbers add to a cost is rounded away', () => {
  assert.equal(valueOf({ uid: 'a', api: 'b', cost: 0.1 + 0.2 }).cost, 0.3);
  assert.equal(valueOf({ uid: 'a', api: 'b', cost: 0 }).cost, 0);
  for (const cost of [NaN, Infinity, '2', 1e13]) assert.throws(() => record({ uid: 'a', api: 'b', cost }), /cost is a number/);
  assert.throws(() => record({ uid: 'a', api: 'b', cost: -1 }), /needs refunds/);
});

test('slips are told', () => {
  for (const [event, what] of [
    [{ user: '42', api: 'b' }, /an event has no "user"; it has id, time, uid/],
    [{ api: 'b' }, /nobody is named/],
    [{ uid: undefined, api: 'b' }, /nobody is named/],
    [{ uid: '', api: 'b', attrs: { x: '' } }, /nobody is named/],
    [{ uid: { id: 1 }, api: 'b' }, /uid is a string or an integer, not object/],
    [{ uid: 4.5, api: 'b' }, /uid is a string or an integer/],
    [{ uid: 'a' }, /api is missing/],
    [{ uid: 'a', api: 'x'.repeat(129) }, /at most 128 bytes/],
    [{ uid: 'a', api: 'a\nb' }, /no control characters/],
    [{ uid: 'a', api: 'b', attrs: { x: [1] } }, /attribute "x" is no string, boolean or finite number/],
    [{ uid: 'a', api: 'b', attrs: { x: NaN } }, /attribute "x"/],
    [{ uid: 'a', api: 'b', attrs: ['x'] }, /attrs is an object/],
    [{ uid: 'a', api: 'b', attrs: Object.fromEntries(Array.from({ length: 33 }, (_, i) => ['a' + i, i])) }, /more than 32/],
    [null, /an event is an object/],
  ]) assert.throws(() => record(event), (error) => error instanceof TypeError && what.test(error.message), JSON.stringify(event));
});

test('nobody, by name', () => {
  assert.equal(record({ uid: null, api: 'cron.run' }).key, null);
});

test('what is absent is left out', () => {
  const value = valueOf({ uid: 'a', api: 'b', ip: 'unknown', attrs: { x: null, y: '', z: undefined, '': 1, ok: 10n }, outcome: '', permit: { permit: undefined } });
  assert.deepEqual(Object.keys(value), ['id', 'time', 'uid', 'api', 'attrs']);
  assert.deepEqual(value.attrs, { ok: 10 });
});

test('an attribute may have any name', () => {
  const { value } = record({ uid: 'a', api: 'b', attrs: JSON.parse('{"__proto__": "x", "constructor": 1}') });
  assert.ok(value.includes('"attrs":{"__proto__":"x","constructor":1}'), value);
});

test('a permit goes into its event', () => {
  const value = valueOf({ uid: 'a', api: 'b', permit: { permit: 'p1', permit_at: { 'uid=a': '2026-11-21T10:00:00Z' } } });
  assert.equal(value.permit, 'p1');
  assert.deepEqual(value.permit_at, { 'uid=a': '2026-11-21T10:00:00Z' });
});
