// tallygate: limits for services in Node. docs/node.md in the repository is its page.
export { normalizeKey } from './src/canonical.js';
export { Client } from './src/client.js';
export { Decision, Permit } from './src/decision.js';
export { Emitter } from './src/emitter.js';
export { tallygateExpress } from './src/express.js';
export { tallygateFastify } from './src/fastify.js';
export { header, note } from './src/gate.js';
export { pathAPI, statusOutcome, templateAPI } from './src/names.js';
