// The middleware in a real Express and a real Fastify, before a decision server that answers as it is told.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import express from 'express';
import fastify from 'fastify';
import { Client, header, note, tallygateExpress, tallygateFastify } from '../index.js';
import { allowed, decisionServer, denied, logger } from './server.js';

// Kept is an emitter that keeps events, and tells when there are so many.
class Kept {
  events = [];
  #waits = [];

  emit(event) {
    this.events.push(event);
    this.#waits = this.#waits.filter(([n, resolve]) => this.events.length < n || resolve());
    return true;
  }

  has(n) {
    return this.events.length >= n ? undefined : new Promise((resolve) => { this.#waits.push([n, resolve]); });
  }
}

async function onExpress(t, options) {
  const app = express();
  app.use(tallygateExpress(options));
  app.use(express.json());
  app.get('/search', (request, response) => response.send('found'));
  app.post('/orders/:id/items', async (request, response) => {
    await new Promise(setImmediate);
    note({ attrs: { discounted: true, items: request.body.items }, cost: 2, id: 'o-17' });
    response.status(201).send('ordered');
  });
  app.get('/fails', () => { throw new Error('no'); });
  app.use((error, request, response, next) => { response.status(500).send(error.message); }); // eslint-disable-line
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => { server.closeAllConnections(); server.close(); });
  return `http://127.0.0.1:${server.address().port}`;
}

async function onFastify(t, options) {
  const app = fastify();
  app.register(tallygateFastify, options);
  app.get('/search', async () => 'found');
  app.post('/orders/:id/items', async (request, reply) => {
    await new Promise(setImmediate);
    note({ attrs: { discounted: true, items: request.body.items }, cost: 2, id: 'o-17' });
    return reply.code(201).send('ordered');
  });
  app.get('/fails', async () => { throw new Error('no'); });
  app.setErrorHandler((error, request, reply) => reply.code(500).send(error.message));
  t.after(() => app.close());
  return app.listen({ port: 0, host: '127.0.0.1' });
}

const frameworks = { Express: onExpress, Fastify: onFastify };

async function rig(t, open, answers, more = {}) {
  const server = await decisionServer(t, answers);
  const client = new Client(server.url, { timeout: 10_000, admitTimeout: 10_000, logger: logger() });
  t.after(() => client.close());
  const emitter = new Kept();
  const url = await open(t, { client, emitter, uid: header('x-user'), ...more });
  const get = async (path, { user = '7', ...init } = {}) => {
    const response = await fetch(url + path, { ...init, headers: { 'x-user': user, connection: 'close', ...init.headers } });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  return { server, emitter, get, url };
}

for (const [name, open] of Object.entries(frameworks)) {
  test(`${name}: requests are checked by name, and become events`, async (t) => {
    const { server, emitter, get } = await rig(t, open, () => allowed);
    assert.equal((await get('/search?q=1')).text, 'found');
    await emitter.has(1);
    const answer = await get('/orders/17/items', { method: 'POST', body: '{"items": 3}', headers: { 'content-type': 'application/json' } });
    assert.deepEqual([answer.status, answer.text], [201, 'ordered']);
    await emitter.has(2);
    assert.equal((await get('/fails')).status, 500);
    assert.equal((await get('/none/of/these')).status, 404);
    await emitter.has(4);

    const order = name === 'Express' ? 'post.orders.17' : 'post.orders.id.items';
    const none = name === 'Express' ? 'get.none.of' : 'unrouted';
    assert.deepEqual(server.asked.map(({ path, body }) => [path, body.api, body.uid]), ['get.search', order, 'get.fails', none].map((api) => ['/v1/check', api, '7']));
    const [search, ordered, failed, lost] = emitter.events;
    for (const event of emitter.events) {
      assert.ok(event.time instanceof Date && event.attrs.latency_ms >= 0);
      delete event.time;
      delete event.attrs.latency_ms;
    }
    const event = { uid: '7', ip: undefined, permit: undefined };
    assert.deepEqual(search, { ...event, api: 'get.search', outcome: 'success', attrs: { status: 200 } });
    assert.deepEqual(ordered, { ...event, api: order, outcome: 'success', cost: 2, id: 'o-17', attrs: { status: 201, discounted: true, items: 3 } });
    assert.deepEqual(failed, { ...event, api: 'get.fails', outcome: 'failure', attrs: { status: 500 } });
    assert.deepEqual(lost, { ...event, api: none, outcome: 'failure', attrs: { status: 404 } });
  });

  test(`${name}: what is denied gets the answer of Go's middleware, and some of it is emitted`, async (t) => {
    const { emitter, get } = await rig(t, open, () => denied);
    for (const method of ['GET', 'HEAD']) {
      const { status, headers, text } = await get('/search', { method });
      assert.equal(status, 429);
      for (const [field, value] of Object.entries({
        'cache-control': 'no-store', 'retry-after': '29', ratelimit: '"searches";r=0;t=29', 'ratelimit-policy': '"searches";q=5', 'content-type': 'application/problem+json',
      })) assert.equal(headers.get(field), value, field);
      assert.equal(text === '' ? method : JSON.parse(text).detail, method === 'HEAD' ? 'HEAD' : 'The limit of "searches" was exceeded; try again in 29 s.');
    }
    await get('/fails');
    await emitter.has(2); // HEAD has the name of GET
    assert.deepEqual(emitter.events.map(({ api, uid, outcome, attrs }) => [api, uid, outcome, attrs.status]), ['get.search', 'get.fails'].map((api) => [api, '7', 'limited', 429]));
  });

  test(`${name}: a larger plan is told at once`, async (t) => {
    const { emitter, get } = await rig(t, open, () => denied, { attrs: { plan: header('x-plan') } });
    for (const plan of ['free', 'free', 'pro', 'pro']) await get('/search', { headers: { 'x-plan': plan } });
    await emitter.has(2);
    assert.deepEqual(emitter.events.map((e) => e.attrs.plan), ['free', 'pro']);
  });

  test(`${name}: what is denied is emitted as limited, if asked`, async (t) => {
    const { emitter, get } = await rig(t, open, () => ({ allowed: false, in_doubt: true, verdicts: [] }), { emitDenied: true });
    assert.equal((await get('/search')).status, 503);
    await emitter.has(1);
    assert.deepEqual([emitter.events[0].outcome, emitter.events[0].attrs.status, emitter.events[0].api], ['limited', 503, 'get.search']);
  });

  test(`${name}: permits are in the event, and end with its outcome`, async (t) => {
    const ended = [];
    const { server, emitter, get } = await rig(t, open, ({ path, body }) => {
      if (path === '/v1/admit') return { admitted: true, permit: 'p1', permit_at: '2026-11-21T10:00:00Z', token: body.api, limit: 3, remaining: 1, reset: 60 };
      if (path !== '/v1/check') ended.push([path, body]);
      return path === '/v1/check' ? allowed : { ended: true };
    }, { admit: (request) => request.url !== '/search', event: (event) => event.attrs.status !== 404 });
    await get('/search');
    const { headers } = await get('/fails');
    assert.equal(headers.get('ratelimit'), '"limit";r=1;t=60');
    await get('/none');
    await emitter.has(2);
    while (ended.length < 2) await new Promise(setImmediate);
    assert.deepEqual(server.asked.slice(0, 2).map(({ path }) => path), ['/v1/check', '/v1/admit']);
    assert.deepEqual(emitter.events.map(({ api, permit }) => [api, permit?.permit]), [['get.search', undefined], ['get.fails', 'p1']]);
    assert.deepEqual(ended, [
      ['/v1/done', { token: 'get.fails', outcome: 'failure' }],
      ['/v1/cancel', { token: name === 'Express' ? 'get.none' : 'unrouted' }], // its event was dropped
    ]);
  });

  test(`${name}: who sends it twice is refused, and what is skipped is let in`, async (t) => {
    const { server, emitter, get, url } = await rig(t, open, () => denied, { skip: (request) => request.headers['x-probe'] === '1' });
    const status = await new Promise((resolve, reject) => {
      const request = http.get(url + '/search', { headers: ['Host', 'h', 'X-User', '7', 'X-User', '8'], agent: false }, (response) => resolve(response.resume().statusCode));
      request.on('error', reject);
    });
    assert.equal(status, 400);
    assert.equal((await get('/search', { headers: { 'x-probe': '1' } })).text, 'found');
    assert.deepEqual([server.asked, emitter.events], [[], []]);
  });

  test(`${name}: answers of one's own`, async (t) => {
    const { get } = await rig(t, open, () => denied, {
      denied: (request, response, decision) => (response.code ? response.code(418) : response.status(418)).send(`wait ${decision.retryAfter}`),
    });
    assert.deepEqual([(await get('/search')).status, (await get('/search')).text], [418, 'wait 29']);
  });

  test(`${name}: a function that throws is the application's failure`, async (t) => {
    const { get, server } = await rig(t, open, () => allowed, { uid: () => { throw new Error('no session'); } });
    const { status, text } = await get('/search');
    assert.deepEqual([status, text, server.asked], [500, 'no session', []]);
  });
}

test('Express: middleware of a route has the name of its template', async (t) => {
  const server = await decisionServer(t, () => allowed);
  const client = new Client(server.url, { timeout: 10_000 });
  t.after(() => client.close());
  const app = express();
  const limit = tallygateExpress({ client, uid: header('x-user') });
  const router = express.Router();
  router.get('/orders/:id{/:part}', limit, (request, response) => response.send('ok'));
  app.use('/v1', router);
  const listening = app.listen(0, '127.0.0.1');
  await once(listening, 'listening');
  t.after(() => { listening.closeAllConnections(); listening.close(); });
  await fetch(`http://127.0.0.1:${listening.address().port}/v1/orders/17`, { headers: { 'x-user': 'ü', connection: 'close' } });
  assert.equal(server.asked[0].body.api, 'get.v1.orders.id.part');
});

test('whoever is nobody is not asked for by name, and number 0 is somebody', async (t) => {
  for (const [uid, want] of [[() => undefined, undefined], [() => '', undefined], [async () => null, undefined], [() => 0, '0'], [async () => 42n, '42']]) {
    const { server, get } = await rig(t, onExpress, () => allowed, { uid });
    assert.equal((await get('/search')).status, 200);
    assert.equal(server.asked[0].body.uid, want);
  }
});

test('options that can never limit anybody', () => {
  const client = { check() {} };
  for (const [options, what] of [
    [{ uid: () => '' }, /give a client, an emitter, or both/],
    [{ client }, /at least one of uid, ip and attrs/],
    [{ client, uid: () => '', attrs: { status: () => '' } }, /attrs.status is of the event itself/],
    [{ client, uid: () => '', emit: 1 }, /the middleware's options has no "emit"/],
  ]) assert.throws(() => tallygateExpress(options), (error) => error instanceof TypeError && what.test(error.message));
});

test('options by which nobody is known are told once', async () => {
  const log = logger();
  const handler = tallygateExpress({ emitter: new Kept(), uid: () => undefined, logger: log });
  for (let i = 0; i < 50; i++) {
    await new Promise((resolve, reject) => {
      const response = new http.ServerResponse({ method: 'GET', httpVersionMajor: 1, httpVersionMinor: 1 });
      handler({ url: '/', method: 'GET' }, response, (error) => (error ? reject(error) : resolve()));
    });
  }
  assert.equal(log.lines.length, 1);
  assert.match(log.lines[0], /none of the first 20 requests had a uid/);
});

test('a uid is missed beside an address, and counted', async (t) => {
  for (const [users, lines] of [[0, 1], [1, 0]]) {
    const server = await decisionServer(t, () => allowed);
    const client = new Client(server.url, { timeout: 10_000 });
    t.after(() => client.close());
    const log = logger();
    let n = 0;
    const url = await onExpress(t, { client, uid: () => (n++ < users ? '7' : undefined), ip: () => '192.0.2.1', logger: log });
    for (let i = 0; i < 21; i++) await fetch(url + '/search', { headers: { connection: 'close' } }).then((r) => r.text());
    assert.deepEqual([log.lines.length, client.stats().unnamed], [lines, 21 - users]);
  }
});

test('who asks for permits', async (t) => {
  for (const [admit, want] of [[true, true], [false, false], [() => true, true], [async () => false, false], [[], false], [['get.search'], true], [['get.*'], true], [['post.*', 'sms.send'], false], [['*'], true]]) {
    const { server, get } = await rig(t, onExpress, () => ({ allowed: true, admitted: true }), { admit });
    assert.equal((await get('/search')).status, 200);
    assert.equal(server.asked[0].path, want ? '/v1/admit' : '/v1/check');
  }
  const client = { check() {} };
  for (const admit of ['false', 'sms.send', 1, 0, null, {}, [1], [''], ['sms.*.send'], ['**']]) {
    assert.throws(() => tallygateExpress({ client, uid: () => '', admit }), /admit is true, false, a function/);
  }
  for (const says of ['no', undefined, 1]) {
    const { server, get } = await rig(t, onExpress, () => allowed, { admit: () => says });
    assert.deepEqual([(await get('/search')).status, server.asked], [500, []]);
  }
});

test('what breaks off behind its status has failed, and a client that leaves has not made it fail', async (t) => {
  for (const [name, leaves, outcome] of [['Express', false, 'failure'], ['Fastify', false, 'failure'], ['Express', true, 'success']]) {
    const server = await decisionServer(t, () => allowed);
    const client = new Client(server.url, { timeout: 10_000 });
    t.after(() => client.close());
    const emitter = new Kept();
    const options = { client, emitter, uid: () => '7' };
    const begins = (response) => { response.writeHead(200, { 'content-type': 'text/plain' }); response.write('x'); };
    let url;
    if (name === 'Express') {
      const app = express();
      app.use(tallygateExpress(options));
      app.get('/', (request, response) => { begins(response); if (!leaves) throw new Error('too late'); });
      app.use((error, request, response, next) => { response.destroy(error); }); // eslint-disable-line -- as Express' own does
      const listening = app.listen(0, '127.0.0.1');
      await once(listening, 'listening');
      t.after(() => { listening.closeAllConnections(); listening.close(); });
      url = `http://127.0.0.1:${listening.address().port}/`;
    } else {
      const app = fastify();
      app.register(tallygateFastify, options);
      app.get('/', async () => new Readable({ read() { this.push('x'); setImmediate(() => this.destroy(new Error('too late'))); } }));
      t.after(() => app.close());
      url = await app.listen({ port: 0, host: '127.0.0.1' });
    }
    await new Promise((resolve) => {
      const request = http.get(url, { agent: false }, (response) => {
        response.on('data', () => leaves && request.destroy()).on('error', () => {}).on('close', resolve);
      });
      request.on('error', resolve);
    });
    await emitter.has(1);
    assert.deepEqual([emitter.events[0].outcome, emitter.events[0].attrs.status], [outcome, 200], `${name}, ${leaves}`);
  }
});

test('notes that are none are told where they are made, and outside of requests they do nothing', () => {
  note({ attrs: { x: 1 } });
  assert.throws(() => note({ attr: 1 }), /a note has no "attr"/);
  assert.throws(() => note({ cost: -1 }), /not negative/);
  assert.throws(() => note({ outcome: 5 }), /outcome is a string/);
  assert.throws(() => note({ attrs: { x: {} } }), /attribute "x"/);
});
