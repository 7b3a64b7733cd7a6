"""Budgets for LiteLLM's proxy: a callback that reserves before each call, and settles behind it. docs/python.md explains it.

In the proxy's file: litellm_settings: {callbacks: tallygate.litellm.callback}. The settings come from the environment.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
from collections import OrderedDict
from typing import Any, Literal, NamedTuple

import litellm
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from ._client import AsyncClient, AsyncPermit
from ._decision import Decision
from ._emit import Emitter

Doubt = Literal["closed", "open"]

_log = logging.getLogger("tallygate")
_MAX_CALLS = 100_000  # under way; of more the oldest are settled by their rule's hold
_BYTES_A_TOKEN = 3  # about, where no tokenizer knows
_LARGEST = 10**12  # tokens: more than any budget has
_OUTPUT = ("max_completion_tokens", "max_tokens", "max_output_tokens")  # of the APIs of chats, completions and responses
_WITHOUT_OUTPUT = ("embedding", "aembedding", "moderation", "amoderation", "rerank", "arerank")


class _Call(NamedTuple):
    """A call that is under way."""

    permit: AsyncPermit
    uid: str | None
    attrs: dict[str, Any]  # of its event, with the most that it may use


class TallygateCallback(CustomLogger):  # type: ignore[misc,unused-ignore]
    """Asks the decision server for a permit before each call, for the most that it may cost, and emits its event with what
    it has cost. Override who to name callers otherwise."""

    def __init__(self, url: str, kafka: str, *, topic: str = "tallygate.events", api: str = "llm.call", doubt: Doubt = "closed",
                 max_tokens: int = 4096, timeout: float = 0.25, token: str | None = None, emitter: Any = None) -> None:
        super().__init__()
        if doubt not in ("closed", "open") or max_tokens < 1:
            raise ValueError("doubt has to be 'closed' or 'open', and max_tokens above 0")
        self._client = AsyncClient(url, timeout=timeout, token=token)
        self._emitter = Emitter(kafka, topic, name="litellm") if emitter is None else emitter
        self._api, self._doubt, self._max_tokens = api, doubt, max_tokens
        self._calls: OrderedDict[tuple[str, str], list[_Call]] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> TallygateCallback:
        """With TALLYGATE and KAFKA, and if they are set TALLYGATE_TOPIC, _API, _DOUBT, _MAX_TOKENS and _TOKEN."""
        get = os.environ.get
        if missing := [name for name in ("TALLYGATE", "KAFKA") if not get(name)]:
            raise ValueError(f"tallygate.litellm: set {' and '.join(missing)}: where the decision server is, and the brokers")
        return cls(os.environ["TALLYGATE"], os.environ["KAFKA"], topic=get("TALLYGATE_TOPIC", "tallygate.events"), api=get("TALLYGATE_API", "llm.call"),
                   doubt=get("TALLYGATE_DOUBT", "closed"), max_tokens=int(get("TALLYGATE_MAX_TOKENS", "4096")), token=get("TALLYGATE_TOKEN"))  # type: ignore[arg-type]

    def who(self, key: Any, data: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
        """The caller's uid, and attributes, by what LiteLLM knows of its key. The key itself is in none of them."""
        secret = key.key_alias or key.token or key.api_key or ""
        return key.user_id or key.end_user_id, {
            "org": key.org_id, "team": key.team_id, "model": data.get("model"),
            "key": hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else None,
        }

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str) -> dict[str, Any]:
        uid, attrs = self.who(user_api_key_dict, data)
        prompt, output = _prompt_tokens(data), self._output_tokens(data, call_type)
        attrs["tokens"] = prompt + output
        if (usd := _usd(str(data.get("model") or ""), prompt, output)) is not None:
            attrs["usd"] = usd  # without a price a strict limit of money denies
        permit = await self._client.admit(self._api, uid=uid, attrs=attrs, fail=self._doubt)
        if not permit:
            raise _denial(permit.decision, str(data.get("model") or ""))
        with self._lock:
            self._calls.setdefault((str(data.get("litellm_call_id")), str(user_api_key_dict.api_key)), []).append(_Call(permit, uid, attrs))
            while len(self._calls) > _MAX_CALLS:
                self._calls.popitem(last=False)
        return data

    def _output_tokens(self, data: dict[str, Any], call_type: str) -> int:
        if str(call_type) in _WITHOUT_OUTPUT:
            return 0
        bounds = [_number(data[name]) for name in _OUTPUT if data.get(name) is not None]
        most = max(self._max_tokens if n is None or n <= 0 else n for n in bounds or [None])  # which one the model goes by is its own affair
        return most * max(1, *(_number(data.get(name)) or 1 for name in ("n", "best_of")))

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Settles a call by its usage; of a stream that broke, or whose client has left, by what LiteLLM has counted."""
        if (call := self._ended(kwargs.get("litellm_call_id"), _token_of(kwargs))) is None:
            return
        told = kwargs.get("standard_logging_object") or {}
        used, cost = told.get("total_tokens"), told.get("response_cost")
        await self._settle(call, "success", call.attrs["tokens"] if used is None else used, call.attrs.get("usd") if cost is None else _micros(cost))

    async def async_log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Nothing: one try has failed, and LiteLLM may have others. async_post_call_failure_hook is told of the last."""

    async def async_post_call_failure_hook(self, request_data: dict[str, Any], original_exception: Exception, user_api_key_dict: Any,
                                           traceback_str: str | None = None) -> None:
        """Gives back what a failed call held. Of one without an answer nobody knows what it has used: all of it counts."""
        call = self._ended(request_data.get("litellm_call_id"), user_api_key_dict.api_key)
        if call is None:
            return
        if isinstance(original_exception, (litellm.Timeout, litellm.APIConnectionError)):
            await self._settle(call, "failure", call.attrs["tokens"], call.attrs.get("usd"))
        else:
            await call.permit.cancel()

    def _ended(self, call_id: Any, token: Any) -> _Call | None:
        """The call of that id and key. A client may choose the id: of two such calls that are under way the older one."""
        with self._lock:
            calls = self._calls.get(place := (str(call_id), str(token)), [])
            call = calls.pop(0) if calls else None
            if not calls:
                self._calls.pop(place, None)
        return call

    async def _settle(self, call: _Call, outcome: str, tokens: Any, usd: Any) -> None:
        self._emitter.emit(api=self._api, uid=call.uid, outcome=outcome, attrs={**call.attrs, "tokens": tokens, "usd": usd}, permit=call.permit)
        await call.permit.done(outcome)


