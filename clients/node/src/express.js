import { Gate, inside } from './gate.js';
import { requestAPI, templateAPI } from './names.js';

// tallygateExpress is middleware for Express and whatever else calls (request, response, next). Before the
// routes it names requests by their paths, in a route by the route's template.
export function tallygateExpress(options) {
  const gate = new Gate(options);
  const nameOf = options.api ?? expressAPI;
  return (request, response, next) => {
    if (gate.skips(request)) return next();
    return gate.enter(request, request, response, nameOf).then((answer) => {
      if (!answer) return undefined;
      if (answer.decision && options.denied) return options.denied(request, response, answer.decision);
      for (const [name, value] of Object.entries(answer.headers)) response.setHeader(name, value);
      if (answer.status === undefined) return inside(request, next);
      response.statusCode = answer.status;
      return response.end(answer.body);
    }).catch(next);
  };
}

function expressAPI(request) {
  const { route, method, baseUrl = '', originalUrl = request.url } = request;
  if (typeof route?.path !== 'string') return requestAPI(method, originalUrl);
  return templateAPI(method, baseUrl + route.path.replaceAll('{/', '/')); // optional parts of Express 5
}
