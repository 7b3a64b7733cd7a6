import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Client } from '../index.js';
import { allowed, decisionServer, denied, logger } from './server.js';

const patient = { timeout: 10_000, admitTimeout: 10_000 };

function client(t, url, options) {
  const log = logger();
  const c = new Client(url, { logger: log, ...options });
  t.after(() => c.close());
  return [c, log];
}

test('a check asks by canonical values, and has what the server answers', async (t) => {
  const server = await decisionServer(t, ({ body }) => (body.uid === '42' ? denied : allowed));
  const [c] = client(t, server.url, patient);
  const d = await c.check('search.query', { uid: 42, ip: '::FFFF:192.0.2.1', attrs: { device: 'd1', none: null } });
  assert.deepEqual(server.asked[0].body, { api: 'search.query', uid: '42', ip: '192.0.2.1', attrs: { device: 'd1' } });
  assert.equal(server.asked[0].path, '/v1/check');
  assert.deepEqual([d.allowed, d.action, d.rule, d.public, d.limit, d.retryAfter, d.until.toISOString(), d.unavailable, d.reason, d.status],
    [false, 'block', 'search-combined', 'searches', 5, 29, '2026-11-21T14:44:18.240Z', false, null, 429]);
  // What the reference shows of /v1/forward-auth.
  assert.deepEqual(d.headers(), { 'Cache-Control': 'no-store', 'Retry-After': '29', RateLimit: '"searches";r=0;t=29', 'RateLimit-Policy': '"searches";q=5' });
  assert.equal(JSON.stringify(d.problem()), '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"The limit of \\"searches\\" was exceeded; try again in 29 s.","rule":"searches","action":"block","until":"2026-11-21T14:44:18.24Z","retry_after":29,"violated-policies":["searches"]}');
  const other = await c.check('search.query', { uid: '43', wait: 800 });
  assert.deepEqual([other.allowed, other.until, other.headers()], [true, null, {}]);
  assert.equal(server.asked[1].body.wait, 0.8);
  assert.deepEqual(c.stats(), { asked: 2, denied: 1, unanswered: 0, refused: 0, not_asked: 0, unnamed: 0 });
});

test('a rule without a public name is not named to callers', async (t) => {
  const { public: _, ...nameless } = denied;
  const server = await decisionServer(t, () => ({ ...nameless, verdicts: [{ limit: 0 }] }));
  const [c] = client(t, server.url, patient);
  const d = await c.check('a', { uid: 'u' });
  assert.deepEqual(d.headers(), { 'Cache-Control': 'no-store', 'Retry-After': '29', RateLimit: '"limit";r=0;t=29' });
  assert.equal(d.problem().detail, 'A limit was exceeded; try again in 29 s.');
  assert.equal(JSON.stringify(d.problem()).includes('search-combined'), false);
});

test('a stale blocklist that is closed is the service\'s fault', async (t) => {
  const server = await decisionServer(t, () => ({ allowed: false, in_doubt: true, verdicts: [], staleness: '2m' }));
  const [c] = client(t, server.url, patient);
  const d = await c.check('a', { uid: 'u' });
  assert.deepEqual([d.status, d.unavailable, d.headers()], [503, true, { 'Cache-Control': 'no-store' }]);
  assert.deepEqual(d.problem(), { type: 'about:blank', title: 'Service Unavailable', status: 503, detail: 'It is not known at the moment whether this is allowed.' });
});

test('one connection serves many checks, and a new one when the server closed it', async (t) => {
  const server = await decisionServer(t, () => allowed);
  const [c] = client(t, server.url, patient);
  for (let i = 0; i < 10; i++) await c.check('a', { uid: 'u' });
  assert.equal(server.sockets.size, 1);
  const [socket] = server.sockets;
  socket.destroy();
  await once(socket, 'close');
  assert.deepEqual([(await c.check('a', { uid: 'u' })).reason, server.sockets.size], [null, 2]);
});

test('a connection that closes as it is used again is no failure', async (t) => {
  const server = await decisionServer(t, (_, n, request) => {
    if (n !== 2) return allowed;
    request.socket.resetAndDestroy();
    return undefined;
  });
  const [c] = client(t, server.url, patient);
  await c.check('a', { uid: 'u' });
  assert.deepEqual([(await c.check('a', { uid: 'u' })).reason, server.asked.length], [null, 3]);
});

