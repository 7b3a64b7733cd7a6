"""Tallygate for Python: events to Kafka, checks, permits, and middleware. docs/python.md explains it."""

from ._asgi import TallygateASGI
from ._client import AsyncClient, AsyncPermit, Client, Permit
from ._decision import Decision, Denied
from ._emit import Emitter, Stats
from ._values import normalize_key, path_api, status_outcome, template_api
from ._web import client_ip, header, named, note, pattern_api, route_api
from ._wsgi import TallygateWSGI

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "AsyncPermit", "Client", "Decision", "Denied", "Emitter", "Permit", "Stats", "TallygateASGI", "TallygateWSGI",
    "client_ip", "header", "named", "normalize_key", "note", "path_api", "pattern_api", "route_api", "status_outcome", "template_api",
]
