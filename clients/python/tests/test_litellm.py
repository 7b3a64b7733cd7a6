"""Budgets of LiteLLM's proxy, beside stand-ins for LiteLLM and the decision server. TestLiteLLM, in Go, runs the real proxy."""

import asyncio
import importlib
import sys
import types
import unittest
from unittest import mock

from fake import Server, closed_port

ADMITTED = {"admitted": True, "permit": "p1", "permit_at": "2026-11-23T06:52:08.114203Z", "id": "p1", "token": "t1", "limited": False, "limit": 10, "remaining": 9}
DENIED = {"admitted": False, "limited": True, "limit": 10, "remaining": 0, "retry_after": 29, "rule": "team-usd", "public": "budget", "action": "block"}
SECRET = "sk-a-secret-key"


class Deployments:
    def __init__(self, **models):
        self._models = models

    def get_model_list(self, model_name):
        return self._models.get(model_name)


def stand_in():
    """A litellm of which the callback needs no more."""
    package = types.ModuleType("litellm")
    package.Timeout, package.APIConnectionError = type("Timeout", (Exception,), {}), type("APIConnectionError", (Exception,), {})
    package.token_counter = lambda model, messages=None, text=None, tools=None: sum(len(m["content"].split()) for m in messages) if messages else len(text.split())

    def info(model):
        if model != "provider/known":
            raise ValueError("This model isn't mapped yet")
        return {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}

    package.get_model_info = info
    modules = {"litellm": package}
    for name in ("integrations", "integrations.custom_logger", "proxy", "proxy.proxy_server", "proxy.common_utils", "proxy.common_utils.proxy_rate_limit_error"):
        modules["litellm." + name] = types.ModuleType("litellm." + name)
    modules["litellm.integrations.custom_logger"].CustomLogger = type("CustomLogger", (), {})
    modules["litellm.proxy"].proxy_server = modules["litellm.proxy.proxy_server"]
    modules["litellm.proxy.proxy_server"].llm_router = Deployments(
        large=[{"litellm_params": {"model": "a", "input_cost_per_token": 5e-06, "output_cost_per_token": 25e-06}},
               {"litellm_params": {"model": "b"}, "model_info": {"input_cost_per_token": 1e-06, "output_cost_per_token": 100e-06}}],
        known=[{"litellm_params": {"model": "provider/known"}}], unknown=[{"litellm_params": {"model": "x"}}],
        half=[{"litellm_params": {"model": "x"}}, {"litellm_params": {"model": "provider/known"}}])

    class ProxyRateLimitError(Exception):
        def __init__(self, detail, headers, model):
            self.status_code, self.detail, self.headers, self.model = 429, detail, headers, model

    modules["litellm.proxy.common_utils.proxy_rate_limit_error"].ProxyRateLimitError = ProxyRateLimitError
    return modules


class Emitted(list):
    def emit(self, **event):
        event["permit"] = event["permit"].fields
        self.append(event)
        return True


