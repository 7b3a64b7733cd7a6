import { Gate, inside } from './gate.js';
import { templateAPI, unrouted } from './names.js';

// tallygateFastify is a plugin for Fastify: app.register(tallygateFastify, options). It names requests by
// their routes' templates.
export async function tallygateFastify(app, options) {
  const gate = new Gate(options);
  const nameOf = options.api ?? fastifyAPI;
  app.addHook('onRequest', (request, reply, done) => {
    if (gate.skips(request)) return done();
    gate.enter(request, request.raw, reply.raw, nameOf).then((answer) => {
      if (!answer) return undefined;
      if (answer.decision && options.denied) return options.denied(request, reply, answer.decision);
      reply.headers(answer.headers);
      if (answer.status === undefined) return inside(request.raw, done);
      reply.code(answer.status).send(Buffer.from(answer.body)); // of a text, Fastify would add a charset
      return undefined;
    }).catch(done);
    return undefined; // Fastify would wait for a promise, and go on
  });
  // A body's parser calls what follows from outside of the request's context.
  app.addHook('preValidation', (request, reply, done) => inside(request.raw, done));
}

// The hooks are those of the whole application, and not only of what is registered in this plugin.
tallygateFastify[Symbol.for('skip-override')] = true;
tallygateFastify[Symbol.for('fastify.display-name')] = 'tallygate';

function fastifyAPI(request) {
  const template = request.is404 ? undefined : request.routeOptions.url;
  return template === undefined ? unrouted : templateAPI(request.method, template.replace(/\([^/]*\)/g, ''));
}