test('a server that does not answer costs the timeout, then nothing; what holds is fail', async (t) => {
  let answers = false;
  const server = await decisionServer(t, () => (answers ? allowed : undefined));
  const [c, log] = client(t, server.url, { timeout: 5, breaker: 3 });
  for (const fail of ['open', 'closed', undefined]) {
    const d = await c.check('a', { uid: 'u', fail });
    assert.deepEqual([d.allowed, d.unavailable, d.reason], [fail !== 'closed', fail === 'closed', 'none within 5 ms']);
  }
  const d = await c.check('a', { uid: 'u', fail: 'closed' });
  assert.deepEqual([d.status, d.headers(), d.reason], [503, { 'Cache-Control': 'no-store' }, 'the decision server did not answer lately']);
  assert.deepEqual(c.stats(), { asked: 3, denied: 2, unanswered: 3, refused: 0, not_asked: 1, unnamed: 0 });
  answers = true;
  while ((await c.check('a', { uid: 'u', timeout: 10_000 })).reason !== null) await turn(); // within a second
  assert.deepEqual(log.lines, [
    'error tallygate: no answer of the decision server: none within 5 ms; meanwhile this fails open (check)',
    'info tallygate: the decision server answers again',
  ]);
});

test('nobody there', async (t) => {
  const server = await decisionServer(t, () => allowed);
  server.server.close();
  await once(server.server, 'close');
  const [c] = client(t, server.url, { ...patient, breaker: 100 });
  const d = await c.check('a', { uid: 'u' });
  assert.deepEqual([d.allowed, /ECONNREFUSED/.test(d.reason)], [true, true]);
  const p = await c.admit('a', { uid: 'u' });
  assert.deepEqual([p.allowed, p.status, p.headers()], [false, 503, { 'Cache-Control': 'no-store', 'Retry-After': '1' }]);
  assert.equal(await p.done(), true); // there is nothing to end
});

// A process that computes for longer than the timeout finds the answer when it looks.
test('an answer that is there is taken, also by a busy process', async (t) => {
  const server = await decisionServer(t, () => allowed);
  const [c] = client(t, server.url, patient);
  await c.check('a', { uid: 'u' });
  for (;;) {
    const began = performance.now();
    const question = c.check('a', { uid: 'u', timeout: 200 });
    await new Promise((resolve) => { server.server.once('request', (_, response) => response.once('finish', resolve)); });
    const inTime = performance.now() < began + 150; // else it proves nothing
    while (performance.now() < began + 250); // busy
    const { reason } = await question;
    if (!inTime) continue;
    assert.equal(reason, null);
    return;
  }
});

test('what the server refuses is told, and closes nothing', async (t) => {
  const server = await decisionServer(t, () => ({ status: 401, detail: 'a credential is required' }));
  const [c, log] = client(t, server.url, { ...patient, breaker: 1, token: 'secret' });
  for (let i = 0; i < 3; i++) {
    const p = await c.admit('a', { uid: 'u' });
    assert.deepEqual([p.allowed, p.reason], [false, 'the decision server answers 401: a credential is required']);
  }
  assert.deepEqual([server.asked.length, server.asked[0].headers.authorization, c.stats().refused], [3, 'Bearer secret', 3]);
  await new Promise((resolve) => { setTimeout(resolve, 1); }); // the log is told behind
  assert.match(log.lines.join('\n'), /refuses [123] questions \(admit, 401: a credential is required\); they are denied/);
  assert.equal(log.lines.join('\n').includes('secret'), false);
});

// Whoever finds out what makes a question wrong would else be let in, and after five of them everybody.
test('what is refused is denied, whatever fail says', async (t) => {
  for (const status of [302, 400, 401, 403, 404, 405, 408, 413, 414, 422, 429, 431, 451, 499]) {
    const server = await decisionServer(t, () => ({ status, raw: status % 2 ? '<html>' : '{"detail":"no"}' }));
    const [c] = client(t, server.url, { ...patient, breaker: 1, fail: 'open', admitFail: 'open' });
    for (let i = 0; i < 2; i++) {
      for (const d of [await c.check('a', { uid: 'u' }), await c.check('a', { uid: 'u', fail: 'open' }), await c.admit('a', { uid: 'u' })]) {
        assert.deepEqual([d.allowed, d.status, d.unavailable], [false, 503, true], String(status));
        assert.ok(d.reason.startsWith(`the decision server answers ${status}: `));
      }
    }
    assert.deepEqual(c.stats(), { asked: 6, denied: 6, unanswered: 0, refused: 6, not_asked: 0, unnamed: 0 });
  }
});

