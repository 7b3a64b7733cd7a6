// A decision server for tests: it answers as it is told, and keeps what it was asked.
import { once } from 'node:events';
import http from 'node:http';

export async function decisionServer(t, answers) {
  const asked = [];
  const sockets = new Set();
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const question = { path: request.url, headers: request.headers, body: JSON.parse(Buffer.concat(parts)) };
    asked.push(question);
    sockets.add(request.socket);
    const answer = await answers(question, asked.length, request);
    if (answer === undefined) return; // it never answers
    const { status = 200, ...body } = answer;
    response.writeHead(status, { 'Content-Type': 'application/json' }).end(answer.raw ?? JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}`, asked, sockets, server };
}

export const logger = () => {
  const lines = [];
  return { lines, info: (m) => lines.push('info ' + m), error: (m) => lines.push('error ' + m) };
};

export const allowed = { allowed: true, verdicts: [], staleness: '1s' };

export const denied = {
  allowed: false, action: 'block', rule: 'search-combined', public: 'searches', until: '2026-11-21T14:44:18.24Z', retry_after: 29,
  verdicts: [{ rule: 'search-combined', limit: 5, count: 6 }], staleness: '849ms',
};
