import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Denials } from '../src/denials.js';

test('what says something new is emitted at once, and what repeats it every five seconds', () => {
  let now = 0;
  const denials = new Denials(() => now);
  const emits = (api, plan, uid = '42') => denials.emits(api, { uid, attrs: { plan, seats: 3 } });
  let emitted = 0;
  for (; now < 20_000; now += 100) emitted += emits('x', 'free');
  assert.equal(emitted, 4);
  assert.deepEqual([emits('x', 'pro'), emits('y', 'pro'), emits('x', 'pro')], [true, true, false]);
  assert.equal(denials.emits('x', { attrs: { seats: 3, plan: 'pro' }, uid: 42n }), false, 'the same caller, written otherwise');
});

test('a flood of denials is bounded', () => {
  const denials = new Denials(() => 0);
  let emitted = 0;
  for (let n = 0; n < 10_000; n++) emitted += denials.emits('x', { uid: `u${n}`, attrs: {} });
  assert.equal(emitted, 256, 'as many as there are places, none of which waits for another');
});