class Budgets(unittest.TestCase):
    def setUp(self):
        self.modules = stand_in()
        patched = mock.patch.dict(sys.modules, self.modules)
        patched.start()
        self.addCleanup(patched.stop)
        sys.modules.pop("tallygate.litellm", None)
        self.module = importlib.import_module("tallygate.litellm")
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)
        self.server = Server()
        self.server.__enter__()
        self.addCleanup(self.server.__exit__)
        self.server.answers = {"/v1/admit": ADMITTED, "/v1/done": {"ended": True}, "/v1/cancel": {"ended": True}}
        self.emitted = Emitted()
        self.key = types.SimpleNamespace(user_id="42", end_user_id=None, org_id="acme", team_id="web", key_alias=None, token="0123abcd", api_key="0123abcd")

    def callback(self, url=None, **settings):
        made = self.module.TallygateCallback(url or self.server.url, "", emitter=self.emitted, timeout=5, **settings)
        self.addCleanup(lambda: (made._client.close(), self.loop.run_until_complete(asyncio.sleep(0))))
        return made

    def run_(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def begins(self, callback, call_type="acompletion", **data):
        data = {"model": "large", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 100, "litellm_call_id": "c1", **data}
        return self.run_(callback.async_pre_call_hook(self.key, None, data, call_type))

    def succeeds(self, callback, call_id="c1", **told):
        kwargs = {"litellm_call_id": call_id, "litellm_params": {"metadata": {"user_api_key": self.key.api_key}}, "standard_logging_object": told}
        self.run_(callback.async_log_success_event(kwargs, None, None, None))

    def fails(self, callback, error):
        self.run_(callback.async_log_failure_event({"litellm_call_id": "c1"}, None, None, None))
        self.run_(callback.async_post_call_failure_hook({"litellm_call_id": "c1"}, error, self.key))

    def reserved(self):
        return [body["attrs"] for path, _, body in self.server.asked if path == "/v1/admit"]

    def paths(self):
        return [path for path, _, _ in self.server.asked]

    def test_a_call_is_reserved_and_settled(self):
        callback = self.callback()
        self.begins(callback)
        path, _, body = self.server.asked[0]
        self.assertEqual((path, body["api"], body["uid"]), ("/v1/admit", "llm.call", "42"))
        attrs = body["attrs"]
        self.assertEqual((attrs["org"], attrs["team"], attrs["model"], attrs["tokens"], attrs["usd"]), ("acme", "web", "large", 103, 0.010003))
        self.succeeds(callback, total_tokens=27, response_cost=0.0005354)
        (event,) = self.emitted
        self.assertEqual((event["api"], event["uid"], event["outcome"]), ("llm.call", "42", "success"))
        self.assertEqual(event["attrs"], {**attrs, "tokens": 27, "usd": 0.000536})  # not less than it was
        self.assertEqual(event["permit"], {"permit": "p1", "permit_at": ADMITTED["permit_at"]})
        self.assertEqual(self.paths(), ["/v1/admit", "/v1/done"])
        self.succeeds(callback, total_tokens=27)  # told twice, it counts once
        self.assertEqual(len(self.emitted), 1)
        self.assertEqual(callback._calls, {})

    def test_no_event_has_the_key(self):
        callback = self.callback()
        for alias, token in ((None, SECRET), (SECRET, "0123abcd"), (None, None)):
            self.key.key_alias, self.key.token, self.key.api_key = alias, token, token
            self.begins(callback)
            self.succeeds(callback)
            self.assertEqual(len(self.emitted[-1]["attrs"].get("key") or "") == 16, bool(alias or token))
        self.assertNotIn(SECRET, repr(self.emitted) + repr([body for _, _, body in self.server.asked]))

    def test_how_much_is_reserved(self):
        callback = self.callback(max_tokens=1000)
        for data, tokens, usd in (
            ({"n": 3}, 303, 0.030003), ({"max_tokens": None}, 1003, 0.100003), ({"max_tokens": None, "max_completion_tokens": 7}, 10, 0.000703),
            ({"model": "known"}, 103, 0.000203), ({"model": "unknown"}, 103, None), ({"model": "half"}, 103, None),
            ({"messages": None, "prompt": "a b"}, 102, 0.010002), ({"messages": None, "input": ["a b"]}, 102, 0.010002), ({"messages": [{"role": "user"}]}, 106, 0.010006),
        ):
            with self.subTest(data=data):
                self.begins(callback, **data)
                attrs = self.reserved()[-1]
                self.assertEqual((attrs["tokens"], attrs.get("usd")), (tokens, usd))
        self.begins(callback, "aembedding", messages=None, input="a b c d")
        self.assertEqual(self.reserved()[-1]["tokens"], 4)

    def test_no_bound_is_too_low(self):
        """Which of several bounds a model goes by is its own affair, and some take text and floats for numbers."""
        callback = self.callback(max_tokens=1000)
        for data, tokens in (
            ({"max_completion_tokens": 1, "max_tokens": 500}, 503), ({"max_tokens": 1, "max_output_tokens": 500}, 503),
            ({"max_tokens": "500"}, 503), ({"max_tokens": 499.5}, 503), ({"max_tokens": "many"}, 1003), ({"max_tokens": [1]}, 1003),
            ({"max_tokens": True}, 1003), ({"max_tokens": -5}, 1003), ({"max_tokens": float("nan")}, 1003), ({"max_tokens": float("inf")}, 10**12 + 3),
            ({"max_tokens": 100, "n": "3"}, 303), ({"max_tokens": 100, "n": 2.5}, 303), ({"max_tokens": 100, "n": 1, "best_of": 4}, 403),
            ({"max_tokens": 100, "n": 0}, 103),
        ):
            with self.subTest(data=data):
                self.begins(callback, **data)
                self.assertEqual(self.reserved()[-1]["tokens"], tokens)

    def test_denials_are_litellms_own(self):
        self.server.answers["/v1/admit"] = DENIED
        with self.assertRaises(self.modules["litellm.proxy.common_utils.proxy_rate_limit_error"].ProxyRateLimitError) as raised:
            self.begins(self.callback())
        error = raised.exception
        self.assertEqual((error.headers["Retry-After"], error.detail["type"], error.model), ("29", "budget", "large"))
        self.assertNotIn("team-usd", repr(error.detail) + repr(error.headers))  # the rule's name is no caller's
        self.assertEqual(error.headers["RateLimit"], '"budget";r=0;t=29')
        del self.modules["litellm.proxy.common_utils.proxy_rate_limit_error"].ProxyRateLimitError  # as in an older LiteLLM
        with self.assertRaises(self.module.HTTPException) as raised:
            self.begins(self.callback())
        self.assertEqual((raised.exception.status_code, raised.exception.headers["Retry-After"]), (429, "29"))

    def test_while_the_server_is_away(self):
        away = closed_port()
        with self.assertRaises(self.module.HTTPException) as raised:
            self.begins(self.callback(away))
        self.assertEqual((raised.exception.status_code, raised.exception.headers["Retry-After"]), (503, "1"))
        callback = self.callback(away, doubt="open")
        self.begins(callback)
        self.succeeds(callback, total_tokens=27, response_cost=0.1)
        (event,) = self.emitted  # it counts, without a permit
        self.assertEqual((event["permit"], event["attrs"]["usd"]), ({}, 0.1))
        for wrong in ({"doubt": "perhaps"}, {"max_tokens": 0}):
            with self.assertRaises(ValueError):
                self.callback(away, **wrong)

    def test_what_failed_is_given_back(self):
        callback = self.callback()
        self.begins(callback)
        self.fails(callback, RuntimeError("the provider answers 500"))
        self.assertEqual((self.paths(), self.emitted), (["/v1/admit", "/v1/cancel"], []))

    def test_what_nobody_knows_counts(self):
        for kind in ("Timeout", "APIConnectionError"):
            callback = self.callback()
            self.begins(callback)
            self.fails(callback, getattr(self.modules["litellm"], kind)())
            self.assertEqual((self.emitted[-1]["outcome"], self.emitted[-1]["attrs"]["usd"]), ("failure", 0.010003))
        self.begins(callback)
        self.succeeds(callback)  # LiteLLM tells no usage
        self.assertEqual((self.emitted[-1]["outcome"], self.emitted[-1]["attrs"]["tokens"]), ("success", 103))

    def test_other_tries_may_succeed(self):
        callback = self.callback()
        self.begins(callback)
        self.run_(callback.async_log_failure_event({"litellm_call_id": "c1"}, None, None, None))  # the first try
        self.succeeds(callback, total_tokens=5, response_cost=0.001)
        self.assertEqual((self.paths(), len(self.emitted)), (["/v1/admit", "/v1/done"], 1))

    def test_calls_of_one_id(self):
        callback = self.callback()
        self.begins(callback)
        self.begins(callback)  # a client may choose the id
        self.key.token = self.key.api_key = "another"
        self.begins(callback)
        self.succeeds(callback, total_tokens=1)
        self.key.token = self.key.api_key = "0123abcd"
        self.succeeds(callback, total_tokens=2)
        self.succeeds(callback, total_tokens=3)
        self.succeeds(callback, total_tokens=4)
        self.succeeds(callback, "c2", total_tokens=5)  # nobody has asked for it
        self.assertEqual([e["attrs"]["tokens"] for e in self.emitted], [1, 2, 3])

    def test_calls_that_never_end_are_forgotten(self):
        callback = self.callback()
        with mock.patch.object(self.module, "_MAX_CALLS", 2):
            for i in range(4):
                self.begins(callback, litellm_call_id=f"c{i}")
        self.assertEqual([call_id for call_id, _ in callback._calls], ["c2", "c3"])

    def test_settings_are_the_environments(self):
        with mock.patch.dict("os.environ", {"TALLYGATE": self.server.url}, clear=True), self.assertRaisesRegex(ValueError, "set KAFKA"):
            self.module.callback
        with self.assertRaises(AttributeError):
            self.module.nothing
        with mock.patch.dict("os.environ", {"TALLYGATE": self.server.url, "KAFKA": "127.0.0.1:1", "TALLYGATE_DOUBT": "open", "TALLYGATE_API": "x"}), \
                mock.patch.object(self.module, "Emitter"):
            self.assertIs(self.module.callback, self.module.callback)
            self.assertEqual((self.module.callback._doubt, self.module.callback._api), ("open", "x"))


if __name__ == "__main__":
    unittest.main()
