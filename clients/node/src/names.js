// Names of requests, as Go's middleware, the proxies and access logs have them: what is counted is what
// is checked. testdata/vectors/names.json and templates.json are the tables.
import { decode, text } from './canonical.js';

const maxAPI = 128;

// unrouted is the API of requests that no route takes, where the router's routes are known.
export const unrouted = 'unrouted';

// pathAPI names a request by its method and the first two segments of its target's path, which may be
// encoded, with a query, or a whole URL.
export function pathAPI(method, target) {
  return requestAPI(method, Buffer.from(text(target)).toString('latin1'));
}

// requestAPI is pathAPI of a target whose characters are its bytes: node:http gives them so.
export function requestAPI(method, target) {
  let path = targetPath(target);
  if (path !== '' && path[0] !== '/' && method.toUpperCase() === 'CONNECT') path = '';
  path = path.replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16)));
  const kept = [];
  for (let segment of path.split('/')) {
    segment = segment.split(';', 1)[0];
    if (segment === '..') kept.pop();
    else if (segment !== '' && segment !== '.') kept.push(segment);
  }
  return named(method, kept.slice(0, 2).map((segment) => decode(Buffer.from(segment, 'latin1'))));
}

// targetPath is the path of a target: of a path, a URL, HOST:PORT or *.
function targetPath(whole) {
  const target = whole.split(/[?#]/, 1)[0];
  const colon = target.indexOf(':');
  if (target[0] === '/' || colon < 0 || /[/%]/.test(target.slice(0, colon))) return target;
  const rest = target.slice(colon + 1);
  if (rest !== '' && rest[0] !== '/') return target;
  if (!rest.startsWith('//')) return rest;
  const slash = rest.indexOf('/', 2);
  return slash < 0 ? '' : rest.slice(slash + 1);
}

// templateAPI names a request by its method and its route's whole template: GET /orders/:id/items and
// GET /orders/{id}/items are get.orders.id.items.
export function templateAPI(method, template) {
  const space = template.indexOf(' ');
  if (space >= 0) [method, template] = [template.slice(0, space), template.slice(space + 1).trim()];
  const slash = template.indexOf('/');
  if (slash > 0) template = template.slice(slash);
  const segments = template.split('/').map((segment) =>
    segment.replace(/^[{:*]+/, '').replace(/[}?]+$/, '').replace(/\.\.\.$/, '').split(':', 1)[0]);
  return named(method, segments.filter((segment) => segment !== '' && segment !== '$').map(text));
}

function named(method, segments) {
  if (method === '' || method.toUpperCase() === 'HEAD') method = 'GET';
  const spelled = [method, ...segments].map((part) => part.replace(/[^a-zA-Z0-9]/gu, '-').toLowerCase());
  return spelled.join('.').slice(0, maxAPI);
}

// statusOutcome is the outcome of an answer's status: testdata/outcomes.json.
export function statusOutcome(status) {
  if (status < 400) return 'success';
  if (status === 401 || status === 403) return 'denied';
  return status === 429 ? 'limited' : 'failure';
}