test('a refusal without an end is one', async (t) => {
  for (const [rest, ends] of [['Connection: close\r\n\r\n431 ', false], ['Content-Length: 99\r\n\r\n{', false], ['Content-Length: 99\r\n\r\n{', true], ['Transfer-Encoding: chunked\r\n\r\nxyz\r\n', false]]) {
    const server = net.createServer((socket) => {
      socket.on('error', () => {}).once('data', () => (ends ? socket.end(`HTTP/1.1 431 Too Large\r\n${rest}`) : socket.write(`HTTP/1.1 431 Too Large\r\n${rest}`)));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const [c] = client(t, `http://127.0.0.1:${server.address().port}`, { timeout: 200, breaker: 1 });
    for (let i = 0; i < 2; i++) assert.equal((await c.check('a', { uid: 'u' })).allowed, false, rest);
    assert.deepEqual([c.stats().refused, c.stats().unanswered], [2, 0], rest);
  }
});

test('answers that are none', async (t) => {
  for (const answer of [{ raw: 'hello' }, { raw: '[]' }, { raw: 'null' }, { something: 1 }, { status: 500, detail: 'x' }, { status: 503, raw: '<html>' }]) {
    const server = await decisionServer(t, () => answer);
    const [c] = client(t, server.url, patient);
    const d = await c.check('a', { uid: 'u' });
    assert.deepEqual([d.allowed, typeof d.reason], [true, 'string'], JSON.stringify(answer));
  }
});

test('a permit is ended once, and again where the server did not hear', async (t) => {
  let lost = 1;
  const server = await decisionServer(t, ({ path }) => {
    if (path === '/v1/admit') return { admitted: true, permit: 'p1', permit_at: '2026-11-21T10:00:00Z', token: 't1', limited: false, limit: 3, remaining: 2, reset: 60, public: 'messages' };
    return lost-- > 0 ? { status: 503 } : { ended: true };
  });
  const [c] = client(t, server.url, patient);
  const p = await c.admit('sms.send', { uid: '42', cost: 2, id: 'a1' });
  assert.deepEqual(server.asked[0].body, { api: 'sms.send', uid: '42', id: 'a1', cost: 2 });
  assert.deepEqual([p.allowed, p.permit, p.permit_at, p.remaining], [true, 'p1', '2026-11-21T10:00:00Z', 2]);
  assert.deepEqual(p.headers(), { RateLimit: '"messages";r=2;t=60', 'RateLimit-Policy': '"messages";q=3' });
  assert.equal(await p.done('success'), true);
  assert.equal(await p.cancel(), true); // too late: it says what done said
  assert.deepEqual(server.asked.slice(1).map(({ path, body }) => [path, body]), Array(2).fill(['/v1/done', { token: 't1', outcome: 'success' }]));
});

test('each request for a permit names its action', async (t) => {
  const server = await decisionServer(t, () => ({ admitted: false, limited: true, limit: 3, remaining: 0, retry_after: 7, action: 'block', until: '2026-11-21T10:00:00Z' }));
  const [c] = client(t, server.url, patient);
  const p = await c.admit('sms.send', { uid: '42' });
  await c.admit('sms.send', { uid: '42' });
  const [first, second] = server.asked.map(({ body }) => body.id);
  assert.match(first, /^[0-9a-f-]{36}$/);
  assert.notEqual(first, second);
  assert.deepEqual([p.allowed, p.status, p.retryAfter, p.headers().RateLimit], [false, 429, 7, '"limit";r=0;t=7']);
});

test('wrong arguments are told', async (t) => {
  const [c] = client(t, 'http://127.0.0.1:1');
  for (const [call, what] of [
    [() => c.check('', { uid: 'u' }), /api is missing/],
    [() => c.check('a'), /nobody is named/],
    [() => c.check('a', { user: 'u' }), /a check has no "user"/],
    [() => c.check('a', { uid: 'u', fail: 'maybe' }), /fail is 'open' or 'closed', not maybe/],
    [() => c.check('a', { uid: 'u', timeout: '5s' }), /a time is a number of milliseconds/],
    [() => c.admit('a', { uid: 'u', cost: 'x' }), /cost is a number/],
    [() => c.admit('a', { uid: 'u', id: 1.5 }), /id is a string or an integer/],
  ]) await assert.rejects(call, (error) => error instanceof TypeError && what.test(error.message));
  assert.throws(() => new Client('redis://x'), /begins with http/);
  assert.throws(() => new Client('http://x', { retries: 1 }), /Client's options has no "retries"/);
});
