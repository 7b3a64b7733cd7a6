"""A search in Flask, with limits: flask --app flask_app run"""

import os

from flask import Flask

import tallygate

app = Flask("shop")
app.wsgi_app = tallygate.TallygateWSGI(  # type: ignore[method-assign]
    app.wsgi_app,
    client=tallygate.Client(os.environ["TALLYGATE"]),
    emitter=tallygate.Emitter(os.environ["KAFKA"], os.environ.get("TOPIC", "tallygate.events"), name="shop"),
    uid=tallygate.header("X-User"),
    api=tallygate.pattern_api(app),
    skip={"/healthz"},
)


@app.get("/search/query")
def search() -> dict[str, list[str]]:
    tallygate.note(empty=True)
    return {"found": []}


@app.get("/healthz")
def healthz() -> str:
    return "ok"
