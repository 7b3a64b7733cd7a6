// Compiled, and never run: the declarations are those that programs need.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Client, Emitter, header, note, tallygateExpress, tallygateFastify } from 'tallygate';
import type { Decision, Options, Permit } from 'tallygate';

const client = new Client('https://limits:8080', { fail: 'closed', tls: { ca: 'pem' }, token: () => 'x' });
const emitter = new Emitter({ brokers: ['kafka:9092'], name: 'shop' });

export async function use(): Promise<string> {
  const d: Decision = await client.check('search.query', { uid: 42, attrs: { device: 'd1', none: undefined } });
  if (!d.allowed) return `${d.status} ${d.retryAfter ?? 0} ${d.until?.toISOString()}`;
  const permit: Permit = await client.admit('sms.send', { uid: '42', cost: 2 });
  emitter.emit({ uid: '42', api: 'sms.send', permit });
  note({ attrs: { ok: true }, cost: 1 });
  await permit.done('success');
  await emitter.close();
  // @ts-expect-error: there is no such field
  emitter.emit({ user: '42', api: 'a' });
  // @ts-expect-error: api is required
  emitter.emit({ uid: '42' });
  return '';
}

interface Named extends IncomingMessage { user: { id: number } }
const options: Options<Named> = { client, emitter, uid: (request) => request.user.id, attrs: { shop: header('x-shop') } };
export const middleware: (request: Named, response: ServerResponse, next: () => void) => void = tallygateExpress(options);
export const plugin: (app: unknown, options: Options) => Promise<void> = tallygateFastify;