def _token_of(kwargs: dict[str, Any]) -> Any:
    """The hash of the call's key, as LiteLLM's log has it."""
    params = kwargs.get("litellm_params") or {}
    metadata = params.get("metadata") or params.get("litellm_metadata") or {}
    return metadata.get("user_api_key")


def _prompt_tokens(data: dict[str, Any]) -> int:
    text = data.get("prompt") or data.get("input") or ""
    try:
        if messages := data.get("messages"):
            return int(litellm.token_counter(model=str(data.get("model")), messages=messages, tools=data.get("tools")))
        return int(litellm.token_counter(model=str(data.get("model")), text=text if isinstance(text, str) else str(text)))
    except Exception:  # of any tokenizer, for what no model would take either
        return -(-len(str(data.get("messages") or text).encode()) // _BYTES_A_TOKEN)


def _number(value: Any) -> int | None:
    """A number as the most generous of models reads it, rounded up; None for anything else."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else math.ceil(min(number, _LARGEST) if number > 0 else 0)


def _usd(model: str, prompt: int, output: int) -> float | None:
    """The most that a call may cost with any deployment of the model; None where one of them has no price."""
    prices = [_price(params, params.get("model", model)) for params in _deployments(model) or [{}]]
    costs = [prompt * p[0] + output * p[1] for p in prices if p is not None]
    return _micros(max(costs)) if len(costs) == len(prices) else None


def _deployments(model: str) -> list[dict[str, Any]]:
    from litellm.proxy import proxy_server

    router = proxy_server.llm_router
    return [{**(d.get("model_info") or {}), **d["litellm_params"]} for d in (router.get_model_list(model_name=model) if router else None) or []]


def _price(params: dict[str, Any], model: str) -> tuple[float, float] | None:
    prompt, output = params.get("input_cost_per_token"), params.get("output_cost_per_token")
    if prompt is None and output is None:
        try:
            info = litellm.get_model_info(model=model)
        except Exception:  # it says so of unknown models
            return None
        prompt, output = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    return None if prompt is None and output is None else (float(prompt or 0), float(output or 0))


def _micros(usd: float) -> float:
    """Rounded up to a millionth: sums are exact to that."""
    return math.ceil(usd * 1e6 - 1e-6) / 1e6


def _denial(d: Decision, model: str) -> Exception:
    """LiteLLM's own error: 429, or 503 in doubt, with Retry-After."""
    detail = {"error": d.problem()["detail"], "type": d.public or "limit"}
    if d.in_doubt:
        return HTTPException(status_code=503, detail=detail, headers={**d.headers(), "Retry-After": str(d.retry_after or 1)})
    try:
        from litellm.proxy.common_utils.proxy_rate_limit_error import ProxyRateLimitError
    except ImportError:  # an older LiteLLM
        return HTTPException(status_code=429, detail=detail, headers=d.headers())
    limited: Exception = ProxyRateLimitError(detail=detail, headers=d.headers(), model=model)
    return limited


def __getattr__(name: str) -> Any:
    """The callback is made when LiteLLM asks for it, once."""
    if name != "callback":
        raise AttributeError(name)
    made = globals()[name] = TallygateCallback.from_environment()
    return made
