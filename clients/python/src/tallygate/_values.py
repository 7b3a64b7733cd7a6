"""Names and values in the one form that they have everywhere: docs/reference/events.md, "Canonical values"
and "Names of requests". Tests compare all of this with the tables in testdata/vectors."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import unicodedata
from urllib.parse import unquote_to_bytes

MAX_API, MAX_UID, MAX_ID, MAX_TEXT, MAX_NAME, MAX_ATTRS = 128, 256, 128, 1024, 256, 32

UNROUTED = "unrouted"  # the API of requests that no route takes, where the routes are known

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f]")
_WITH_PORT = re.compile(r"\[(?P<inside>[^\]]*)\](?::(?P<port1>[0-9]{1,5}))?|(?P<host>[^:]*):(?P<port2>[0-9]{1,5})", re.DOTALL)
_OTHER = re.compile("[^A-Za-z0-9]")
_CUT = "~sha256-"
_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


def valid_text(value: str | bytes) -> str:
    """The text, in which each byte that is not UTF-8 and each half of a surrogate pair is U+FFFD."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    return value if value.isascii() else _SURROGATE.sub("\ufffd", value)


def normalize_key(text: str) -> str:
    """The one form of a key that people type, such as a coupon code: without white space around it, in lower case, in NFC.
    Give it where the key is emitted and where it is checked. Each character is lowered by itself, as other languages do it."""
    lowered = "".join(c.lower()[0] for c in unicodedata.normalize("NFC", valid_text(text)))
    return unicodedata.normalize("NFC", lowered).strip(_SPACE)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_uid(uid: str | bytes) -> str:
    text = valid_text(uid)
    return text if len(text.encode()) <= MAX_UID else "sha256-" + _hash(text)


def canonical_id(id: str) -> str:
    text = valid_text(id)
    return text if len(text.encode()) <= MAX_ID else _hash(text)[:32]


def canonical_text(value: str | bytes, limit: int = MAX_TEXT) -> str:
    """An attribute's value or name, or an outcome. What is too long is cut, and ends with its hash."""
    text = valid_text(value)
    if len(text) * 6 <= limit or _json_size(text) <= limit:
        return text
    left, end = limit - len(_CUT) - 64 - _json_size(text[0]), 0
    while left >= 0:
        end += 1
        left -= _json_size(text[end])
    return text[:end] + _CUT + _hash(text)


def _json_size(text: str) -> int:
    return len(text.encode()) + text.count('"') + text.count("\\") + 5 * len(_CONTROL.findall(text))


def canonical_ip(text: str) -> str:
    """The address as RFC 5952 has it; "" where it is none. It may have a port, and stand in brackets."""
    written = _WITH_PORT.fullmatch(text)
    if written:
        if int(written["port1"] or written["port2"] or 0) > 65535:
            return ""
        text = written["inside"] if written["host"] is None else written["host"]
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:  # it means something on one host only
            ip = ipaddress.IPv6Address(int(ip))
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
    return str(ip)


def status_outcome(status: int) -> str:
    """How a request with this status ended: success, denied, limited or failure."""
    if status < 400:
        return "success"
    return {401: "denied", 403: "denied", 429: "limited"}.get(status, "failure")


def path_api(method: str, target: str | bytes) -> str:
    """Names a request by its method and the first two segments of its path, which is still percent-
    encoded: GET /Images/a.gif?x=1 is get.images.a-gif. All spellings of one path have one name."""
    path = _target_path(valid_text(target))
    if path and path[0] != "/" and method.upper() == "CONNECT":
        path = ""
    return decoded_path_api(method, unquote_to_bytes(path))


def decoded_path_api(method: str, path: str | bytes) -> str:
    """path_api for a path that a server has decoded already, and cut from its query."""
    kept, depth = ["", ""], 0  # later segments are only counted, as '..' may follow
    for segment in valid_text(path).split("/"):
        segment = segment.partition(";")[0]
        if segment == "..":
            depth = max(depth - 1, 0)
        elif segment not in ("", "."):
            if depth < 2:
                kept[depth] = segment
            depth += 1
    return _name(method, kept[:depth])


def template_api(method: str, template: str) -> str:
    """Names a request by its route's whole template: GET /orders/{id}/items, /orders/:id/items and
    Flask's /orders/<int:id>/items are get.orders.id.items."""
    before, space, path = template.partition(" ")
    if space:
        method, template = before, path.strip()
    template = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", template)
    template = template[max(template.find("/"), 0) :]
    segments = (s.lstrip("{:*").rstrip("}?").removesuffix("...").partition(":")[0] for s in template.split("/"))
    return _name(method, [s for s in segments if s not in ("", "$")])


def _target_path(target: str) -> str:
    target = re.split("[?#]", target, maxsplit=1)[0]
    if target[:1] in ("", "/"):
        return target
    scheme, colon, rest = target.partition(":")
    if not colon or "/" in scheme or "%" in scheme or rest[:1] not in ("", "/"):
        return target
    return rest[2:].partition("/")[2] if rest.startswith("//") else rest


def _name(method: str, segments: list[str]) -> str:
    if method == "" or method.upper() == "HEAD":
        method = "GET"
    return ".".join(_OTHER.sub("-", valid_text(s)).lower() for s in (method, *segments))[:MAX_API]
