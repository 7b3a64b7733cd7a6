// Compiled, and never run: in a program without @types/node, and without skipLibCheck.
import { Client, Emitter, header, tallygateExpress } from 'tallygate';
import type { Options } from 'tallygate';

const client = new Client('https://limits:8080', { tls: { ca: 'pem' } });
const options: Options = { client, emitter: new Emitter({ brokers: ['kafka:9092'] }), uid: header('x-user'), admit: ['sms.*'] };
export const middleware = tallygateExpress(options);
export const id = client.admit('sms.send', { uid: 42n, id: 17 });
// @ts-expect-error: true, false, a function or a list
export const wrong: Options = { client, uid: header('x-user'), admit: 'sms.send' };
